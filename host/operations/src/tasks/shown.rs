//! Leaves metadata of extensions out of the tasks, events and messages that a reader gets.
//!
//! This concerns extensions that the operator limits to readers which have activated them (`reads = "active"`). Stored tasks
//! and push notifications keep the metadata.

use std::collections::HashSet;
use std::sync::Arc;

use annex_protocol::{Artifact, ExtensionUri, Message, Metadata, Part, Parts, StreamResponse, Task};
use annex_runtime::{Extension, Installed, Readers};

/// The metadata that one reader does not see. Clones share the keys. Without a limited extension it costs nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct HiddenMetadata(Option<Arc<Hidden>>);

#[derive(Debug)]
struct Hidden {
    keys: HashSet<String>,
    /// The extensions that `extensions` of messages and artifacts do not list.
    uris: HashSet<ExtensionUri>,
}

impl HiddenMetadata {
    /// The metadata of the limited extensions that are not active for the reader.
    pub(crate) fn of(installed: &Installed, is_active: impl Fn(&Extension) -> bool) -> Self {
        let is_hidden = |extension: &&Arc<Extension>| {
            installed.selection_of(extension).readers == Readers::Active && !is_active(extension)
        };
        let (hidden, shown): (Vec<_>, Vec<_>) = installed.iter().partition(is_hidden);
        let keys = |extension: &Arc<Extension>| extension.descriptor().metadata_keys.clone();
        let mut of_hidden: HashSet<String> = hidden.iter().flat_map(|extension| keys(extension)).collect();
        // A component that is installed under two URIs owns the same keys twice. The reader may see one of the two.
        for key in shown.iter().flat_map(|extension| &extension.descriptor().metadata_keys) {
            of_hidden.remove(key);
        }
        Self::new(of_hidden, hidden.into_iter().map(|extension| extension.uri().clone()).collect())
    }

    fn new(keys: HashSet<String>, uris: HashSet<ExtensionUri>) -> Self {
        let is_empty = keys.is_empty() && uris.is_empty();
        Self((!is_empty).then(|| Arc::new(Hidden { keys, uris })))
    }

    /// True if the reader sees everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// True if the event has metadata that the reader does not see.
    pub(crate) fn is_in(&self, event: &StreamResponse) -> bool {
        let Some(hidden) = &self.0 else { return false };
        match event {
            StreamResponse::Task(task) => hidden.is_in_task(task),
            StreamResponse::Message(message) => hidden.is_in_message(message),
            StreamResponse::StatusUpdate(update) => {
                hidden.has_key_of(&update.metadata)
                    || update.status.message.iter().any(|message| hidden.is_in_message(message))
            }
            StreamResponse::ArtifactUpdate(update) => {
                hidden.has_key_of(&update.metadata) || hidden.is_in_artifact(&update.artifact)
            }
        }
    }

    /// Removes the metadata from an event.
    pub(crate) fn leave_out(&self, event: &mut StreamResponse) {
        let Some(hidden) = &self.0 else { return };
        match event {
            StreamResponse::Task(task) => hidden.leave_out_of_task(task),
            StreamResponse::Message(message) => hidden.leave_out_of_message(message),
            StreamResponse::StatusUpdate(update) => {
                hidden.leave_out_of_metadata(&mut update.metadata);
                update.status.message.iter_mut().for_each(|message| hidden.leave_out_of_message(message));
            }
            StreamResponse::ArtifactUpdate(update) => {
                hidden.leave_out_of_metadata(&mut update.metadata);
                hidden.leave_out_of_artifact(&mut update.artifact);
            }
        }
    }

    /// Removes the metadata from a task: its own, that of its messages and artifacts, and that of their parts.
    pub(crate) fn leave_out_of_task(&self, task: &mut Task) {
        if let Some(hidden) = &self.0 {
            hidden.leave_out_of_task(task);
        }
    }

    /// Removes the metadata from a message and its parts.
    pub(crate) fn leave_out_of_message(&self, message: &mut Message) {
        if let Some(hidden) = &self.0 {
            hidden.leave_out_of_message(message);
        }
    }
}

impl Hidden {
    fn has_key_of(&self, metadata: &Metadata) -> bool {
        metadata.keys().any(|key| self.keys.contains(key))
    }

    fn has_one_of(&self, uris: &[ExtensionUri]) -> bool {
        uris.iter().any(|uri| self.uris.contains(uri))
    }

    fn is_in_parts(&self, parts: &[Part]) -> bool {
        parts.iter().any(|part| self.has_key_of(&part.metadata))
    }

    fn is_in_message(&self, message: &Message) -> bool {
        self.has_key_of(&message.metadata) || self.has_one_of(&message.extensions) || self.is_in_parts(&message.parts)
    }

    fn is_in_artifact(&self, artifact: &Artifact) -> bool {
        self.has_key_of(&artifact.metadata)
            || self.has_one_of(&artifact.extensions)
            || self.is_in_parts(&artifact.parts)
    }

    fn is_in_task(&self, task: &Task) -> bool {
        self.has_key_of(&task.metadata)
            || task.history.iter().chain(&task.status.message).any(|message| self.is_in_message(message))
            || task.artifacts.iter().any(|artifact| self.is_in_artifact(artifact))
    }

    fn leave_out_of_metadata(&self, metadata: &mut Metadata) {
        metadata.retain_keys(|key| !self.keys.contains(key));
    }

    fn leave_out_of_parts(&self, parts: &mut Parts) {
        // Parts are shared with the stored task. They are copied only if one of them changes.
        if self.is_in_parts(parts) {
            parts.iter_mut().for_each(|part| self.leave_out_of_metadata(&mut part.metadata));
        }
    }

    fn leave_out_of_message(&self, message: &mut Message) {
        self.leave_out_of_metadata(&mut message.metadata);
        self.leave_out_of_parts(&mut message.parts);
        message.extensions.retain(|uri| !self.uris.contains(uri));
    }

    fn leave_out_of_artifact(&self, artifact: &mut Artifact) {
        self.leave_out_of_metadata(&mut artifact.metadata);
        self.leave_out_of_parts(&mut artifact.parts);
        artifact.extensions.retain(|uri| !self.uris.contains(uri));
    }

    fn leave_out_of_task(&self, task: &mut Task) {
        self.leave_out_of_metadata(&mut task.metadata);
        let messages = task.history.iter_mut().chain(&mut task.status.message);
        messages.for_each(|message| self.leave_out_of_message(message));
        task.artifacts.iter_mut().for_each(|artifact| self.leave_out_of_artifact(artifact));
    }
}

#[cfg(test)]
mod tests;
