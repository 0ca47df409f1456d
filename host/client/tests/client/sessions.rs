//! Sessions of the client, by what Microsoft's agent framework was seen to do (`sessions.json`).

use annex_client::ClientSession;
use annex_protocol::{Message, StreamResponse};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    case: String,
    session: ClientSession,
    /// What the agent answers, turn by turn and event by event.
    turns: Vec<Vec<StreamResponse>>,
    /// What of each message the session decides.
    sent: Vec<Value>,
    /// The session after each turn.
    after: Vec<ClientSession>,
    fails: Vec<bool>,
}

/// The fields of the next message that the session decides.
fn next(session: &ClientSession) -> Value {
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

#[test]
fn a_session_places_messages_and_follows_answers_as_recorded() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("sessions.json")).expect("cases");
    assert_eq!(cases.len(), 17);
    for Case { case, mut session, turns, sent, after, fails } in cases {
        for (turn, events) in turns.iter().enumerate() {
            assert_eq!(next(&session), sent[turn], "{case}, turn {turn}");
            let followed: Result<Vec<()>, _> = events.iter().map(|event| session.follow(event)).collect();
            assert_eq!(followed.is_err(), fails[turn], "{case}, turn {turn}");
            assert_eq!(session, after[turn], "{case}, turn {turn}");
        }
    }
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
