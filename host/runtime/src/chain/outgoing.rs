//! Converts outgoing events for the hook `response`, and checks the metadata that the hook returns.

use annex_protocol::{ExtensionUri, Json, Metadata, StreamResponse, TaskStatusUpdateEvent};

use crate::chain::owned_metadata;
use crate::contract::{Event, EventKind, Events};
use crate::load::descriptor::Descriptor;

/// Converts an event for the guest. `None` if the extension does not subscribe to this kind of event.
pub(crate) fn seen_event(event: &StreamResponse, descriptor: &Descriptor) -> Option<Event> {
    if !is_among(event, descriptor.events) {
        return None;
    }
    let present = || present(event, descriptor);
    let payload = || descriptor.payload.then(|| payload(event, descriptor)).flatten();
    match event {
        StreamResponse::Message(message) => Some(Event {
            kind: EventKind::Message,
            task_id: message.task_id.as_ref().map(ToString::to_string),
            context_id: message.context_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            task_state: None,
            has_message: true,
            last_chunk: true,
            present: present(),
            payload: payload(),
        }),
        StreamResponse::StatusUpdate(update) => Some(Event {
            kind: EventKind::Status,
            task_id: Some(update.task_id.to_string()),
            context_id: update.context_id.to_string(),
            task_state: Some(update.status.state.name().to_owned()),
            has_message: update.status.message.is_some(),
            last_chunk: false,
            present: present(),
            payload: payload(),
        }),
        StreamResponse::ArtifactUpdate(update) => Some(Event {
            kind: EventKind::Artifact,
            task_id: Some(update.task_id.to_string()),
            context_id: update.context_id.to_string(),
            task_state: None,
            has_message: false,
            last_chunk: update.last_chunk,
            present: present(),
            payload: payload(),
        }),
        StreamResponse::Task(_) => None,
    }
}

/// The event as JSON. The metadata of the agent and of other extensions is removed.
fn payload(event: &StreamResponse, descriptor: &Descriptor) -> Option<String> {
    let mut event = event.clone();
    owned_metadata::retain(&mut event, &descriptor.metadata_keys);
    serde_json::to_string(&event).ok()
}

/// True if `wanted` includes events of this kind.
pub(crate) fn is_among(event: &StreamResponse, wanted: Events) -> bool {
    match event {
        StreamResponse::Message(_) => wanted.message,
        StreamResponse::StatusUpdate(_) => wanted.status,
        StreamResponse::ArtifactUpdate(_) => wanted.artifact,
        // The contract does not show whole tasks: the events of the task were shown one by one.
        StreamResponse::Task(_) => false,
    }
}

/// Of an event, the metadata object that extensions may add entries to.
pub(crate) fn metadata_of(event: &StreamResponse) -> &Metadata {
    match event {
        StreamResponse::Message(message) => &message.metadata,
        StreamResponse::ArtifactUpdate(update) => &update.artifact.metadata,
        StreamResponse::StatusUpdate(update) => metadata_of_status(update),
        StreamResponse::Task(task) => &task.metadata,
    }
}

/// Of a status update, the metadata object that extensions may add entries to: that of the status message, or that of
/// the update if there is no message.
pub(crate) fn metadata_of_status(update: &TaskStatusUpdateEvent) -> &Metadata {
    update.status.message.as_ref().map_or(&update.metadata, |message| &message.metadata)
}

fn present(event: &StreamResponse, descriptor: &Descriptor) -> Vec<String> {
    let metadata = metadata_of(event);
    descriptor.metadata_keys.iter().filter(|key| metadata.contains_key(key)).cloned().collect()
}

/// Adds metadata entries of a `response` hook to the event, and lists the extension's URI in the message or artifact.
/// Every key must belong to the extension, and every value must be JSON. `shown` is the value that the host last passed
/// to the guest. If the guest returns this value unchanged, the value is not parsed again.
///
/// # Errors
/// An entry is invalid. The error has the path of the entry and the reason. The event is unchanged then.
pub fn apply_patch(
    event: &mut StreamResponse,
    descriptor: &Descriptor,
    entries: Vec<(String, String)>,
    shown: Option<Json>,
) -> Result<(), String> {
    add(target(event).ok_or("there is nothing to add metadata to")?, descriptor, entries, shown)
}

/// Adds metadata entries to a status update, and lists the extension's URI in the status message. Every key must belong
/// to the extension, and every value must be JSON.
///
/// # Errors
/// An entry is invalid. The error has the path of the entry and the reason. The update is unchanged then.
pub(crate) fn annotate(
    update: &mut TaskStatusUpdateEvent,
    descriptor: &Descriptor,
    entries: Vec<(String, String)>,
) -> Result<(), String> {
    add(status_target(update), descriptor, entries, None)
}

/// Checks the entries, adds them to the metadata, and lists the extension as a contributor to the message or artifact.
fn add(
    (place, metadata, extensions): Target<'_>,
    descriptor: &Descriptor,
    entries: Vec<(String, String)>,
    shown: Option<Json>,
) -> Result<(), String> {
    // All entries are checked before the first is added, so that an error leaves the event unchanged.
    metadata.extend(checked_entries(place, descriptor, entries, shown)?);
    // A status event without a message has no field for extensions.
    if let Some(extensions) = extensions
        && !extensions.contains(&descriptor.uri)
    {
        extensions.push(descriptor.uri.clone());
    }
    Ok(())
}

/// Checks that every key belongs to the extension and every value is JSON. Returns the entries with parsed values.
///
/// # Errors
/// An entry is invalid. The error has the path of the entry and the reason.
pub(crate) fn checked_entries(
    place: &str,
    descriptor: &Descriptor,
    entries: Vec<(String, String)>,
    mut shown: Option<Json>,
) -> Result<Vec<(String, Json)>, String> {
    let mut checked = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        if !descriptor.metadata_keys.contains(&key) {
            return Err(format!("it writes {place}.metadata[{key:?}], which it does not own"));
        }
        // The host wrote `shown` itself, so an unchanged value needs no parsing.
        let value = match shown.take_if(|shown| shown.get() == value) {
            Some(unchanged) => unchanged,
            None => Json::parse(value).map_err(|error| format!("{place}.metadata[{key:?}] is not JSON: {error}"))?,
        };
        checked.push((key, value));
    }
    Ok(checked)
}

/// The target of added metadata: its name for error messages, its metadata object, and its list of extensions. The list
/// is `None` for a status without a message.
type Target<'a> = (&'static str, &'a mut Metadata, Option<&'a mut Vec<ExtensionUri>>);

fn target(event: &mut StreamResponse) -> Option<Target<'_>> {
    match event {
        StreamResponse::Message(message) => Some(("message", &mut message.metadata, Some(&mut message.extensions))),
        StreamResponse::ArtifactUpdate(update) => {
            Some(("artifact", &mut update.artifact.metadata, Some(&mut update.artifact.extensions)))
        }
        StreamResponse::StatusUpdate(update) => Some(status_target(update)),
        StreamResponse::Task(_) => None,
    }
}

fn status_target(update: &mut TaskStatusUpdateEvent) -> Target<'_> {
    match &mut update.status.message {
        Some(message) => ("status.message", &mut message.metadata, Some(&mut message.extensions)),
        None => ("statusUpdate", &mut update.metadata, None),
    }
}
