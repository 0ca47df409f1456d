//! Sessions of the client, in situations that the recorded cases (`cases.rs`) do not contain.

use annex_client::{Binding, ClientSession};
use annex_protocol::{Json, Message, StreamResponse};
use serde_json::{Value, json};

use crate::support::{Foreign, agent, card, no_parameters, ok, text};

/// The fields that the session sets in the next message.
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

/// A session whose task waits for input.
fn asked() -> ClientSession {
    let asked = r#"{"contextId":"c","taskId":"t1","taskState":"TASK_STATE_INPUT_REQUIRED"}"#;
    serde_json::from_str(asked).expect("a session")
}

#[tokio::test]
async fn a_task_is_not_continued_after_a_request_that_failed() {
    let refusal = ok("application/json", r#"{"id":1,"error":{"code":-32001,"message":"no such task"}}"#);
    let task = r#"{"id":1,"result":{"task":{"id":"t2","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}}"#;
    for failure in [refusal.as_str(), "HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n", ""] {
        let server = Foreign::start(&[&card(""), failure, &ok("application/json", task)]).await;
        let agent = agent(&server.url, Binding::JsonRpc).await;
        let mut session = asked();
        let mut first = text("seven");
        session.place(&mut first.message);
        assert_eq!(first.message.task_id, Some("t1".into()));
        session.note_failure(&agent.send_message(no_parameters(), first).await.expect_err("it fails"));
        let expected = json!({"contextId": "c", "referenceTaskIds": ["t1"]});
        assert_eq!((session.awaits_input(), next(&session)), (false, expected.clone()), "{failure}");
        let kept = serde_json::to_string(&session).expect("JSON");
        assert_eq!(next(&serde_json::from_str(&kept).expect("a session")), expected);

        let mut second = text("seven");
        session.place(&mut second.message);
        let answer = agent.send_message(no_parameters(), second).await.expect("an answer").value;
        session.follow(&answer.into()).expect("followed");
        assert_eq!(next(&session), json!({"contextId": "c", "referenceTaskIds": ["t2"]}));
        let sent: Vec<bool> = server.requests().iter().map(|request| request.contains(r#""taskId":"t1""#)).collect();
        assert_eq!(sent, [false, true, false], "{failure}");
    }
}

#[tokio::test]
async fn a_task_that_asks_again_after_a_failed_request_is_continued() {
    let server = Foreign::start(&[&card(""), "HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n"]).await;
    let agent = agent(&server.url, Binding::JsonRpc).await;
    let mut session = asked();
    session.note_failure(&agent.send_message(no_parameters(), text("seven")).await.expect_err("it fails"));
    let asks = json!({"task": {"id": "t1", "contextId": "c", "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}});
    session.follow(&event(asks)).expect("followed");
    assert_eq!(next(&session), json!({"contextId": "c", "taskId": "t1"}));
}

#[tokio::test]
async fn a_request_that_was_never_sent_does_not_end_the_wait_of_a_task() {
    let grpc = card("").replace("JSONRPC", "GRPC");
    let server = Foreign::start(&[&grpc]).await;
    let agent = agent(&server.url, Binding::Grpc).await;
    let mut session = asked();
    let mut request = text("seven");
    request.message.metadata.insert("n".to_owned(), Json::parse("9007199254740993".to_owned()).expect("JSON"));
    session.note_failure(&agent.send_message(no_parameters(), request).await.expect_err("it is not carried"));
    assert_eq!(session, asked());
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
