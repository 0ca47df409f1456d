//! Removes metadata from messages, events and tasks before an extension sees them. Only entries under the extension's
//! own keys stay. Parts keep all of their metadata, because they are content.

use annex_protocol::{Artifact, ExtensionUri, Json, Message, Metadata, StreamResponse, Task};

/// Removes all metadata of an event whose keys are not in `keys`.
pub(crate) fn retain(event: &mut StreamResponse, keys: &[String]) {
    each_metadata(event, &mut |metadata| retain_keys(metadata, keys));
}

/// Removes all metadata of a task whose keys are not in `keys`.
pub(crate) fn retain_in_task(task: &mut Task, keys: &[String]) {
    of_task(task, &mut |metadata| retain_keys(metadata, keys));
}

/// Removes all metadata of a message whose keys are not in `keys`.
pub(crate) fn retain_in_message(message: &mut Message, keys: &[String]) {
    retain_keys(&mut message.metadata, keys);
}

/// The metadata entries of an event after [`retain`], in order of appearance.
pub(crate) fn entries(event: &mut StreamResponse) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    each_metadata(event, &mut |metadata| {
        let own = metadata.iter().map(|(key, value): (&str, &Json)| (key.to_owned(), value.get().to_owned()));
        entries.extend(own);
    });
    entries
}

/// True if a message or artifact in the event lists the extension as a contributor.
pub(crate) fn has_a_part(event: &StreamResponse, uri: &ExtensionUri) -> bool {
    let in_message = |message: &Message| message.extensions.contains(uri);
    let in_artifact = |artifact: &Artifact| artifact.extensions.contains(uri);
    match event {
        StreamResponse::Task(task) => {
            task.status.message.iter().any(in_message) || task.artifacts.iter().any(in_artifact)
        }
        StreamResponse::Message(message) => in_message(message),
        StreamResponse::StatusUpdate(update) => update.status.message.iter().any(in_message),
        StreamResponse::ArtifactUpdate(update) => in_artifact(&update.artifact),
    }
}

fn retain_keys(metadata: &mut Metadata, keys: &[String]) {
    metadata.retain_keys(|key| keys.iter().any(|own| own == key));
}

/// Calls `visit` for all metadata of the event, in the order of the specification's fields.
fn each_metadata(event: &mut StreamResponse, visit: &mut impl FnMut(&mut Metadata)) {
    match event {
        StreamResponse::Task(task) => of_task(task, visit),
        StreamResponse::Message(message) => visit(&mut message.metadata),
        StreamResponse::StatusUpdate(update) => {
            of_messages(update.status.message.as_mut_slice(), visit);
            visit(&mut update.metadata);
        }
        StreamResponse::ArtifactUpdate(update) => {
            of_artifacts(std::slice::from_mut(&mut update.artifact), visit);
            visit(&mut update.metadata);
        }
    }
}

fn of_task(task: &mut Task, visit: &mut impl FnMut(&mut Metadata)) {
    of_messages(&mut task.history, visit);
    of_messages(task.status.message.as_mut_slice(), visit);
    of_artifacts(&mut task.artifacts, visit);
    visit(&mut task.metadata);
}

fn of_messages(messages: &mut [Message], visit: &mut impl FnMut(&mut Metadata)) {
    for message in messages {
        visit(&mut message.metadata);
    }
}

fn of_artifacts(artifacts: &mut [Artifact], visit: &mut impl FnMut(&mut Metadata)) {
    for artifact in artifacts {
        visit(&mut artifact.metadata);
    }
}
