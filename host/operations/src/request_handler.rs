//! The parts that one agent's operations work on: the agent, its extensions, sessions and tasks.
//!
//! The operations themselves are in the modules that are named like them. Each is an `impl` of the [`RequestHandler`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use annex_agent::{AgentExecutor, Steps};
use annex_fairness::of_tenant;
use annex_protocol::{A2aError, AgentCard, TaskId};
use annex_session::{SessionService, Turns};
use annex_telemetry::{Request, of_request};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::answer::{self, EventStream, Until};
use crate::counters::Counters;
use crate::deduplication::Deduplication;
use crate::extension_set::ExtensionSets;
use crate::on_lost_turn::OnLostTurn;
use crate::permits::TurnLimiter;
use crate::push::PushNotifications;
use crate::quota::TenantUse;
use crate::send_message::input_modes::InputModes;
use crate::tasks::Tasks;
use crate::tasks::log::{LogReader, LoggedEvent};
use crate::views::ExtensionViews;

/// The A2A operations over one agent, its sessions and its tasks. Each tenant has one.
pub struct RequestHandler {
    /// Itself, for what goes on when a request is answered.
    pub me: Weak<RequestHandler>,
    /// The installed extensions.
    pub extensions: Arc<ExtensionSets>,
    /// The agent.
    pub agent: Arc<dyn AgentExecutor>,
    /// Its name, which all its sessions share.
    pub app: Arc<str>,
    /// True if the agent lives elsewhere.
    pub agent_is_remote: bool,
    /// The fate of its turns whose process is gone.
    pub on_lost_turn: OnLostTurn,
    /// The media types that messages may have.
    pub input_modes: InputModes,
    /// `None` when nobody is notified.
    pub push: Option<Arc<PushNotifications>>,
    /// The conversations.
    pub sessions: Arc<dyn SessionService>,
    /// One turn at a time in each conversation.
    pub turns: Turns,
    /// The tasks.
    pub tasks: Arc<Tasks>,
    /// The views that extensions get besides session and task.
    pub views: ExtensionViews,
    /// Tells messages that came before.
    pub deduplication: Arc<Deduplication>,
    /// Bounds the number of turns.
    pub turn_limiter: Arc<TurnLimiter>,
    /// The use that the tenant has made of its quota; `None` for the agent of the config itself, which has none.
    pub used: Option<Arc<TenantUse>>,
    /// The running turns.
    pub running: TaskTracker,
    /// Counts how messages were taken and how turns ended.
    pub counters: Arc<Counters>,
    /// True once the tenant has been removed.
    pub removed: AtomicBool,
    /// Fires when what waits for its turn is to go elsewhere.
    pub draining: CancellationToken,
    /// Fires when running turns must end.
    pub stop: CancellationToken,
    /// Fires when streams must end, whatever their tasks do.
    pub closing: CancellationToken,
}

impl RequestHandler {
    /// Counts a request for the tenant, before anything is done for it.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`].
    pub fn admit(&self) -> Result<(), A2aError> {
        self.used.as_ref().map_or(Ok(()), |used| used.admit())
    }

    /// Does something for the tenant, which gets instances and connections in turn with others; its name is empty for the
    /// agent of the config itself.
    pub(crate) fn for_tenant<F: Future>(&self, done: F) -> impl Future<Output = F::Output> {
        of_tenant(self.tenant(), done)
    }

    /// [`Self::for_tenant`], about a task and for no request that waits. Lines of the log name the task.
    pub(crate) fn for_task<F: Future>(&self, task: &TaskId, done: F) -> impl Future<Output = F::Output> {
        let request = Request::begin(false);
        let tenant = self.tenant();
        if !tenant.is_empty() {
            let _ = request.tenant.set(Arc::clone(&tenant));
        }
        request.is_about(None, Some(task.clone().into()));
        of_tenant(tenant, of_request(request, done))
    }

    /// [`answer::events`], read for the tenant until this server closes its streams.
    pub(crate) fn events(&self, first: Option<LoggedEvent>, reader: Option<LogReader>, until: Until) -> EventStream {
        answer::events(first, reader, (self.tenant(), self.closing.clone()), until)
    }

    fn tenant(&self) -> Arc<str> {
        self.used.as_ref().map(|used| used.tenant()).unwrap_or_default()
    }

    /// The tenant, for lines of the log; `None` for the config's own agent.
    pub(crate) fn tenant_name(&self) -> Option<String> {
        Some(self.tenant().to_string()).filter(|tenant| !tenant.is_empty())
    }

    /// [`TenantUse::check_work`]
    pub(crate) fn check_work(&self) -> Result<(), A2aError> {
        self.used.as_ref().map_or(Ok(()), |used| used.check_work())
    }

    /// [`TenantUse::check_new_session`]
    pub(crate) fn check_new_session(&self) -> Result<(), A2aError> {
        self.used.as_ref().map_or(Ok(()), |used| used.check_new_session())
    }

    /// Checks that turns still begin. One that has waited may find that they do not.
    pub(crate) fn check_begins(&self) -> Result<(), A2aError> {
        let overloaded = |reason: &str| Err(A2aError::Overloaded { reason: reason.to_owned() });
        if self.running.is_closed() {
            return overloaded("the server is draining");
        }
        // A turn that has just begun when this is set is stopped by the name of the tenant.
        if self.removed.load(Ordering::Relaxed) {
            return overloaded("the tenant has been removed");
        }
        Ok(())
    }

    /// The steps of a turn, whose tokens and time of cores count for the tenant.
    pub(crate) fn counted(&self, steps: Steps) -> Steps {
        let used = self.used.as_ref();
        let steps = steps.counting_in(used.map(|used| used.tokens())).taking_time_of(used.map(|used| used.cpu()));
        steps.timed_in(Arc::clone(&self.counters.calls))
    }

    /// Takes no further turns, of any tenant. Where there may be other processes, messages that wait for their turn are refused
    /// at once, so that they can be sent again there.
    pub fn begin_to_drain(&self) {
        self.running.close();
        if self.tasks.store().is_shared() {
            self.draining.cancel();
        }
    }

    /// GetExtendedAgentCard (A2A 1.0 section 3.1.11). The caller has been authenticated: without authentication there is no
    /// extended card.
    ///
    /// # Errors
    /// [`A2aError::UnsupportedOperation`] when there is none, and as [`ExtensionSets::current`].
    pub(crate) fn get_extended_agent_card(&self) -> Result<Arc<AgentCard>, A2aError> {
        let reason = "this agent has no extended card; the public one is all there is".to_owned();
        self.extensions.current()?.extended_card.clone().ok_or(A2aError::UnsupportedOperation { reason })
    }
}
