//! Which places of tasks and events lose hidden metadata, and that large tasks need a permit.

use std::collections::HashSet;
use std::sync::Arc;

use annex_protocol::{ExtensionUri, StreamResponse, Task};
use futures::FutureExt;
use serde_json::{Value, json};

use super::HiddenMetadata;
use crate::answer::ShownTask;
use crate::tasks::log::TaskLog;

const URI: &str = "https://example.com/hidden/v1";
const OTHER: &str = "https://example.com/other/v1";

fn hidden() -> HiddenMetadata {
    HiddenMetadata::new(HashSet::from(["hidden".to_owned()]), HashSet::from([ExtensionUri::new(URI)]))
}

fn metadata(has_hidden: bool) -> Value {
    if has_hidden { json!({"other": 1, "hidden": {"k": 2}}) } else { json!({"other": 1}) }
}

fn extensions(has_hidden: bool) -> Value {
    if has_hidden { json!([URI, OTHER]) } else { json!([OTHER]) }
}

fn part(has_hidden: bool) -> Value {
    json!({"text": "hidden", "metadata": metadata(has_hidden)})
}

fn message(id: &str, has_hidden: bool) -> Value {
    json!({
        "messageId": id, "role": "ROLE_AGENT", "parts": [part(has_hidden)],
        "metadata": metadata(has_hidden), "extensions": extensions(has_hidden)
    })
}

fn artifact(has_hidden: bool) -> Value {
    json!({
        "artifactId": "a", "parts": [part(has_hidden)],
        "metadata": metadata(has_hidden), "extensions": extensions(has_hidden)
    })
}

fn status(has_hidden: bool) -> Value {
    json!({"state": "TASK_STATE_INPUT_REQUIRED", "message": message("m-2", has_hidden)})
}

/// A task with metadata in each place where there can be some.
fn task(has_hidden: bool) -> Value {
    json!({
        "id": "t", "contextId": "c", "status": status(has_hidden), "artifacts": [artifact(has_hidden)],
        "history": [message("m-1", has_hidden)], "metadata": metadata(has_hidden)
    })
}

fn events(has_hidden: bool) -> [Value; 4] {
    let (status, artifact, metadata) = (status(has_hidden), artifact(has_hidden), metadata(has_hidden));
    [
        json!({"task": task(has_hidden)}),
        json!({"message": message("m", has_hidden)}),
        json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status, "metadata": metadata}}),
        json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "metadata": metadata}}),
    ]
}

fn event(json: &Value) -> StreamResponse {
    serde_json::from_str(&json.to_string()).expect("an event")
}

fn value<T: serde::Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("JSON")
}

#[test]
fn hidden_metadata_is_left_out_of_each_place_of_an_event_and_the_rest_stays() {
    for (whole, expected) in events(true).iter().zip(events(false)) {
        let mut shown = event(whole);
        assert!(hidden().is_in(&shown), "{whole}");
        hidden().leave_out(&mut shown);
        assert_eq!(value(&shown), expected);
        assert!(!hidden().is_in(&shown), "{expected}");
        HiddenMetadata::default().leave_out(&mut shown);
        assert_eq!(value(&shown), expected);
    }
}

#[test]
fn one_place_with_hidden_metadata_is_enough() {
    for whole in events(true) {
        let text = whole.to_string();
        // One place keeps the key or the URI, and the others get another one.
        for (name, free) in [("\"hidden\":", "\"other-2\":"), (URI, OTHER)] {
            for place in 0..text.matches(name).count() {
                let mut pieces = text.split(name);
                let mut one = pieces.next().unwrap_or_default().to_owned();
                for (number, piece) in pieces.enumerate() {
                    one.push_str(if number == place { name } else { free });
                    one.push_str(piece);
                }
                let event: StreamResponse = serde_json::from_str(&one).expect("an event");
                assert!(hidden().is_in(&event), "{one}");
            }
        }
    }
}

#[tokio::test]
async fn a_reader_gets_events_without_hidden_metadata_and_another_gets_them_as_they_are() {
    let log = Arc::new(TaskLog::default());
    let (mut all, mut limited) = (log.tail(), log.tail().hiding(hidden()));
    for (number, json) in (1..).zip(events(true)) {
        log.append([(number, Arc::new(event(&json)))]);
    }
    log.append([(5, Arc::new(event(&events(false)[2])))]);
    log.close();
    for (number, expected) in (1..).zip(events(true).into_iter().chain([events(false)[2].clone()])) {
        let read = all.next().await.expect("an event");
        assert_eq!((read.seq(), value(read.event())), (Some(number), expected));
    }
    for (number, expected) in (1..).zip(events(false).into_iter().chain([events(false)[2].clone()])) {
        let read = limited.next().await.expect("an event");
        assert_eq!((read.seq(), value(read.event())), (Some(number), expected.clone()));
        assert_eq!(serde_json::from_str::<Value>(read.json()).expect("JSON"), expected);
    }
    assert!(all.next().await.is_none() && limited.next().await.is_none());
}

/// A task whose artifact has a text of this many bytes.
fn task_of(bytes: usize) -> Task {
    let mut large = task(true);
    large["artifacts"][0]["parts"][0]["text"] = "x".repeat(bytes).into();
    serde_json::from_str(&large.to_string()).expect("a task")
}

#[tokio::test]
async fn a_large_task_is_hidden_under_a_permit() {
    let hidden = hidden();
    for (bytes, is_large) in [(10, false), (1 << 20, true)] {
        let mut reading = Box::pin(ShownTask::snapshot(task_of(bytes).into(), None, &hidden));
        // Taking a permit lets other requests run first.
        let first = reading.as_mut().now_or_never();
        assert_eq!(first.is_none(), is_large, "{bytes}");
        let shown = match first {
            Some(shown) => shown,
            None => reading.await,
        };
        let shown = value(&shown.into_task().expect("a task"));
        assert_eq!((&shown["history"], &shown["metadata"]), (&task(false)["history"], &metadata(false)));

        let log = Arc::new(TaskLog::default());
        let mut reader = log.tail().hiding(hidden.clone());
        log.append([(1, Arc::new(StreamResponse::Task(task_of(bytes))))]);
        let mut next = Box::pin(reader.next());
        let first = next.as_mut().now_or_never();
        assert_eq!(first.is_none(), is_large, "{bytes}");
        let read = match first {
            Some(read) => read,
            None => next.await,
        };
        assert!(!hidden.is_in(read.expect("an event").event()));
    }
}
