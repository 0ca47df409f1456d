//! Checks a request for limits on ids and references, in addition to the checks of the protocol.

use annex_protocol::{A2aError, ContextId, Message, SendMessageRequest, TaskId};

/// The longest id that a client may choose, in bytes. Ids are repeated in every event and kept with every task.
pub(crate) const MAX_ID_BYTES: usize = 256;
/// The maximum number of tasks that a message may refer to.
const MAX_REFERENCES: usize = 64;

pub(crate) fn check(request: &SendMessageRequest) -> Result<(), A2aError> {
    request.validate()?;
    check_ids(&request.message)?;
    check_references(&request.message)
}

fn check_ids(message: &Message) -> Result<(), A2aError> {
    let ids = [
        ("message.messageId", Some(message.message_id.as_str())),
        ("message.contextId", message.context_id.as_ref().map(ContextId::as_str)),
        ("message.taskId", message.task_id.as_ref().map(TaskId::as_str)),
    ];
    match ids.into_iter().find(|(_, id)| id.is_some_and(|id| id.len() > MAX_ID_BYTES)) {
        Some((field, _)) => Err(too_long(field)),
        None => Ok(()),
    }
}

/// Checks the references to other tasks. References are hints for the agent (A2A 1.0 section 3.4.3), so no task is looked up:
/// an unknown, deleted or foreign task is no error.
fn check_references(message: &Message) -> Result<(), A2aError> {
    let references = &message.reference_task_ids;
    if references.len() > MAX_REFERENCES {
        let description = format!("has {} ids; at most {MAX_REFERENCES} are allowed", references.len());
        return Err(A2aError::invalid_field("message.referenceTaskIds", description));
    }
    match references.iter().position(|id| id.as_str().len() > MAX_ID_BYTES) {
        Some(index) => Err(too_long(&format!("message.referenceTaskIds[{index}]"))),
        None => Ok(()),
    }
}

fn too_long(field: &str) -> A2aError {
    A2aError::invalid_field(field, format!("is longer than {MAX_ID_BYTES} bytes"))
}
