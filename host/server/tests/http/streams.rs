//! Streams: order, echo, cancellation, subscribers.

use annex_test_support::{Events, STATE_INJECTION};
use serde_json::{Value, json};

use crate::{ADA, QUESTION, agent, specialist};

/// The kind of an event, in one word.
fn kind(event: &Value) -> String {
    let result = &event["result"];
    let kind = result.as_object().and_then(|object| object.keys().next()).cloned().unwrap_or_default();
    match result["statusUpdate"]["status"]["state"].as_str() {
        Some(state) => state.to_owned(),
        None => kind,
    }
}

async fn task_id(events: &mut Events) -> String {
    let first = events.next().await.expect("an event").expect("a task");
    first["result"]["task"]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_stream_is_task_working_artifact_completed_under_the_clients_id() {
    let server = specialist("").await;
    let events = server.say(QUESTION).state(ADA).streaming().id("42").open().await.expect("a stream");
    assert_eq!(events.extensions.as_deref(), Some(STATE_INJECTION));
    let events = events.rest().await.expect("events");
    let kinds: Vec<_> = events.iter().map(kind).collect();
    assert_eq!(kinds, ["task", "TASK_STATE_WORKING", "artifactUpdate", "TASK_STATE_COMPLETED"]);
    assert!(events.iter().all(|event| event["id"] == 42 && event["jsonrpc"] == "2.0"));
    let update = &events[2]["result"]["artifactUpdate"];
    assert_eq!(update["artifact"]["extensions"][0], STATE_INJECTION);
    assert_eq!(update["lastChunk"], true);
    assert!(update["artifact"]["metadata"][annex_test_support::STATE_KEY]["last_answer"].is_string());
}

#[tokio::test]
async fn chunks_arrive_one_by_one_and_the_task_holds_the_whole() {
    let server = agent("Say something.", "").await;
    let mut events = server.say("slow").streaming().open().await.expect("a stream");
    let id = task_id(&mut events).await;
    let events = events.rest().await.expect("events");
    assert_eq!(events.iter().filter(|event| kind(event) == "artifactUpdate").count(), 4);
    let task = server.call("GetTask", format!(r#"{{"id":"{id}"}}"#)).send().await.expect("a task");
    let parts = task.body["result"]["artifacts"][0]["parts"].as_array().expect("parts").clone();
    let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    assert_eq!(text, "one two three four");
}

#[tokio::test]
async fn cancelling_stops_the_turn_and_ends_every_stream() {
    let server = agent("Say something.", "").await;
    let mut stream = server.say("slow").streaming().open().await.expect("a stream");
    let id = task_id(&mut stream).await;
    let params = format!(r#"{{"id":"{id}"}}"#);
    let subscriber = server.call("SubscribeToTask", params.clone()).open().await.expect("a stream");
    let canceled = server.call("CancelTask", params.clone()).send().await.expect("a reply");
    assert_eq!(canceled.body["result"]["status"]["state"], "TASK_STATE_CANCELED");
    let stream = stream.rest().await.expect("events");
    let subscriber = subscriber.rest().await.expect("events");
    assert_eq!(stream.last().map(kind).as_deref(), Some("TASK_STATE_CANCELED"));
    assert_eq!(subscriber.first().map(kind).as_deref(), Some("task"));
    assert_eq!(subscriber.last(), stream.last());
    let chunks = stream.iter().filter(|event| kind(event) == "artifactUpdate").count();
    assert!(chunks < 4, "the turn went on to its end");
    let again = server.call("CancelTask", params).send().await.expect("a reply");
    assert_eq!(again.code(), -32_002);
}

#[tokio::test]
async fn subscribers_get_the_rest_without_gap_and_a_finished_task_has_none() {
    let server = agent("Say something.", "").await;
    let mut stream = server.say("slow").streaming().open().await.expect("a stream");
    let id = task_id(&mut stream).await;
    let params = format!(r#"{{"id":"{id}"}}"#);
    stream.next().await.expect("an event");
    stream.next().await.expect("an event");
    let late = server.call("SubscribeToTask", params.clone()).open().await.expect("a stream");
    let rest = stream.rest().await.expect("events");
    let late = late.rest().await.expect("events");
    // The late one starts with a snapshot and then sees what the first one still sees, in its order.
    let tail = &late[1..];
    assert!(rest.ends_with(tail) || tail.ends_with(&rest), "{rest:?} {late:?}");
    assert_eq!(late.last().map(kind).as_deref(), Some("TASK_STATE_COMPLETED"));
    let over = server.call("SubscribeToTask", params).send().await.expect("a reply");
    assert_eq!(over.code(), -32_004);
    let unknown = server.call("SubscribeToTask", r#"{"id":"nobody"}"#).send().await.expect("a reply");
    assert_eq!(unknown.code(), -32_001);
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_stop_the_task() {
    let server = agent("Say something.", "").await;
    let mut stream = server.say("slow").streaming().open().await.expect("a stream");
    let id = task_id(&mut stream).await;
    let params = format!(r#"{{"id":"{id}"}}"#);
    let witness = server.call("SubscribeToTask", params).open().await.expect("a stream");
    drop(stream);
    let events = witness.rest().await.expect("events");
    assert_eq!(events.last().map(kind).as_deref(), Some("TASK_STATE_COMPLETED"));
}

#[tokio::test]
async fn an_event_has_no_line_ends_of_unicode_in_it_on_either_binding_of_either_version() {
    let text = "a\u{85}b\u{2028}c\u{2029}d\u{2026}";
    let server = agent(text, "[server]\na2a_0_3 = true").await;
    let new = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "prompt"}]}});
    let old = json!({"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "prompt"}]}});
    let old_rest = json!({"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "prompt"}]}});
    let rpc = |method: &str, params: &Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    for (path, version, body) in [
        ("/a2a/jsonrpc", "1.0", rpc("SendStreamingMessage", &new)),
        ("/a2a/rest/message:stream", "1.0", new.clone()),
        ("/a2a/jsonrpc", "0.3", rpc("message/stream", &old)),
        ("/a2a/rest/v1/message:stream", "0.3", old_rest),
    ] {
        let request =
            server.client().post(format!("{}{path}", server.url())).header("a2a-version", version).json(&body);
        let sent = request.send().await.expect("a stream").text().await.expect("events");
        assert!(!sent.contains(['\u{85}', '\u{2028}', '\u{2029}']), "{path} {version}");
        assert!(sent.contains("a\\u0085b\\u2028c\\u2029d\u{2026}"), "{path} {version}: {sent}");
    }
}
