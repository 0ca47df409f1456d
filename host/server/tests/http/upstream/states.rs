//! The session's state on its way to the upstream, and back.

use std::sync::{Arc, Mutex};

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::{Reply, STATE_INJECTION, STATE_KEY, TestServer};
use serde_json::{Value, json};

use super::foreign::{agent, result, stream};
use super::{config, mirror, seen};
use crate::state_injection;

/// A front with state injection, which may see the session's state.
async fn front(url: &str, state: &str) -> TestServer {
    let agent = format!("[agent.state]\n{state}");
    let extension = state_injection("session-state = { read = true }");
    config(url, &agent).with(&extension).start().await.expect("the front starts")
}

async fn told(front: &TestServer) -> Reply {
    let reply = front.say("hello").context("c").state(r#"{"name":"Ada","n":1.50}"#).send().await;
    reply.expect("a reply")
}

#[tokio::test]
async fn state_is_sent_where_the_config_says() {
    let mirror = mirror("").await;
    let state = json!({"name": "Ada", "n": 1.5});
    let check = async |config: &str, place: &str, expected: Value| {
        let front = front(mirror.url(), config).await;
        let reply = told(&front).await;
        assert_eq!(seen(&reply).pointer(place), Some(&expected), "{config}: {}", reply.text);
        assert!(seen(&reply)["message"]["metadata"].get(STATE_KEY).is_none(), "{}", reply.text);
    };
    check("send = \"request-metadata\"\nkey = \"st\"", "/metadata/st", state.clone()).await;
    check("send = \"message-metadata\"\nkey = \"st\"", "/message/metadata/st", state.clone()).await;
    check("send = \"data-part\"\nkey = \"st\"", "/message/parts/0/data", json!({"st": state})).await;
    let chosen = "send = \"data-part\"\nkey = \"st\"\nkeys = [\"name\", \"none\"]";
    check(chosen, "/message/parts/0/data", json!({"st": {"name": "Ada"}})).await;
    let template = "send = \"text-part\"\ntemplate = \"The user is {name} ({n}){title?}.\"";
    check(template, "/message/parts/0/text", "The user is Ada (1.50).\n\nhello".into()).await;
}

#[tokio::test]
async fn what_the_upstream_says_of_state_changes_nothing_unless_the_config_says_where_to_look() {
    let mirror = mirror("").await;
    let front = front(mirror.url(), "send = \"request-metadata\"\nkey = \"st\"").await;
    let reply = told(&front).await;
    assert!(reply.text.contains("mood"), "the mirror did send a change: {}", reply.text);
    assert_eq!(reply.returned_state(), &json!({"name": "Ada", "n": 1.5}), "{}", reply.text);
}

/// Changes of state under the names that frameworks know, wherever an answer has metadata or data: a message, a task, and
/// the events of a stream.
fn answers_that_change_state() -> [Vec<Value>; 3] {
    let delta = json!({"name": "Eve", "eve": true, "user:name": "Eve", "app:all": true, "temp:x": 1});
    let actions = json!({"stateDelta": delta, "state_delta": delta});
    let metadata = json!({"stateDelta": delta, "state_delta": delta, "adk_state_delta": delta, "adk_actions": actions,
        "actions": actions, STATE_KEY: delta, STATE_INJECTION: delta,
        "agreed": {"ok": true}});
    let parts = json!([{"text": "Done.", "metadata": metadata}, {"data": metadata}]);
    let message =
        json!({"messageId": "a", "role": "ROLE_AGENT", "contextId": "c", "parts": parts, "metadata": metadata});
    let artifact = json!({"artifactId": "a", "parts": parts, "metadata": metadata});
    let status = json!({"state": "TASK_STATE_COMPLETED", "message": message});
    let task = json!({"id": "t", "contextId": "c", "status": status, "artifacts": [artifact], "history": [message],
        "metadata": metadata});
    let begun = json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}, "metadata": metadata});
    let artifact_update = json!({"taskId": "t", "contextId": "c", "artifact": artifact, "metadata": metadata});
    let status_update = json!({"taskId": "t", "contextId": "c", "status": status, "metadata": metadata});
    [
        vec![json!({"message": message})],
        vec![json!({"task": task})],
        vec![
            json!({"task": begun}),
            json!({"artifactUpdate": artifact_update}),
            json!({"statusUpdate": status_update}),
        ],
    ]
}

#[tokio::test]
async fn no_change_of_state_that_the_upstream_sends_is_made_but_the_one_that_the_config_names() {
    // All that the answers would set is shown to the upstream, so that a turn tells what the one before it left.
    let keys = r#"["name", "n", "ok", "eve", "stateDelta", "user:name", "app:all", "temp:x"]"#;
    let send = format!("send = \"request-metadata\"\nkey = \"st\"\nkeys = {keys}");
    for place in ["", "task-metadata", "artifact-metadata", "data-part"] {
        let receive = format!("\nreceive = \"{place}\"\nreceive_key = \"agreed\"");
        let config = if place.is_empty() { send.clone() } else { format!("{send}{receive}") };
        for answer in answers_that_change_state() {
            let told_of = Arc::new(Mutex::new(Vec::new()));
            let kept = Arc::clone(&told_of);
            let events = answer.clone();
            let is_streamed = answer.len() > 1;
            let url = agent(is_streamed, move |request: Value| {
                kept.lock().expect("no panic").push(request["params"]["metadata"]["st"].clone());
                let events = events.clone();
                async move { if is_streamed { stream(&events, "") } else { result(&events[0]) } }
            });
            let front = front(&url.await, &config).await;
            let second = front.say("hello").context("c");
            for reply in [told(&front).await, second.send().await.expect("a reply")] {
                assert!(reply.text.contains("Done."), "{config}: {}", reply.text);
            }
            // A message has parts only.
            let has_place = if answer[0].get("message").is_some() { place == "data-part" } else { !place.is_empty() };
            let own = json!({"name": "Ada", "n": 1.5});
            let changed = if has_place { json!({"name": "Ada", "n": 1.5, "ok": true}) } else { own.clone() };
            assert_eq!(*told_of.lock().expect("no panic"), [own, changed], "{config}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_template_whose_state_is_missing_fails_the_task_and_names_the_key() {
    let mirror = mirror("").await;
    let front = front(mirror.url(), "send = \"text-part\"\ntemplate = \"The user is {name}.\"").await;
    let reply = front.say("hello").send().await.expect("a reply");
    assert_eq!(super::state(&reply), "TASK_STATE_FAILED", "{}", reply.text);
    assert!(reply.text.contains("`name`"), "{}", reply.text);
}

#[tokio::test]
async fn a_change_that_the_upstream_makes_is_in_the_session_and_in_the_answer() {
    let mirror = mirror("").await;
    let receive = "send = \"request-metadata\"\nkey = \"st\"\nreceive = \"artifact-metadata\"\nreceive_key = \"delta\"";
    let front = front(mirror.url(), receive).await;
    let first = told(&front).await;
    assert_eq!(first.extensions.as_deref(), Some(STATE_INJECTION));
    assert_eq!(first.returned_state(), &json!({"name": "Ada", "n": 1.0, "mood": "good"}), "{}", first.text);
    let second = front.say("hello").context("c").send().await.expect("a reply");
    assert_eq!(seen(&second)["metadata"]["st"]["mood"], "good", "{}", second.text);
    assert_eq!(seen(&second)["metadata"]["st"], json!({"name": "Ada", "n": 1.0, "mood": "good"}), "nobody else's keys");
}

/// Answers without an artifact: by the last status, by the history, and by statuses on the way.
fn answers_without_artifacts() -> [Vec<Value>; 3] {
    let said = json!({"messageId": "a", "role": "ROLE_AGENT", "contextId": "c", "parts": [{"text": "Done."}]});
    let task = json!({"id": "t", "contextId": "c"});
    let with = |status: Value, history: Value| {
        let mut task = task.clone();
        task["status"] = status;
        task["history"] = history;
        json!({"task": task})
    };
    let update = |status: Value| json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}});
    let completed = json!({"state": "TASK_STATE_COMPLETED"});
    [
        vec![with(json!({"state": "TASK_STATE_COMPLETED", "message": said}), json!([]))],
        vec![with(completed.clone(), json!([said]))],
        vec![
            with(json!({"state": "TASK_STATE_SUBMITTED"}), json!([])),
            update(json!({"state": "TASK_STATE_WORKING", "message": said})),
            update(completed),
        ],
    ]
}

/// All values of the state key, at any depth.
fn states_in(json: &Value) -> Vec<Value> {
    match json {
        Value::Object(fields) => {
            let own = fields.get(STATE_KEY).cloned();
            own.into_iter().chain(fields.values().flat_map(states_in)).collect()
        }
        Value::Array(items) => items.iter().flat_map(states_in).collect(),
        _ => Vec::new(),
    }
}

async fn states_over_http(front: &TestServer, path: &str, version: &str, body: &Value) -> Vec<Value> {
    let request = front.client().post(format!("{}{path}", front.url())).json(body);
    let request = request.header("a2a-version", version).header("a2a-extensions", STATE_INJECTION);
    let answer = request.send().await.expect("an answer").text().await.expect("text");
    assert!(answer.contains("Done."), "{path} {version}: {answer}");
    let events = answer.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<&str> = events.collect();
    let texts = if events.is_empty() { vec![answer.as_str()] } else { events };
    texts.iter().flat_map(|text| states_in(&serde_json::from_str(text).expect("JSON"))).collect()
}

#[tokio::test]
async fn the_state_comes_back_where_the_agent_answers_by_a_status_or_in_the_history() {
    let state = json!({"name": "Ada"});
    for answer in answers_without_artifacts() {
        let events = answer.clone();
        let is_streamed = answer.len() > 1;
        let url = agent(is_streamed, move |_| {
            let events = events.clone();
            async move { if is_streamed { stream(&events, "") } else { result(&events[0]) } }
        });
        let front = front(&url.await, "send = \"message-metadata\"\nkey = \"st\"").await;
        let id = || uuid::Uuid::new_v4().to_string();
        let newer = || {
            json!({"message": {"messageId": id(), "role": "ROLE_USER", "parts": [{"text": "x"}],
                "metadata": {STATE_KEY: state}}})
        };
        let older = || {
            json!({"message": {"kind": "message", "messageId": id(), "role": "user",
                "parts": [{"kind": "text", "text": "x"}], "metadata": {STATE_KEY: state}}})
        };
        let oldest = || {
            json!({"message": {"messageId": id(), "role": "ROLE_USER", "content": [{"text": "x"}],
                "metadata": {STATE_KEY: state}}, "configuration": {"blocking": true}})
        };
        let rpc = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        // Each answer has the state once, besides the copy in the client's own message that a task's history shows.
        for (path, version, body) in [
            ("/a2a/jsonrpc", "1.0", rpc("SendMessage", newer())),
            ("/a2a/jsonrpc", "1.0", rpc("SendStreamingMessage", newer())),
            ("/a2a/rest/message:send", "1.0", newer()),
            ("/a2a/rest/message:stream", "1.0", newer()),
            ("/a2a/jsonrpc", "0.3", rpc("message/send", older())),
            ("/a2a/jsonrpc", "0.3", rpc("message/stream", older())),
            ("/a2a/rest/v1/message:send", "0.3", oldest()),
            ("/a2a/rest/v1/message:stream", "0.3", oldest()),
        ] {
            let states = states_over_http(&front, path, version, &body).await;
            assert_eq!(states, [state.clone(), state.clone()], "{path} {version}: {answer:?}");
        }
        let channel = tonic::transport::Channel::from_shared(front.url().to_owned()).expect("a URL");
        let mut client = A2aServiceClient::new(channel.connect().await.expect("a channel"));
        let part = pb::Part { content: Some(pb::part::Content::Text("x".to_owned())), ..pb::Part::default() };
        let message =
            pb::Message { message_id: id(), role: pb::Role::User.into(), parts: vec![part], ..pb::Message::default() };
        let request = pb::SendMessageRequest { message: Some(message), ..pb::SendMessageRequest::default() };
        let mut request = tonic::Request::new(request);
        request.metadata_mut().insert("a2a-version", "1.0".parse().expect("ASCII"));
        request.metadata_mut().insert("a2a-extensions", STATE_INJECTION.parse().expect("ASCII"));
        let sent = format!("{:?}", client.send_message(request).await.expect("an answer").into_inner());
        assert_eq!(sent.matches(STATE_KEY).count(), 1, "{sent}");
    }
}

#[tokio::test]
async fn a_status_has_no_state_where_the_artifact_has_it() {
    let mirror = mirror("").await;
    let front = front(mirror.url(), "send = \"message-metadata\"\nkey = \"st\"").await;
    let reply = told(&front).await;
    assert_eq!(reply.returned_state(), &json!({"name": "Ada", "n": 1.5}), "{}", reply.text);
    assert_eq!(states_in(&reply.task()["metadata"]), [] as [Value; 0], "{}", reply.text);
    assert_eq!(states_in(&reply.task()["status"]), [] as [Value; 0], "{}", reply.text);
}
