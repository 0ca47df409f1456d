//! Resumes tasks that an extension interrupted, without a message of the client.
//!
//! The interrupted turn runs again: with the original message and owner, and the extensions that were active in its
//! first run. The message was already checked and stored, so these steps are skipped. An interruption can be ended only
//! once. It ends with the first turn after the interruption: a resumption, or the turn of the client's next message.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_agent::TurnStart;
use annex_conversation::Arrival;
use annex_protocol::{A2aError, ExtensionUri, Owner, TaskId};
use annex_runtime::Extension;

use crate::activation::{self, Occasion};
use crate::extension_set::ExtensionSet;
use crate::fault;
use crate::permits::{TurnLimiter, TurnPermit};
use crate::request_handler::RequestHandler;
use crate::send_message::asked::Refused;
use crate::send_message::entered::Entered;
use crate::send_message::incoming::Incoming;
use crate::send_message::installed_with;
use crate::service_parameters::ServiceParameters;
use crate::tasks::Tasks;
use crate::tasks::record::{self, TaskRecord};
use crate::tasks::task_pins::{Interruption, TaskPins};

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
    /// The resumptions that the call has requested so far. `None` once the call has been answered.
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
            self.process.running.spawn(async move {
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
        let record = self.process.tasks.open(&owner, &task).await?;
        let extensions = self.extensions.current()?;
        let call = ServiceParameters { requested: interruption.requested, owner, ..ServiceParameters::default() };
        let incoming = self.incoming_again(call, (&record, TurnStart::Message))?;
        // Checked when the turn runs: a message of the client may have ended the interruption. The interruption itself ends
        // only when the turn begins, so that the task can be resumed again if this process ends before.
        let waits = |record: &TaskRecord| {
            let pins = record.stored_pins().map(|text| TaskPins::parse(&text)).unwrap_or_default();
            if pins.interruption.is_some_and(|waiting| waiting.number == interruption.number) {
                return Ok(true);
            }
            Err(A2aError::UnsupportedOperation { reason: format!("task {task} waits no longer") })
        };
        self.make_turn((incoming, extensions, permit), waits).await
    }

    /// Runs a turn of an existing task without a message of the client, and waits for the end of the turn. The turn uses the
    /// last message of the user in the task. When the turn reaches the head of its queue, it runs only if `waits` returns true,
    /// which means that the task still waits.
    pub(crate) async fn make_turn(
        &self,
        (incoming, extensions, permit): (Incoming, Arc<ExtensionSet>, TurnPermit),
        waits: impl FnOnce(&TaskRecord) -> Result<bool, A2aError>,
    ) -> Result<(), A2aError> {
        let active = self.active_again(&incoming, &extensions)?;
        let counted = self.process.running.token();
        self.check_begins()?;
        let conversation = match self.enter(&incoming, None, self.process.tasks.process().replica()).await?.0 {
            Arrival::Runs(conversation) => conversation,
            Arrival::Waits(queued) => queued.runs().await.map_err(fault::of_append)?,
        };
        let (claim, waited) = (None, None);
        let entered = Entered { incoming, extensions, active, claim, permit, conversation, counted, waited };
        let checked = match &entered.incoming.record {
            Some(record) => match entered.follow_task(record).await.and_then(|()| self.check_begins()) {
                Ok(()) if record.is_finished() => Err(record::finished(record)),
                Ok(()) => waits(record),
                Err(error) => Err(error),
            },
            None => Ok(false),
        };
        let refused = match checked {
            Ok(true) => None,
            Ok(false) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        };
        if let Some(refused) = refused {
            let nothing = A2aError::UnsupportedOperation { reason: String::new() };
            Refused { entered, error: nothing }.leave_nothing().await;
            return refused;
        }
        match self.asked_and_begun(entered).await {
            Ok(begun) => {
                self.forward(begun.record()).await;
                begun.run_to_the_end().await.map(drop)
            }
            Err(refused) => Err(refused.leave_nothing().await),
        }
    }

    /// The active extensions of a turn that runs again. A version that the task has pinned replaces the installed
    /// version.
    pub(crate) fn active_again(
        &self,
        incoming: &Incoming,
        extensions: &ExtensionSet,
    ) -> Result<Vec<Arc<Extension>>, A2aError> {
        let pinned = incoming.record.as_ref().map(|record| self.process.tasks.pinned(record)).unwrap_or_default();
        let installed = installed_with(&pinned, extensions);
        let occasion = Occasion::again(&incoming.call.requested, &incoming.request);
        activation::negotiate(&installed, &extensions.passed_on, &occasion)
    }
}
