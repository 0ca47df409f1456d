//! The memory of entries: the values and their texts, without the slack of allocations.
//!
//! The size is computed from the values and not from their JSON, which would cost more than a copy.

use annex_protocol::{
    Artifact, Message, Metadata, Part, PartContent, StreamResponse, Task, TaskArtifactUpdateEvent, TaskStatus,
    TaskStatusUpdateEvent,
};

use crate::entry::{Entry, Note};

/// Bytes of entries in the log and in their task. A task is the sum of its entries, so each entry counts twice: once in
/// the log and once in the task.
pub(crate) fn of_entries(entries: &[Entry]) -> usize {
    2 * entries.iter().map(of_entry).sum::<usize>()
}

/// Bytes of one entry. The bytes of an event are not included, because the history counts them.
pub(crate) fn of_entry(entry: &Entry) -> usize {
    match entry {
        Entry::Message(message) => of_message(&message.message),
        Entry::Event(_) => 0,
        Entry::Note(
            Note::Pins(text) | Note::UpstreamTask(text) | Note::UpstreamContext(text) | Note::Receipt(text),
        ) => text.len(),
        Entry::Update(update) => match update.as_ref() {
            StreamResponse::Task(task) => of_task(task),
            StreamResponse::Message(message) => of_message(message),
            StreamResponse::StatusUpdate(update) => of_status_update(update),
            StreamResponse::ArtifactUpdate(update) => of_artifact_update(update),
        },
    }
}

/// Bytes of one task.
pub(crate) fn of_task(task: &Task) -> usize {
    let ids = task.id.as_str().len() + task.context_id.as_str().len();
    let artifacts = task.artifacts.iter().map(of_artifact).sum::<usize>();
    let history = task.history.iter().map(of_message).sum::<usize>();
    size_of::<Task>() + ids + of_status(&task.status) + artifacts + history + of_metadata(&task.metadata)
}

fn of_status_update(update: &TaskStatusUpdateEvent) -> usize {
    let ids = update.task_id.as_str().len() + update.context_id.as_str().len();
    size_of::<TaskStatusUpdateEvent>() + ids + of_status(&update.status) + of_metadata(&update.metadata)
}

fn of_artifact_update(update: &TaskArtifactUpdateEvent) -> usize {
    let ids = update.task_id.as_str().len() + update.context_id.as_str().len();
    size_of::<TaskArtifactUpdateEvent>() + ids + of_artifact(&update.artifact) + of_metadata(&update.metadata)
}

fn of_status(status: &TaskStatus) -> usize {
    status.message.as_ref().map_or(0, of_message)
}

/// Bytes of one message.
pub(crate) fn of_message(message: &Message) -> usize {
    let ids = [Some(message.message_id.as_str()), message.context_id.as_ref().map(|id| id.as_str())];
    let task = message.task_id.as_ref().map(|id| id.as_str());
    let others = message.reference_task_ids.iter().map(|id| id.as_str());
    let uris = message.extensions.iter().map(|uri| uri.as_str());
    size_of::<Message>()
        + ids.into_iter().flatten().chain(task).chain(others).chain(uris).map(of_text).sum::<usize>()
        + of_parts(&message.parts)
        + of_metadata(&message.metadata)
}

fn of_artifact(artifact: &Artifact) -> usize {
    let texts = [Some(artifact.artifact_id.as_str()), artifact.name.as_deref(), artifact.description.as_deref()];
    let uris = artifact.extensions.iter().map(|uri| uri.as_str());
    size_of::<Artifact>()
        + texts.into_iter().flatten().chain(uris).map(of_text).sum::<usize>()
        + of_parts(&artifact.parts)
        + of_metadata(&artifact.metadata)
}

/// The size of the parts in memory, in bytes.
pub(crate) fn of_parts(parts: &[Part]) -> usize {
    parts.iter().map(of_part).sum()
}

fn of_part(part: &Part) -> usize {
    let content = match &part.content {
        PartContent::Text(text) | PartContent::Raw(text) | PartContent::Url(text) => text.len(),
        // User data is kept as the text that was sent, so its length is its memory.
        PartContent::Data(json) => json.get().len(),
    };
    size_of::<Part>() + content + part.filename.len() + part.media_type.len() + of_metadata(&part.metadata)
}

fn of_metadata(metadata: &Metadata) -> usize {
    metadata.iter().map(|(key, value)| of_text(key) + of_text(value.get())).sum()
}

/// Bytes of a text and of the `String` that holds the text.
fn of_text(text: &str) -> usize {
    size_of::<String>() + text.len()
}
