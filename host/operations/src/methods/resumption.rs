//! Tasks that an extension made wait and takes up again, out of band.
//!
//! The turn that was interrupted is made again: with the message that began it, for its owner, with the extensions that
//! its client had asked for. The message was checked and is in the session, so that is not done again. An interruption is
//! ended once, by whoever comes first: this, or a message of the client.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_agent::Steps;
use annex_protocol::{A2aError, AgentExtension, ExtensionUri, Message, Role, SendMessageRequest, TaskId};
use annex_runtime::{Chain, RequestOutcome, TurnRequest};
use annex_session::TurnSession;
use annex_tasks::Owner;

use crate::activation;
use crate::extension_set::ExtensionSet;
use crate::fault;
use crate::permits::{TurnLimiter, TurnPermit};
use crate::request_handler::RequestHandler;
use crate::send_message::accept::{Target, TurnResources, hook_request};
use crate::service_parameters::ServiceParameters;
use crate::tasks::Tasks;

/// The operation as the hooks see it.
const OPERATION: &str = "SendMessage";

/// A task that is to be taken up.
pub(crate) struct Resumption {
    task: TaskId,
    owner: Owner,
    /// Which interruption ends.
    number: u64,
    permit: TurnPermit,
}

/// The tasks that one call of a method wants to be taken up.
pub(crate) struct Resumptions {
    /// The tenant whose extension was called.
    tenant: String,
    tasks: Arc<Tasks>,
    turn_limiter: Arc<TurnLimiter>,
    /// `None` once the call has been answered.
    wanted: Mutex<Option<Vec<Resumption>>>,
}

impl Resumptions {
    pub(crate) fn new(tenant: &str, tasks: &Arc<Tasks>, turn_limiter: &Arc<TurnLimiter>) -> Arc<Self> {
        let wanted = Mutex::new(Some(Vec::new()));
        Arc::new(Self {
            tenant: tenant.to_owned(),
            tasks: Arc::clone(tasks),
            turn_limiter: Arc::clone(turn_limiter),
            wanted,
        })
    }

    /// Takes all of them. From now on the extension can resume no more.
    pub(crate) fn close(&self) -> Vec<Resumption> {
        self.lock().take().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Resumption>>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a task which the extension interrupted is to go on.
    ///
    /// # Errors
    /// The reason for which it cannot, as text for the extension.
    pub(crate) fn want(&self, task_id: &str, extension: &ExtensionUri) -> Result<(), String> {
        let task = TaskId::from(task_id);
        let waiting = self.tasks.pins().interrupted(&self.tenant, &task, extension);
        let (owner, number) = waiting.ok_or_else(|| format!("no task {task_id} waits for this extension"))?;
        let mut wanted = self.lock();
        let Some(wanted) = wanted.as_mut() else { return Err("the call has been answered already".to_owned()) };
        // An extension may ask twice in one call: one turn is enough.
        if wanted.iter().all(|other| other.number != number) {
            let permit = self.turn_limiter.try_take(&owner).map_err(|error| error.to_string())?;
            wanted.push(Resumption { task, owner, number, permit });
        }
        Ok(())
    }
}

impl RequestHandler {
    /// Takes the tasks up, each in a turn of its own that nobody waits for. What keeps one from it is in the log.
    pub(crate) fn take_up(&self, resumptions: Vec<Resumption>) {
        for resumption in resumptions {
            let Some(handler) = self.me.upgrade() else { return };
            self.running.spawn(async move {
                let task = resumption.task.clone();
                if let Err(error) = handler.resume(resumption).await {
                    tracing::warn!(target: crate::LOG_TARGET, %task, %error, "a task that waits was not taken up");
                }
            });
        }
    }

    async fn resume(&self, resumption: Resumption) -> Result<(), A2aError> {
        let Resumption { task, owner, number, permit } = resumption;
        let unsupported = |reason: String| A2aError::UnsupportedOperation { reason };
        let waits_no_longer = || unsupported(format!("task {task} waits no longer"));
        let named = Message { task_id: Some(task.clone()), ..Message::default() };
        let target = self.target(&owner, &named, Steps::default()).await?;
        let record = target.record.clone().ok_or_else(waits_no_longer)?;
        let session = self.begin_turn(&owner, &target).await?;
        if self.running.is_closed() {
            return Err(A2aError::Overloaded { reason: "the server is draining".to_owned() });
        }
        // Another process may have ended the task.
        record.refresh().await.map_err(fault::of_store)?;
        target.check_open()?;
        // Only now: a message of the client may have ended the interruption while this waited for its turn.
        let requested = self.tasks.pins().end_interruption(&task, number).ok_or_else(waits_no_longer)?;
        let call = ServiceParameters { requested, owner, headers: None, last_event: None };
        let extensions = self.extensions.current();
        let (chain, request) =
            self.wake(&call, OPERATION, (&extensions, &extensions.passed_on), &target, &session).await?;
        let remote = self.upstream_context(&call, &extensions, (&session, &task), &request).await?;
        let counted = self.running.token();
        let resources = TurnResources {
            chain,
            user_event: None,
            session,
            permit,
            call: call.clone(),
            remote,
            counted,
            streams: false,
        };
        self.start(request, target, resources).await.map(drop)
    }

    /// Lets the active extensions begin with a task that is there already, by the last message that its user sent to it.
    /// `passed_on` are extensions of an agent that lives elsewhere and is told of the call.
    pub(crate) async fn wake(
        &self,
        call: &ServiceParameters,
        operation: &str,
        (extensions, passed_on): (&ExtensionSet, &[AgentExtension]),
        target: &Target,
        session: &TurnSession,
    ) -> Result<(Chain, SendMessageRequest), A2aError> {
        let history = target.record.as_ref().map(|record| record.snapshot());
        let is_users = |message: &&Message| message.role == Role::User;
        let message = history.and_then(|task| task.history.iter().rev().find(is_users).cloned());
        let reason = || format!("task {} has no message", target.task_id);
        let message = message.ok_or_else(|| A2aError::UnsupportedOperation { reason: reason() })?;
        let installed = self.installed_for(call, &message, extensions);
        let active = activation::negotiate(&installed, passed_on, &call.requested)?;
        let view = self.views.of_turn(&active, &call.owner, target.visible(session)).await?;
        let request = SendMessageRequest { message, ..SendMessageRequest::default() };
        let hooks = TurnRequest { resumed: true, ..hook_request(call, operation, &request, target, view) };
        let RequestOutcome { chain, .. } = Chain::run_request_hooks(&active, &hooks).await.map_err(fault::of_hook)?;
        Ok((chain, request))
    }
}
