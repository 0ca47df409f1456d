//! Claims a message, and recognises a message that was sent before (the stage `Claimed`).

use std::sync::Arc;

use annex_conversation::MessageKey;
use annex_leases::Replica;
use annex_protocol::{A2aError, ContextId, Owner, TaskId};
use annex_runtime::Extension;

use crate::claims::{self, Claimed as OfStore, HeldClaim};
use crate::extension_set::ExtensionSet;
use crate::request_handler::RequestHandler;
use crate::send_message::checked::Checked;
use crate::send_message::incoming::Incoming;
use crate::tasks::record::{self, TaskRecord};
use crate::turn::{Outcome, TaskOutcome};

/// A new message with its claim.
pub(super) struct Claimed {
    pub(super) incoming: Incoming,
    pub(super) extensions: Arc<ExtensionSet>,
    pub(super) active: Vec<Arc<Extension>>,
    /// The claim of the message. `None` if an anonymous client sent the message without a context id and a task id: nothing
    /// else distinguishes anonymous clients, so a repetition cannot be recognised.
    pub(super) claim: Option<HeldClaim>,
    /// The replica that this process was before the claim. If the lease of that replica ends, another process may claim
    /// the message.
    pub(super) replica: Replica,
}

/// The result of claiming a checked message.
pub(super) enum Claiming {
    Claimed(Box<Claimed>),
    /// The message came before, with this outcome.
    Repeated(Outcome),
}

impl RequestHandler {
    /// Claims the message, or finds the outcome of its first arrival.
    pub(super) async fn claimed(&self, checked: Checked) -> Result<Claiming, A2aError> {
        let Checked { mut incoming, extensions, active } = checked;
        let replica = self.process.tasks.process().replica();
        let mut claim = None;
        if let Some(key) = message_key(&incoming)? {
            let mut is_missing = false;
            loop {
                let owner = &incoming.call.owner;
                match self.process.claims.claim(owner, &key, &incoming.task_id, &replica).await? {
                    OfStore::New(held) => {
                        incoming.take_task_id(&held.task().clone());
                        claim = Some(held);
                        break;
                    }
                    OfStore::Repeated(task) => {
                        if let Some(outcome) = self.repeated(owner, &task).await? {
                            return Ok(Claiming::Repeated(outcome));
                        }
                        // A task goes together with its claim, so the next claim has another result.
                        if std::mem::replace(&mut is_missing, true) {
                            return Err(A2aError::TaskNotFound { task_id: task });
                        }
                    }
                    OfStore::Answered(message) => {
                        return Ok(Claiming::Repeated(Outcome::Message { message, active: Vec::new() }));
                    }
                }
            }
        }
        incoming.tell_task();
        // Checked after the claim: a repetition gets its task even if the task is finished by now.
        check_task(incoming.record.as_deref())?;
        self.check_size(&incoming)?;
        self.check_room(&incoming.request).await?;
        Ok(Claiming::Claimed(Box::new(Claimed { incoming, extensions, active, claim, replica })))
    }

    /// The outcome of a message that was sent before: its task. Waits until it is known whether the first arrival was answered
    /// with the task. `None` if the first arrival was answered with a message, or if the task was deleted.
    async fn repeated(&self, owner: &Owner, task: &TaskId) -> Result<Option<Outcome>, A2aError> {
        let record = match self.process.tasks.open(owner, task).await {
            // The turn has just answered without the task, or the task was swept, and the claim with it.
            Err(A2aError::TaskNotFound { .. }) => return Ok(None),
            other => other?,
        };
        record.decided().await;
        if record.is_gone() {
            return Ok(None);
        }
        let subscription = record.subscribe_to_turn();
        Ok(Some(Outcome::Task(TaskOutcome { record, subscription, active: Vec::new(), running: None })))
    }
}

/// The key by which the message is recognised when it comes again.
fn message_key(incoming: &Incoming) -> Result<Option<MessageKey>, A2aError> {
    let message = &incoming.request.message;
    let context = match (&message.context_id, &message.task_id) {
        (None, None) if incoming.call.owner.principal.is_empty() => return Ok(None),
        (None, None) => ContextId::default(),
        _ => incoming.context_id().clone(),
    };
    let digest = claims::digest(&incoming.request)?;
    Ok(Some(MessageKey { context, message: message.message_id.clone(), digest }))
}

/// Checks that the task takes messages: it is not finished (A2A 1.0 section 3.4.2), and no turn works on it.
pub(super) fn check_task(record: Option<&TaskRecord>) -> Result<(), A2aError> {
    match record {
        Some(record) if record.is_finished() => Err(record::finished(record)),
        Some(record) if record.runs_elsewhere() => Err(record::runs_elsewhere(record.id())),
        // The message would wait for that turn, which usually finishes the task. A turn that has interrupted the task is
        // just ending.
        Some(record) if record.is_running() && !record.task_state().is_interrupted() => Err(record::worked_on(record)),
        _ => Ok(()),
    }
}
