//! Compares sessions with the recorded behaviour of two systems: Microsoft's agent framework (`data/ms_session.json`),
//! whose rules Annex follows, and google-adk's RemoteA2aAgent (`remote_delta.json`). Both were recorded in November
//! 2026. Deliberate differences are listed.
//!
//! A session knows only context and task. The server's tests (`host/server/tests/http/cases/remote.rs`) cover the
//! recorded texts and the content of messages.

use annex_client::ClientSession;
use annex_protocol::StreamResponse;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::sessions::next;

const OF_MICROSOFT: &str = include_str!("../data/ms_session.json");
const OF_ADK: &str = include_str!("../../../server/tests/data/remote_delta.json");

/// Microsoft's cases that do not concern Annex's session.
const NOT_OF_A_SESSION: &[(&str, &str)] = &[
    ("ms/forwarded_kwargs_allowlisted", "the request's metadata is written by the program that calls"),
    ("ms/forwarded_kwargs_nan", "JSON has no such number, so the request's metadata cannot have it"),
    ("ms/serialize_legacy_A2AAgentSession", "a class that is kept there for older programs"),
];

/// Cases of google-adk in which Annex deliberately differs: the name of the case, the reason, and the fields that Annex
/// sets in the message.
const DEVIATIONS: &[(&str, &str, &str)] = &[
    ("remote/forward_session_id_namespaced", "a program that wants a context of its own begins with it", "{}"),
    ("remote/delta_with_other_agents_between", REFERS, REFERENCE),
    ("remote/forward_session_id_but_context_known", REFERS, REFERENCE),
];
const REFERS: &str = "a task that is over is referred to, as in Microsoft's framework";
const REFERENCE: &str = r#"{"contextId": "ctx-1", "referenceTaskIds": ["t1"]}"#;

#[derive(Deserialize)]
struct Case {
    case: String,
    input: Value,
    expected: Value,
}

fn cases(text: &str, count: usize) -> Vec<Case> {
    let cases: Vec<Case> = serde_json::from_str(text).expect("cases");
    assert_eq!(cases.len(), count);
    cases
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

#[test]
fn a_session_places_messages_and_follows_answers_as_microsofts_does() {
    let mut played = 0;
    let is_listed = |case: &Case| NOT_OF_A_SESSION.iter().any(|(name, _)| *name == case.case);
    let cases = cases(OF_MICROSOFT, 21);
    for case in cases.iter().filter(|case| !is_listed(case)) {
        match case.input.get("server_turns") {
            Some(turns) => play(case, list(turns)),
            None => keep(case),
        }
        played += 1;
    }
    assert_eq!(played + NOT_OF_A_SESSION.len(), cases.len(), "each listed case is one");
}

/// Places a message and follows the answer, turn by turn.
fn play(Case { case, input, expected }: &Case, turns: &[Value]) {
    let mut session = restored(&input["initial_service_session_id"]);
    for (turn, (events, expected_of)) in turns.iter().zip(list(&expected["turns"])).enumerate() {
        assert_eq!(next(&session), expected["sent_messages"][turn], "{case}, turn {turn}");
        let followed: Result<Vec<()>, _> = list(events).iter().map(|event| session.follow(&answer(event))).collect();
        assert_eq!(followed.is_err(), expected_of.get("error").is_some(), "{case}, turn {turn}");
        assert_eq!(session, restored(&expected_of["session_after"]), "{case}, turn {turn}");
    }
}

/// Writes the session as JSON and reads it back. The JSON contains the task's state by name, not by number.
fn keep(Case { case, input, expected }: &Case) {
    let session = restored(&input["service_session_id"]);
    let kept = serde_json::to_string(&session).expect("JSON");
    let again: ClientSession = serde_json::from_str(&kept).expect("a session");
    assert_eq!(again, restored(&expected["roundtrip"]), "{case}");
    assert_ne!(again, ClientSession::new(), "{case}");
}

/// A session from a recorded value: `null` for none, a string with the context id, or an object.
fn restored(recorded: &Value) -> ClientSession {
    if let Some(context) = recorded.as_str() {
        return ClientSession::in_context(context.into()).expect("a session");
    }
    let own_names = [("context_id", "contextId"), ("task_id", "taskId"), ("task_state", "taskState")];
    let known = own_names.into_iter().filter(|(name, _)| recorded.get(name).is_some_and(|value| !value.is_null()));
    let stored: Map<String, Value> = known.map(|(name, own)| (own.to_owned(), recorded[name].clone())).collect();
    serde_json::from_str(&Value::from(stored).to_string()).expect("a session")
}

fn answer(event: &Value) -> StreamResponse {
    serde_json::from_str(&event.to_string()).expect("an event")
}

#[test]
fn a_session_knows_context_and_task_as_adk_does_but_for_the_deviations() {
    let cases = cases(OF_ADK, 14);
    for (name, ..) in DEVIATIONS {
        assert!(cases.iter().any(|case| case.case == *name), "{name} is no case");
    }
    for Case { case, input, expected } in cases {
        let mut session = ClientSession::new();
        for event in list(&input["events"]).iter().filter_map(answered) {
            session.follow(&event).expect("the same context");
        }
        let ids = [("contextId", &expected["context_id"]), ("taskId", &expected["task_id"])];
        let known = ids.into_iter().filter(|(_, id)| !id.is_null());
        let recorded: Value = known.map(|(name, id)| (name.to_owned(), id.clone())).collect();
        let Some((_, reason, instead)) = DEVIATIONS.iter().find(|(name, ..)| *name == case) else {
            assert_eq!(next(&session), recorded, "{case}");
            continue;
        };
        assert_ne!(next(&session), recorded, "{case} does not differ: {reason}");
        assert_eq!(next(&session), serde_json::from_str::<Value>(instead).expect("JSON"), "{case}: {reason}");
    }
}

/// The event with the remote agent's recorded task; `None` if the recorded event has no task.
fn answered(event: &Value) -> Option<StreamResponse> {
    let response = event["custom_metadata"].get("a2a:response")?;
    let state = match response["status"]["state"].as_str() {
        None => "TASK_STATE_COMPLETED",
        // The name in 0.3. The transport translates it before the session sees the event.
        Some("input-required") => "TASK_STATE_INPUT_REQUIRED",
        Some(state) => state,
    };
    let status = json!({"state": state});
    let id = &response["id"];
    let context = &response["contextId"];
    Some(answer(&json!({"task": {"id": id, "contextId": context, "status": status}})))
}
