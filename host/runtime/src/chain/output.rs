//! The hook `output`: the content of an event as the hook gets it, the outcomes, and the chunks that an extension holds back.

use std::mem;

use annex_protocol::{
    Artifact, ArtifactId, ExtensionUri, Message, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};

use crate::confinement::limits::{MAX_HELD_ARTIFACTS, MAX_HELD_CHUNKS};
use crate::contract::{OutputChunk, OutputContent, OutputPlace};

/// The outcome of the hook `output` for an event.
#[derive(Debug)]
pub enum OutputOutcome {
    /// The event goes out with the content that the extensions have left.
    GoesOut(StreamResponse),
    /// The event does not go out. An extension holds its content back, or nothing of its content is left.
    Withheld,
    /// An extension refuses the content.
    Refused {
        /// The extension.
        by: ExtensionUri,
        /// The reason for the client.
        reason: String,
    },
}

/// The verdict of one extension on the content of an event.
pub(crate) enum Revision {
    Leaves,
    Revises,
    Holds,
    Refuses(String),
}

/// Completes an event whose content was revised and may be empty.
pub(crate) fn completed(mut event: StreamResponse) -> OutputOutcome {
    match &mut event {
        StreamResponse::ArtifactUpdate(update) if update.artifact.parts.is_empty() => {
            let has_metadata = !update.metadata.is_empty() || !update.artifact.metadata.is_empty();
            if update.append && !update.last_chunk && !has_metadata {
                return OutputOutcome::Withheld;
            }
            // The client must get the metadata, and must learn that the artifact is replaced or complete. An artifact has
            // at least one part (A2A 1.0 section 4.1.7).
            update.artifact.parts = vec![Part::text("")].into();
        }
        // A message has at least one part (A2A 1.0 section 4.1.4).
        StreamResponse::Message(message) if message.parts.is_empty() => message.parts = vec![Part::text("")].into(),
        StreamResponse::StatusUpdate(TaskStatusUpdateEvent { status: TaskStatus { message, .. }, .. }) => {
            // The message of a status is optional. A message without parts stays if it has data of other extensions.
            message.take_if(|message| message.parts.is_empty() && message.metadata.is_empty());
            if let Some(message) = message.as_mut().filter(|message| message.parts.is_empty()) {
                message.parts = vec![Part::text("")].into();
            }
        }
        _ => {}
    }
    OutputOutcome::GoesOut(event)
}

/// The parts of an event that the hook can replace.
pub(crate) fn parts_of(event: &StreamResponse) -> &[Part] {
    match event {
        StreamResponse::Message(message) => message.parts.as_slice(),
        StreamResponse::StatusUpdate(update) => {
            update.status.message.as_ref().map(|message| message.parts.as_slice()).unwrap_or_default()
        }
        StreamResponse::ArtifactUpdate(update) => update.artifact.parts.as_slice(),
        StreamResponse::Task(_) => &[],
    }
}

/// Converts an event for the guest. `parts` are its parts as JSON, and `held` is the number of held chunks in them.
pub(crate) fn content(event: &StreamResponse, parts: String, held: u32) -> Option<OutputContent> {
    let (task_id, context_id, place) = match event {
        StreamResponse::Message(message) => {
            (message.task_id.as_ref(), message.context_id.as_ref(), OutputPlace::Message)
        }
        StreamResponse::StatusUpdate(update) => {
            let state = update.status.state.name().to_owned();
            (Some(&update.task_id), Some(&update.context_id), OutputPlace::Status(state))
        }
        StreamResponse::ArtifactUpdate(update) => {
            let artifact_id = update.artifact.artifact_id.to_string();
            let chunk = OutputChunk { artifact_id, first: !update.append, last: update.last_chunk };
            (Some(&update.task_id), Some(&update.context_id), OutputPlace::Artifact(chunk))
        }
        StreamResponse::Task(_) => return None,
    };
    let task_id = task_id.map(ToString::to_string);
    let context_id = context_id.map(ToString::to_string).unwrap_or_default();
    Some(OutputContent { task_id, context_id, place, parts, held })
}

/// Replaces the parts of an event, and lists the extension in the message or artifact.
pub(crate) fn replace(event: &mut StreamResponse, parts: Vec<Part>, by: &ExtensionUri) {
    let (own_parts, extensions) = match event {
        StreamResponse::Message(message) => (&mut message.parts, &mut message.extensions),
        StreamResponse::ArtifactUpdate(update) => (&mut update.artifact.parts, &mut update.artifact.extensions),
        StreamResponse::StatusUpdate(update) if parts.is_empty() && update.status.message.is_none() => return,
        StreamResponse::StatusUpdate(update) => {
            let message = message_of(update);
            (&mut message.parts, &mut message.extensions)
        }
        StreamResponse::Task(_) => return,
    };
    *own_parts = parts.into();
    if !extensions.contains(by) {
        extensions.push(by.clone());
    }
}

/// The message of a status, which is made if there is none.
fn message_of(update: &mut TaskStatusUpdateEvent) -> &mut Message {
    let TaskStatusUpdateEvent { task_id, context_id, status, .. } = update;
    status.message.get_or_insert_with(|| Message::agent(context_id.clone(), Some(task_id.clone()), Vec::new()))
}

/// The final state other than COMPLETED that an event brings the task into. Its content cannot be refused.
pub(crate) fn bad_end(event: &StreamResponse) -> Option<TaskState> {
    match event {
        StreamResponse::StatusUpdate(update) => Some(update.status.state)
            .filter(|state| matches!(state, TaskState::Failed | TaskState::Canceled | TaskState::Rejected)),
        StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) | StreamResponse::Task(_) => None,
    }
}

/// The chunks that one extension holds back, joined by artifact.
#[derive(Default)]
pub(crate) struct HeldChunks {
    artifacts: Vec<HeldArtifact>,
}

struct HeldArtifact {
    update: TaskArtifactUpdateEvent,
    /// The number of chunks in `update`.
    chunks: u32,
    /// Size of the parts as JSON, and of the metadata and the URIs of extensions.
    bytes: usize,
}

impl HeldChunks {
    pub(crate) fn has(&self, artifact: &ArtifactId) -> bool {
        self.artifacts.iter().any(|held| held.update.artifact.artifact_id == *artifact)
    }

    /// Puts the held chunks of the event's artifact before the event's own parts. Returns the number of these chunks.
    pub(crate) fn rejoin(&mut self, event: &mut StreamResponse) -> u32 {
        let StreamResponse::ArtifactUpdate(update) = event else { return 0 };
        let id = &update.artifact.artifact_id;
        let Some(place) = self.artifacts.iter().position(|held| held.update.artifact.artifact_id == *id) else {
            return 0;
        };
        let HeldArtifact { update: held, chunks, .. } = self.artifacts.remove(place);
        // A chunk that replaces its artifact replaces the held chunks too.
        if !update.append {
            return 0;
        }
        let chunk = mem::replace(update, held);
        update.artifact.append(chunk.artifact);
        update.metadata.extend(chunk.metadata);
        update.last_chunk = chunk.last_chunk;
        chunks
    }

    /// Holds a chunk back, with the `chunks` that were held before it. `bytes` is the size of all their parts, and
    /// `limit` is the limit on the bytes of all artifacts. Returns false, and leaves the chunk, if too much would be held.
    pub(crate) fn hold(
        &mut self,
        update: &mut TaskArtifactUpdateEvent,
        (chunks, bytes): (u32, usize),
        limit: usize,
    ) -> bool {
        let bytes = bytes.saturating_add(size_beside_parts(update));
        let held = self.artifacts.iter().fold(bytes, |sum, held| sum.saturating_add(held.bytes));
        let is_too_much = held > limit || self.artifacts.len() >= MAX_HELD_ARTIFACTS || chunks >= MAX_HELD_CHUNKS;
        if !is_too_much {
            self.artifacts.push(HeldArtifact { update: mem::take(update), chunks: chunks + 1, bytes });
        }
        !is_too_much
    }

    /// An empty last chunk of the artifact that has been held for the longest time. `None` if nothing is held.
    pub(crate) fn end(&self) -> Option<TaskArtifactUpdateEvent> {
        let held = &self.artifacts.first()?.update;
        Some(TaskArtifactUpdateEvent {
            task_id: held.task_id.clone(),
            context_id: held.context_id.clone(),
            artifact: Artifact { artifact_id: held.artifact.artifact_id.clone(), ..Artifact::default() },
            append: true,
            last_chunk: true,
            ..TaskArtifactUpdateEvent::default()
        })
    }
}

/// Size of the metadata and of the URIs of extensions, which grow with each chunk.
fn size_beside_parts(update: &TaskArtifactUpdateEvent) -> usize {
    let entries = update.metadata.iter().chain(update.artifact.metadata.iter());
    let uris = update.artifact.extensions.iter().map(|uri| uri.as_str().len());
    entries.map(|(key, value)| key.len() + value.get().len()).chain(uris).sum()
}
