//! The messages that google-adk's RemoteA2aAgent sends to a remote agent, for the events of a session.
//!
//! Annex needs three parts for the same messages. `session-sharing` sends the agent the events that it has missed. The
//! client's session provides the context and the task of a message. A server in front (`kind = "upstream"`) replaces
//! these ids by the agent's own. Each message with an answer is a turn, and so is the last message, whose request is
//! compared. The comparison ignores the introductions of quoted texts, which google-adk repeats before each quote, and
//! the mark `is_user_input`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use annex_client::ClientSession;
use annex_protocol::{Json, Message, StreamResponse};
use annex_test_support::{STATE_INJECTION, STATE_KEY, TestServer};
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};

use super::{Deviation, Placeholders, compare, recorded, text};
use crate::sharing::{AGENT, Program, SERVER_HALF, URI};
use crate::state_injection;
use crate::upstream::config;
use crate::upstream::foreign::{card_of, result, serve};

const CASES: &str = include_str!("../../data/remote_delta.json");
const STATE_GRANT: &str = "session-state = { read = true }";
/// The name of the remote agent in the recording.
const REMOTE: &str = "remote";

const DEVIATIONS: &[Deviation] = &[
    Deviation {
        case: "remote/remote_event_without_metadata",
        reason: "the conversation is with the server in front, which knows what was answered, whatever the answer names",
        instead: &[("/parts", r#"[{"text": "u2"}]"#)],
    },
    Deviation {
        case: "remote/remote_meta_without_context_full_history",
        reason: "what the agent said itself is quoted to it, as what others said",
        instead: &[("/parts/1/text", QUOTED)],
    },
    Deviation {
        case: "remote/forward_session_id_namespaced",
        reason: "the agent names its contexts itself and is told none of the names that are in use here",
        instead: &[("/context_id", "null")],
    },
];

const QUOTED: &str = r#""[remote] said:\n<<<BEGIN_QUOTED_AGENT_CONTENT>>>\na1\n<<<END_QUOTED_AGENT_CONTENT>>>""#;

#[tokio::test]
async fn an_agent_elsewhere_is_sent_what_adk_sends_it_but_for_the_deviations() {
    for case in recorded(CASES, 14, DEVIATIONS) {
        let events = case.input["events"].as_array().expect("events");
        let mode = match case.input["options"]["full_history_when_stateless"].as_bool() {
            Some(true) => "full",
            _ => "delta",
        };
        let mut wanted = case.expected.clone();
        wanted["parts"] = heard(&wanted["parts"]);
        compare(&case.case, &play(events, mode).await, &wanted, DEVIATIONS, &Placeholders::default());
    }
}

#[tokio::test]
async fn after_a_request_that_failed_a_task_that_waited_is_not_continued() {
    let failed = json!({"author": REMOTE, "parts": [], "error_message": "boom"});
    let seen = play(&[said("u1"), asked(&json!("ctx-1")), said("u2"), failed, said("u3")], "delta").await;
    let wanted = json!({"parts": [{"text": "u3"}], "context_id": "ctx-1", "task_id": null, "sent": true});
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn a_task_that_waits_is_continued_also_when_the_agent_names_no_context() {
    let seen = play(&[said("u1"), asked(&Value::Null), said("u2")], "delta").await;
    let wanted = json!({"parts": [{"text": "u2"}], "context_id": null, "task_id": "t1", "sent": true});
    assert_eq!(seen, wanted);
}

/// An event of the user, as recordings have it.
fn said(text: &str) -> Value {
    json!({"author": "user", "parts": [{"text": text}]})
}

/// The remote agent asks something back.
fn asked(context: &Value) -> Value {
    let response = json!({"id": "t1", "contextId": context, "status": {"state": "TASK_STATE_INPUT_REQUIRED"}});
    json!({"author": REMOTE, "parts": [{"text": "which?"}], "custom_metadata": {"a2a:response": response}})
}

/// Plays the turns of a conversation that is shared in this mode. Returns the agent's last request.
async fn play(events: &[Value], mode: &str) -> Value {
    let remote = Arc::new(Remote::of(events));
    let front = front_of(&remote).await;
    let mut caller = Caller { program: Program::new().await, session: ClientSession::new() };
    for (number, event) in events.iter().enumerate().filter(|(number, _)| is_turn(events, *number)) {
        let reply = caller.say(&front, &input(events, number, mode), event).await;
        let answer = events.get(number + 1).and_then(|event| event["parts"][0]["text"].as_str());
        assert!(reply.contains(answer.unwrap_or_default()), "{reply}");
    }
    if events.is_empty() {
        let nothing = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": []}}).to_string();
        let refused = front.call("SendMessage", nothing).send().await.expect("a reply");
        assert_eq!(refused.code(), -32602, "{}", refused.text);
    }
    remote.last_request()
}

/// True if the remote agent answers event `number`: the event is the user's, and an answer of the agent is recorded
/// before the user's next event. The user's last event always counts.
fn is_turn(events: &[Value], number: usize) -> bool {
    let is_user = |event: &Value| event["author"] == "user";
    let later = &events[number + 1..];
    let until = later.iter().position(is_user);
    is_user(&events[number]) && until.is_none_or(|until| later[..until].iter().any(|event| event["author"] == REMOTE))
}

/// The input of `session-sharing` for the user's event `number`: all events before its answer.
fn input(events: &[Value], number: usize, mode: &str) -> Value {
    let answer = events.iter().enumerate().position(|(other, event)| other > number && event["author"] == REMOTE);
    let event = |(number, event): (usize, &Value)| {
        let author = &event["author"];
        let role = if author == "user" { "user" } else { "agent" };
        let agent = (author == REMOTE).then_some(AGENT);
        let state = &event["state_delta"];
        json!({"seq": number + 1, "author": author, "role": role, "agent": agent, "parts": event["parts"], "stateDelta": state})
    };
    let before = &events[..answer.unwrap_or(events.len())];
    let mut shared: Vec<Value> = before.iter().enumerate().map(event).collect();
    for event in shared.iter_mut().filter_map(Value::as_object_mut) {
        event.retain(|_, value| !value.is_null());
    }
    json!({"mode": mode, "peer": "app/user/sess-1", "events": shared, "current": number + 1})
}

/// The client of the conversation.
struct Caller {
    program: Program,
    session: ClientSession,
}

impl Caller {
    /// Sends the event's text and state delta. Returns the answer.
    async fn say(&mut self, front: &TestServer, input: &Value, event: &Value) -> String {
        let words = text(&event["parts"][0]["text"]);
        let (mut call, params) = self.program.begin(front, input, &words).await.expect("the call may be made");
        let mut message: Message = serde_json::from_value(params["message"].clone()).expect("a message");
        self.session.place(&mut message);
        let state = event["state_delta"].as_object().filter(|state| !state.is_empty());
        if let Some(state) = state {
            let state = Json::parse(Value::from(state.clone()).to_string()).expect("JSON");
            message.metadata.insert(STATE_KEY.to_owned(), state);
        }
        let request = front.call("SendMessage", json!({"message": message}).to_string()).extensions(URI);
        let request = if state.is_some() { request.extensions(STATE_INJECTION) } else { request };
        let reply = request.send().await.expect("a reply");
        let answer: StreamResponse = serde_json::from_value(reply.body["result"].clone()).expect("an answer");
        call.after(&answer, true).await.expect("no fault");
        self.session.follow(&answer).expect("the same context");
        self.program.context = self.session.context_id().map(ToString::to_string);
        reply.text
    }
}

/// The agent of the recording. It uses the version of the recorded answers.
struct Remote {
    is_older: bool,
    /// The answers of the agent, in order. A request without an answer fails.
    answers: Mutex<VecDeque<Option<Value>>>,
    /// The received messages, with the metadata of their requests.
    requests: Mutex<Vec<Value>>,
}

impl Remote {
    fn of(events: &[Value]) -> Self {
        let is_older = events.iter().any(|event| state_of(event).is_some_and(|state| !state.starts_with("TASK_")));
        let answers = events.iter().filter(|event| event["author"] == REMOTE);
        let answers = answers.map(|event| event["error_message"].is_null().then(|| answer_of(event, is_older)));
        Self { is_older, answers: Mutex::new(answers.collect()), requests: Mutex::default() }
    }

    fn answer(&self, body: &str) -> Response {
        let request: Value = serde_json::from_str(body).expect("JSON");
        self.requests.lock().expect("a lock").push(request["params"].clone());
        match self.answers.lock().expect("a lock").pop_front().flatten() {
            Some(answer) => result(&answer),
            None => StatusCode::BAD_GATEWAY.into_response(),
        }
    }

    /// The last request in the form of the recordings. Checks that no request contains the session's state or anything
    /// else besides parts.
    fn last_request(&self) -> Value {
        let requests = self.requests.lock().expect("a lock");
        for request in requests.iter() {
            let metadata = [&request["metadata"], &request["message"]["metadata"]];
            let is_empty = |metadata: &&Value| metadata.as_object().is_none_or(serde_json::Map::is_empty);
            assert!(metadata.iter().all(is_empty), "{request}");
        }
        let message = requests.last().map_or(&Value::Null, |request| &request["message"]);
        let context = &message["contextId"];
        let task = &message["taskId"];
        json!({"parts": heard(&message["parts"]), "context_id": context, "task_id": task, "sent": !requests.is_empty()})
    }
}

fn state_of(event: &Value) -> Option<&str> {
    event["custom_metadata"]["a2a:response"]["status"]["state"].as_str()
}

/// The recorded answer of the agent: a message if only a text is recorded, else a task.
fn answer_of(event: &Value, is_older: bool) -> Value {
    let parts = &event["parts"];
    let response = &event["custom_metadata"]["a2a:response"];
    let message = json!({"messageId": "a", "role": "ROLE_AGENT", "parts": parts});
    if response.is_null() {
        return json!({"message": message});
    }
    let id = &response["id"];
    let context = &response["contextId"];
    let state = state_of(event);
    if is_older {
        let parts = json!([{"kind": "text", "text": parts[0]["text"]}]);
        let message = json!({"kind": "message", "messageId": "a", "role": "agent", "parts": parts});
        return json!({"kind": "task", "id": id, "contextId": context, "status": {"state": state, "message": message}});
    }
    let status = json!({"state": state.unwrap_or("TASK_STATE_COMPLETED"), "message": message});
    json!({"task": {"id": id, "contextId": context, "status": status}})
}

/// The texts among the parts, but for what introduces quoted ones.
fn heard(parts: &Value) -> Value {
    let texts = parts.as_array().into_iter().flatten().map(|part| &part["text"]);
    let own = texts.filter(|text| !text.as_str().is_some_and(|text| text.starts_with("For context:")));
    own.map(|text| json!({"text": text})).collect()
}

/// A server in front of the agent, which has the extensions of the conversation.
async fn front_of(remote: &Arc<Remote>) -> TestServer {
    let version = if remote.is_older { "0.3" } else { "1.0" };
    let remote = Arc::clone(remote);
    let answered = post(move |body: String| std::future::ready(remote.answer(&body)));
    let url = serve(Router::new().route("/a2a/jsonrpc", answered)).await;
    let card = card_of(&url, false, version).await;
    let config = config(&card, &format!("allow_hosts = [{:?}]", url.trim_start_matches("http://")));
    config.with(SERVER_HALF).with(&state_injection(STATE_GRANT)).start().await.expect("the front starts")
}
