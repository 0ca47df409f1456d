//! Recognising repeated messages, and claiming new ones.

use annex_protocol::{A2aError, ContextId, Owner, SendMessageRequest, TaskId};
use annex_tasks::MessageKey;

use crate::counters::Reception;
use crate::deduplication::{self, Delivery};
use crate::request_handler::RequestHandler;
use crate::send_message::accept::Target;
use crate::turn::{Outcome, TaskOutcome};

impl RequestHandler {
    /// Claims the message, or returns what is known about its first arrival. `None` for a message of an anonymous
    /// client without context and task: anonymous clients are only distinguished by these ids.
    pub(super) async fn remember(
        &self,
        request: &SendMessageRequest,
        target: &mut Target,
    ) -> Result<Option<Delivery>, A2aError> {
        // The replica id is read before the claim: a turn whose claim another process may take over must not create a
        // task.
        target.replica = self.tasks.store().replica();
        let message = &request.message;
        let context = match (&message.context_id, &message.task_id) {
            (None, None) if target.owner.principal.is_empty() => return Ok(None),
            (None, None) => ContextId::default(),
            _ => target.context_id.clone(),
        };
        let key = MessageKey { context, message: message.message_id.clone(), digest: deduplication::digest(request)? };
        self.deduplication.remember(&target.owner, key, &target.task_id).await.map(Some)
    }

    pub(super) async fn repeated(&self, owner: &Owner, task: &TaskId) -> Result<(Reception, Outcome), A2aError> {
        let record = self.tasks.open(owner, task).await.map_err(|error| match error {
            A2aError::TaskNotFound { .. } => {
                // The task was swept between the two reads, and the record of the message with it.
                let reason =
                    "the task of this message has just been deleted, because it was old; send the message again";
                A2aError::Overloaded { reason: reason.to_owned() }
            }
            error => error,
        })?;
        let subscription = record.subscribe_to_turn();
        let task = TaskOutcome { record, subscription, active: Vec::new(), running: None };
        Ok((Reception::Repeated, Outcome::Task(task)))
    }
}
