//! Answers of a `response` hook into the check of its patch. The first line of the input is the kind of event, each
//! further line is an entry `key=value`.
//!
//! A refused patch changes nothing. An accepted patch changes the extension's own keys and adds its URI, nothing else,
//! and clients can still read the event.

#![no_main]

use annex_protocol::{
    Artifact, ExtensionUri, Json, JsonObject, Message, Metadata, Part, StreamResponse, Task, TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
};
use annex_runtime::{Descriptor, Events, apply_patch};
use libfuzzer_sys::fuzz_target;

const OWN: [&str; 2] = ["own/first", "own/second"];
const URI: &str = "https://annex.example/fuzz/v1";

fn descriptor() -> Descriptor {
    Descriptor {
        uri: URI.into(),
        name: String::new(),
        version: String::new(),
        description: String::new(),
        parameter_schema: None,
        metadata_keys: OWN.map(ToOwned::to_owned).to_vec(),
        depends_on: Vec::new(),
        events: Events { message: true, status: true, artifact: true },
        payload: false,
    }
}

fn event(kind: &str) -> StreamResponse {
    let metadata = Metadata::parse(r#"{"someone/else": {"kept": 1.0}, "own/first": "before"}"#).expect("an object");
    let message = Message { message_id: "m".into(), parts: vec![Part::text("hello")], metadata, ..Message::default() };
    match kind {
        "message" => StreamResponse::Message(message),
        "status" => {
            let mut update = TaskStatusUpdateEvent { metadata: message.metadata, ..TaskStatusUpdateEvent::default() };
            update.task_id = "t".into();
            StreamResponse::StatusUpdate(update)
        }
        "status-message" => {
            let mut update = TaskStatusUpdateEvent::default();
            update.status.message = Some(message);
            StreamResponse::StatusUpdate(update)
        }
        "task" => StreamResponse::Task(Task { id: "t".into(), metadata: message.metadata, ..Task::default() }),
        _ => {
            let Message { metadata, parts, .. } = message;
            let artifact = Artifact { artifact_id: "a".into(), parts, metadata, ..Artifact::default() };
            StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent { artifact, ..TaskArtifactUpdateEvent::default() })
        }
    }
}

type Open<'a> = (&'a mut Metadata, Option<&'a mut Vec<ExtensionUri>>);

/// The fields of an event that a patch may change.
fn open(event: &mut StreamResponse) -> Open<'_> {
    match event {
        StreamResponse::Message(message) => (&mut message.metadata, Some(&mut message.extensions)),
        StreamResponse::ArtifactUpdate(update) => {
            (&mut update.artifact.metadata, Some(&mut update.artifact.extensions))
        }
        StreamResponse::StatusUpdate(update) => match &mut update.status.message {
            Some(message) => (&mut message.metadata, Some(&mut message.extensions)),
            None => (&mut update.metadata, None),
        },
        StreamResponse::Task(task) => (&mut task.metadata, None),
    }
}

/// Takes the extension's own out of the event.
fn without_own(mut event: StreamResponse) -> StreamResponse {
    let (metadata, extensions) = open(&mut event);
    for key in OWN {
        metadata.remove(key);
    }
    if let Some(extensions) = extensions {
        extensions.retain(|uri| uri.as_str() != URI);
    }
    event
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (kind, entries) = text.split_once('\n').unwrap_or((text, ""));
    let entries: Vec<(String, String)> = entries
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let shown = entries.first().and_then(|(_, value)| JsonObject::parse(value).ok()?.to_json().ok());
    let before = event(kind);
    let mut after = before.clone();
    let taken = apply_patch(&mut after, &descriptor(), entries.clone(), shown);
    if taken.is_err() {
        assert_eq!(before, after, "a refused patch changed the event");
        return;
    }
    for (key, _) in &entries {
        assert!(OWN.contains(&key.as_str()), "{key} was written");
        let (metadata, _) = open(&mut after);
        let value = metadata.get(key).expect("the entry");
        Json::parse(value.get().to_owned()).expect("JSON");
    }
    let encoded = serde_json::to_string(&after).expect("an event");
    assert!(!encoded.contains('\n'), "the event breaks its line");
    let decoded: StreamResponse = serde_json::from_str(&encoded).expect("an event that can be read");
    assert_eq!(decoded, after);
    assert_eq!(without_own(before), without_own(after), "it changed what is not its own");
});
