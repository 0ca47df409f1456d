//! The request to the upstream: the caller's message, with the upstream's ids and the session's state.

use annex_agent::{AgentError, TurnContext, UpstreamContext};
use annex_protocol::{ExtensionUri, Message, MessageId, SendMessageConfiguration, SendMessageRequest, TaskId};

use crate::config::StateMapping;
use crate::links::Link;

/// Makes the request to the upstream for a turn.
pub(crate) async fn request(
    turn: &TurnContext,
    remote: &UpstreamContext,
    mapping: &StateMapping,
    link: &Link,
) -> Result<SendMessageRequest, AgentError> {
    let mut message = Message::clone(&turn.message);
    // All callers share one identity at the upstream. With equal message ids, one caller could get the answer of
    // another.
    message.message_id = MessageId::generate();
    message.extensions.retain(|uri: &ExtensionUri| remote.extensions.contains(uri));
    // The metadata of extensions that run here is for this server. State is sent to the upstream by the mapping only.
    let is_own = |key: &str| remote.own_keys.iter().any(|own| own == key);
    message.metadata.merge(remote.forgotten_in_message.clone());
    message.metadata.retain_keys(|key| !is_own(key));
    message.reference_task_ids = references(remote, &message.reference_task_ids).await?;
    let mut metadata = (*turn.metadata).clone();
    metadata.merge(remote.forgotten_in_request.clone());
    metadata.retain_keys(|key| !is_own(key));
    let accepted_output_modes = remote.accepted_output_modes.clone();
    // Push notifications and the length of the history are for this server, whose stores have every event.
    let configuration = SendMessageConfiguration { accepted_output_modes, ..SendMessageConfiguration::default() };
    let mut request = SendMessageRequest { tenant: None, message, configuration, metadata };
    place(&mut request, link);
    mapping.send(&turn.conversation, &mut request)?;
    Ok(request)
}

/// Replaces this server's ids with the upstream's ids. A task that has ended at the upstream becomes a reference.
pub(crate) fn place(request: &mut SendMessageRequest, link: &Link) {
    let message = &mut request.message;
    message.context_id.clone_from(&link.context);
    message.task_id = link.waiting_task().cloned();
    if let (Some(task), false) = (&link.task, link.waits)
        && !message.reference_task_ids.contains(task)
    {
        message.reference_task_ids.push(task.clone());
    }
}

/// The upstream's ids of the tasks that a message refers to. Tasks that the upstream does not know are skipped.
async fn references(remote: &UpstreamContext, tasks: &[TaskId]) -> Result<Vec<TaskId>, AgentError> {
    let mut known = Vec::new();
    for task in tasks {
        let link = Link::of_task(remote, task).await.map_err(AgentError::internal)?;
        known.extend(link.and_then(|link| link.task));
    }
    Ok(known)
}
