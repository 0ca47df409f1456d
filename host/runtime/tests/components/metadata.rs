//! Metadata that an extension adds to outgoing events: only its own keys, on any kind of event.

use annex_protocol::{Message, Metadata, Part, StreamResponse, TaskState, TaskStatus, TaskStatusUpdateEvent};
use annex_runtime::{Fault, Hook};

use crate::support::{RESPONSE_KEY, Turn, artifact, runtime, test_extension, with_parameters};

fn message() -> Message {
    let mut message = Message::agent("c-1".into(), None, vec![Part::text("answer")]);
    message.metadata = Metadata::parse(r#"{"agent/key": 1}"#).expect("a JSON object");
    message
}

fn status(message: Option<Message>) -> StreamResponse {
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        status: TaskStatus { state: TaskState::Working, message, timestamp: None },
        ..TaskStatusUpdateEvent::default()
    })
}

/// One event of each kind, and the path of its metadata.
fn events() -> [(StreamResponse, &'static str); 4] {
    [
        (StreamResponse::Message(message()), "message"),
        (StreamResponse::ArtifactUpdate(artifact()), "artifact"),
        (status(Some(message())), "status.message"),
        (status(None), "statusUpdate"),
    ]
}

fn json(event: &StreamResponse) -> String {
    serde_json::to_string(event).expect("JSON")
}

/// Checks that the patch is refused with the path, and that the event is unchanged.
async fn check_refused(command: &str, key: &str) {
    let extensions = [test_extension(&runtime(), with_parameters("{}")).await];
    for (mut event, place) in events() {
        let before = json(&event);
        let mut chain = Turn::commanding(&format!(r#"{{"respond": "{command}"}}"#)).chain(&extensions).await;
        let fault = chain.run_response_hooks(&mut event).await.expect_err("the patch is refused");
        let Fault::BrokeContract { hook: Hook::Response, reason, .. } = fault else { unreachable!("{fault:?}") };
        assert!(reason.contains(&format!("{place}.metadata[{key:?}]")), "{reason}");
        assert_eq!(json(&event), before);
    }
}

#[tokio::test]
async fn a_key_of_somebody_else_is_refused_with_its_path_on_every_kind_of_event() {
    check_refused("foreign-key", "someone/else").await;
}

#[tokio::test]
async fn a_value_that_is_no_json_is_refused_with_its_path_on_every_kind_of_event() {
    check_refused("bad-json", RESPONSE_KEY).await;
}

#[tokio::test]
async fn an_event_is_shown_without_the_metadata_of_others() {
    let extensions = [test_extension(&runtime(), with_parameters(r#"{"payload": true}"#)).await];
    for (mut event, place) in events() {
        let metadata = metadata(&mut event);
        *metadata = Metadata::parse(r#"{"agent/key": "hidden", "test/response": "own"}"#).expect("a JSON object");
        let mut chain = Turn::commanding(r#"{"respond": "payload"}"#).chain(&extensions).await;
        chain.run_response_hooks(&mut event).await.expect("no fault");
        let metadata = self::metadata(&mut event);
        let shown = metadata.get(RESPONSE_KEY).expect("the payload").get().to_owned();
        assert!(shown.contains("own") && !shown.contains("hidden"), "{place}: {shown}");
        assert!(metadata.contains_key("agent/key"), "{place}");
    }
}

/// The metadata of an event that extensions write to.
fn metadata(event: &mut StreamResponse) -> &mut Metadata {
    match event {
        StreamResponse::Message(message) => &mut message.metadata,
        StreamResponse::ArtifactUpdate(update) => &mut update.artifact.metadata,
        StreamResponse::StatusUpdate(update) => match &mut update.status.message {
            Some(message) => &mut message.metadata,
            None => &mut update.metadata,
        },
        StreamResponse::Task(_) => unreachable!("no task was sent"),
    }
}

#[tokio::test]
async fn an_own_key_is_all_that_changes() {
    let extensions = [test_extension(&runtime(), with_parameters("{}")).await];
    for (mut event, place) in events() {
        let before = json(&event);
        Turn::with("{}").chain(&extensions).await.run_response_hooks(&mut event).await.expect("no fault");
        assert_ne!(json(&event), before, "{place}");
        let (metadata, extensions) = match &mut event {
            StreamResponse::Message(message) => (&mut message.metadata, Some(&mut message.extensions)),
            StreamResponse::ArtifactUpdate(update) => {
                (&mut update.artifact.metadata, Some(&mut update.artifact.extensions))
            }
            StreamResponse::StatusUpdate(update) => match &mut update.status.message {
                Some(message) => (&mut message.metadata, Some(&mut message.extensions)),
                None => (&mut update.metadata, None),
            },
            StreamResponse::Task(_) => unreachable!("no task was sent"),
        };
        assert!(metadata.remove(RESPONSE_KEY).is_some(), "{place}");
        if let Some(extensions) = extensions {
            assert_eq!(extensions.len(), 1, "{place}");
            extensions.clear();
        }
        assert_eq!(json(&event), before, "{place}");
    }
}
