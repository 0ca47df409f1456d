//! Functions for all kinds of events: they find the parts and the metadata of an event, and measure the event.

use annex_protocol::{Artifact, Message, Metadata, Part, PartContent, Parts, StreamResponse};

/// Replaces unreadable parts of an event, such as bytes that are not base64. Returns true if it replaced a part.
pub(super) fn replace_unreadable(event: &mut StreamResponse) -> bool {
    let mut is_replaced = false;
    for parts in parts_of(event) {
        is_replaced |= parts.replace_unreadable();
    }
    is_replaced
}

/// Removes metadata entries from the parts of an event. An entry is removed if `is_removed` returns true for its key.
pub(super) fn remove_from_parts(event: &mut StreamResponse, is_removed: impl Fn(&str) -> bool) {
    let is_affected = |metadata: &Metadata| metadata.keys().any(&is_removed);
    change_metadata_of_parts(event, is_affected, |metadata| metadata.retain_keys(|key| !is_removed(key)));
}

/// Changes the metadata of the parts of an event. Nothing changes in a message or an artifact without metadata for which
/// `is_affected` returns true.
pub(super) fn change_metadata_of_parts(
    event: &mut StreamResponse,
    is_affected: impl Fn(&Metadata) -> bool,
    change: impl Fn(&mut Metadata),
) {
    for parts in parts_of(event) {
        // Shared parts are copied only if something changes.
        if parts.iter().any(|part| is_affected(&part.metadata)) {
            parts.iter_mut().for_each(|part| change(&mut part.metadata));
        }
    }
}

/// The parts of all messages and artifacts of an event.
fn parts_of(event: &mut StreamResponse) -> Vec<&mut Parts> {
    match event {
        StreamResponse::Message(message) => vec![&mut message.parts],
        StreamResponse::StatusUpdate(update) => {
            update.status.message.as_mut().map(|message| &mut message.parts).into_iter().collect()
        }
        StreamResponse::ArtifactUpdate(update) => vec![&mut update.artifact.parts],
        StreamResponse::Task(task) => {
            let messages = task.history.iter_mut().chain(task.status.message.as_mut());
            let of_messages = messages.map(|message| &mut message.parts);
            of_messages.chain(task.artifacts.iter_mut().map(|artifact| &mut artifact.parts)).collect()
        }
    }
}

/// The metadata of an event and of the message or artifact in it. The metadata of parts is not returned, because parts
/// are content.
pub(super) fn metadata_of(event: &mut StreamResponse) -> Vec<&mut Metadata> {
    match event {
        StreamResponse::Message(message) => vec![&mut message.metadata],
        StreamResponse::StatusUpdate(update) => {
            let of_message = update.status.message.as_mut().map(|message| &mut message.metadata);
            of_message.into_iter().chain([&mut update.metadata]).collect()
        }
        StreamResponse::ArtifactUpdate(update) => vec![&mut update.artifact.metadata, &mut update.metadata],
        StreamResponse::Task(task) => vec![&mut task.metadata],
    }
}

/// The size of an event in bytes. It includes the content, the metadata, and 256 bytes for each part and for other
/// overhead.
pub(super) fn size(event: &StreamResponse) -> usize {
    // Parts without content need memory too, so many of them must count.
    const OVERHEAD: usize = 256;
    let metadata =
        |metadata: &Metadata| metadata.iter().map(|(key, value)| key.len() + value.get().len()).sum::<usize>();
    let content = |part: &Part| match &part.content {
        PartContent::Text(text) | PartContent::Raw(text) | PartContent::Url(text) => text.len(),
        PartContent::Data(json) => json.get().len(),
    };
    let part = |part: &Part| OVERHEAD + content(part) + metadata(&part.metadata);
    let parts = |parts: &[Part]| parts.iter().map(part).sum::<usize>();
    let message = |message: &Message| parts(&message.parts) + metadata(&message.metadata);
    let artifact = |artifact: &Artifact| parts(&artifact.parts) + metadata(&artifact.metadata);
    OVERHEAD
        + match event {
            StreamResponse::Message(sent) => message(sent),
            StreamResponse::StatusUpdate(update) => {
                update.status.message.as_ref().map_or(0, message) + metadata(&update.metadata)
            }
            StreamResponse::ArtifactUpdate(update) => artifact(&update.artifact) + metadata(&update.metadata),
            StreamResponse::Task(task) => {
                let history = task.history.iter().map(|told| OVERHEAD + message(told)).sum::<usize>();
                let artifacts = task.artifacts.iter().map(artifact).sum::<usize>();
                history + artifacts + task.status.message.as_ref().map_or(0, message) + metadata(&task.metadata)
            }
        }
}
