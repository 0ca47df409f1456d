//! Sessions of the client, beside what other systems' were seen to do (`cases.rs`).

use annex_client::ClientSession;
use annex_protocol::{Message, StreamResponse};
use serde_json::{Value, json};

/// The fields of the next message that the session decides.
pub(crate) fn next(session: &ClientSession) -> Value {
    let mut message = Message::default();
    session.place(&mut message);
    let message = serde_json::to_value(message).expect("JSON");
    let decided = |(name, _): &(&String, &Value)| ["contextId", "taskId", "referenceTaskIds"].contains(&name.as_str());
    message
        .as_object()
        .expect("an object")
        .iter()
        .filter(decided)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn event(json: Value) -> StreamResponse {
    serde_json::from_value(json).expect("an event")
}

#[test]
fn a_restored_session_goes_on_as_the_one_that_was_kept() {
    for state in ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED", "TASK_STATE_FAILED"] {
        let mut session = ClientSession::new();
        session
            .follow(&event(json!({"task": {"id": "t", "contextId": "c", "status": {"state": state}}})))
            .expect("followed");
        let kept = serde_json::to_string(&session).expect("JSON");
        assert_eq!(kept, format!(r#"{{"contextId":"c","taskId":"t","taskState":"{state}"}}"#));
        let restored: ClientSession = serde_json::from_str(&kept).expect("a session");
        assert_eq!((&restored, next(&restored)), (&session, next(&session)));
    }
    assert_eq!(serde_json::to_string(&ClientSession::new()).expect("JSON"), "{}");
}

#[test]
fn an_answer_in_another_context_changes_nothing() {
    let mut session = ClientSession::in_context("c".into()).expect("a session");
    let before = session.clone();
    let artifact = json!({"artifactId": "a", "parts": [{"text": "x"}]});
    for other in [
        json!({"task": {"id": "t", "contextId": "d", "status": {"state": "TASK_STATE_COMPLETED"}}}),
        json!({"statusUpdate": {"taskId": "t", "contextId": "d", "status": {"state": "TASK_STATE_WORKING"}}}),
        json!({"artifactUpdate": {"taskId": "t", "contextId": "d", "artifact": artifact}}),
        json!({"message": {"messageId": "m", "contextId": "d", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}}),
    ] {
        let error = session.follow(&event(other)).expect_err("another context").to_string();
        assert!(error.contains("context d") && error.contains("context c"), "{error}");
        assert_eq!(session, before);
    }
}

#[test]
fn an_artifact_of_another_task_does_not_inherit_its_state() {
    let mut session = ClientSession::new();
    let asks = json!({"task": {"id": "t1", "contextId": "c", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}});
    session.follow(&event(asks)).expect("followed");
    let artifact = |task: &str| {
        let artifact = json!({"artifactId": "a", "parts": [{"text": "x"}]});
        event(json!({"artifactUpdate": {"taskId": task, "contextId": "c", "artifact": artifact}}))
    };
    session.follow(&artifact("t1")).expect("followed");
    assert!(session.awaits_input());
    session.follow(&artifact("t2")).expect("followed");
    assert_eq!(next(&session), json!({"contextId": "c", "referenceTaskIds": ["t2"]}));
}

#[test]
fn blank_ids_and_halves_of_a_session_are_refused() {
    for (text, expected) in [
        (r#"{"contextId":" "}"#, "contextId is blank"),
        (r#"{"contextId":"c","taskId":"\t"}"#, "taskId is blank"),
        (r#"{"taskId":"t"}"#, "taskId needs contextId"),
        (r#"{"contextId":"c","taskState":"TASK_STATE_WORKING"}"#, "taskState needs taskId"),
        (r#"{"contextId":"c","taskId":"t","taskState":"DONE"}"#, "DONE"),
        (r#"{"context":"c"}"#, "unknown field"),
        (r#"["c","t","TASK_STATE_WORKING"]"#, "a JSON object"),
    ] {
        let error = serde_json::from_str::<ClientSession>(text).expect_err("refused").to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
