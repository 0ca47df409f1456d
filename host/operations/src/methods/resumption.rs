//! Tasks that an extension interrupted and later resumes, without a message of the client.
//!
//! The interrupted turn is made again: with the original message and owner, and the extensions that were active then.
//! The message was already checked and stored, so these steps are skipped. An interruption ends only once, by the first
//! turn after it: a resumption or the turn of the client's next message.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_agent::{Steps, TurnStart};
use annex_protocol::{A2aError, AgentExtension, ExtensionUri, Message, Owner, Role, SendMessageRequest, TaskId};
use annex_runtime::{Chain, RequestOutcome, TurnRequest};
use annex_session::TurnSession;
use annex_tasks::Interruption;

use crate::activation::{self, Occasion};
use crate::extension_set::ExtensionSet;
use crate::fault;
use crate::permits::{TurnLimiter, TurnPermit};
use crate::request_handler::RequestHandler;
use crate::send_message::accept::{Target, TurnResources, hook_request, installed_with};
use crate::service_parameters::ServiceParameters;
use crate::tasks::Tasks;
use crate::tasks::record::TaskRecord;

/// The name of the operation for the hooks.
const OPERATION: &str = "SendMessage";

/// A task to resume.
pub(crate) struct Resumption {
    task: TaskId,
    owner: Owner,
    /// The interruption that the resumption ends.
    interruption: Interruption,
    permit: TurnPermit,
}

/// The tasks that one call of a method asks to resume.
pub(crate) struct Resumptions {
    /// The tenant of the called extension.
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

    /// Takes all requested resumptions. Later requests of the extension are refused.
    pub(crate) fn close(&self) -> Vec<Resumption> {
        self.lock().take().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Resumption>>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task that the extension interrupted.
    ///
    /// # Errors
    /// The reason why the task cannot be resumed, as text for the extension.
    pub(crate) async fn want(&self, task_id: &str, extension: &ExtensionUri) -> Result<(), String> {
        let task = TaskId::from(task_id);
        let waiting = self.tasks.interrupted(&self.tenant, &task, extension).await.map_err(|error| {
            fault::log(&error);
            "the tasks cannot be read now".to_owned()
        })?;
        let (owner, interruption) = waiting.ok_or_else(|| format!("no task {task_id} waits for this extension"))?;
        // A second request for the same task in one call is ignored: one turn is enough.
        if self.is_wanted(&interruption)? {
            return Ok(());
        }
        let permit = self.turn_limiter.try_take(&owner).await.map_err(|error| error.to_string())?;
        let mut wanted = self.lock();
        let wanted = wanted.as_mut().ok_or_else(answered)?;
        wanted.push(Resumption { task, owner, interruption, permit });
        Ok(())
    }

    fn is_wanted(&self, interruption: &Interruption) -> Result<bool, String> {
        let wanted = self.lock();
        let wanted = wanted.as_ref().ok_or_else(answered)?;
        Ok(wanted.iter().any(|other| other.interruption.number == interruption.number))
    }
}

fn answered() -> String {
    "the call has been answered already".to_owned()
}

impl RequestHandler {
    /// Resumes the tasks, each in a turn of its own without a waiting client. If a resumption fails, the log has the
    /// reason.
    pub(crate) fn take_up(&self, resumptions: Vec<Resumption>) {
        for resumption in resumptions {
            let Some(handler) = self.me.upgrade() else { return };
            self.running.spawn(async move {
                let task = resumption.task.clone();
                if let Err(error) = handler.for_task(&task, handler.resume(resumption)).await {
                    let tenant = handler.tenant_name();
                    tracing::warn!(target: crate::LOG_TARGET, tenant, %task, %error, "a waiting task was not resumed");
                }
            });
        }
    }

    async fn resume(&self, resumption: Resumption) -> Result<(), A2aError> {
        let Resumption { task, owner, interruption, permit } = resumption;
        let unsupported = |reason: String| A2aError::UnsupportedOperation { reason };
        let waits_no_longer = || unsupported(format!("task {task} waits no longer"));
        let record = self.tasks.open(&owner, &task).await?;
        let target = self.target_again(&owner, &record);
        let session = self.begin_turn(&owner, &target).await?;
        self.check_begins()?;
        // Another process may have ended the task. If one takes the task after this point, the epoch changes and the
        // write is refused.
        record.learn_epoch().await.map_err(fault::of_store)?;
        target.check_open()?;
        let extensions = self.extensions.current()?;
        // Checked after the wait: a message of the client may have ended the interruption. The interruption itself ends
        // only when the turn joins the task, so that the task can be resumed again if this process ends before.
        let waiting = self.tasks.interrupted(&owner.tenant, &task, &interruption.by).await.map_err(fault::of_store)?;
        if waiting.is_none_or(|(_, waiting)| waiting.number != interruption.number) {
            return Err(waits_no_longer());
        }
        let requested = interruption.requested;
        let call = ServiceParameters { requested, owner, ..ServiceParameters::default() };
        self.begin_again(call, (&extensions, TurnStart::Message), target, (session, permit)).await
    }

    /// The target of [`Self::begin_again`]. The current lease of this process must hold until the turn ends.
    pub(crate) fn target_again(&self, owner: &Owner, record: &Arc<TaskRecord>) -> Target {
        let mut target = Target::of_task(owner, Arc::clone(record), self.counted(Steps::default()));
        target.replica = self.tasks.store().replica();
        target
    }

    /// Begins another turn of an existing task, with the last message of its user and without a waiting client. A
    /// remote agent receives the message again only if the turn `begins_with` it.
    pub(crate) async fn begin_again(
        &self,
        call: ServiceParameters,
        (extensions, begins_with): (&ExtensionSet, TurnStart),
        target: Target,
        (session, permit): (TurnSession, TurnPermit),
    ) -> Result<(), A2aError> {
        let (chain, request) =
            self.wake(&call, OPERATION, (extensions, &extensions.passed_on), &target, &session).await?;
        let mut remote = self.upstream_context(&call, extensions, (&session, &target.task_id), &request).await?;
        if let Some(remote) = &mut remote {
            remote.begins_with = begins_with;
        }
        let counted = self.running.token();
        let resources =
            TurnResources { chain, user_event: None, session, permit, call, remote, counted, streams: false };
        self.start(request, target, resources).await.map(drop)
    }

    /// Starts the active extensions for an existing task, with the last message of its user. `passed_on` are the
    /// extensions of a remote agent that takes part in the call.
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
        let pinned = match &target.record {
            Some(record) => self.tasks.pinned(record).await.map_err(fault::of_store)?,
            None => Vec::new(),
        };
        let installed = installed_with(&pinned, extensions);
        let request = SendMessageRequest { message, ..SendMessageRequest::default() };
        let occasion = Occasion::again(&call.requested, &request);
        let active = activation::negotiate(&installed, passed_on, &occasion)?;
        let view = self.views.of_turn(&active, &call.owner, target.visible(session)).await?;
        let hooks = TurnRequest { resumed: true, ..hook_request(call, operation, &request, target, view) };
        let RequestOutcome { chain, .. } = Chain::run_request_hooks(&active, &hooks).await.map_err(fault::of_hook)?;
        Ok((chain, request))
    }
}
