//! Tasks that wait at the upstream and continue there without a message of their client, and tasks of which the
//! upstream reports nothing for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annex_test_support::{Reply, TestServer, until};
use axum::Router;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::foreign::{agent, card, error, result, serve, stream, task};
use super::{config, front, state};
use crate::catalogue;
use crate::output::{steering, unsteered};

/// An upstream whose task waits for a login outside of A2A. `phase` is the progress: the task waits, works, or has
/// ended.
#[derive(Clone, Default)]
struct Login {
    phase: Arc<AtomicUsize>,
    messages: Arc<AtomicUsize>,
}

impl Login {
    async fn start(&self, streaming: bool) -> String {
        let login = self.clone();
        agent(streaming, move |request: Value| {
            let answer = login.answer(&request);
            async move { answer }
        })
        .await
    }

    fn answer(&self, request: &Value) -> Response {
        let mut now = task("c", "TASK_STATE_AUTH_REQUIRED");
        let question = json!({"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "Log in elsewhere."}]});
        match self.phase.load(Ordering::SeqCst) {
            0 => now["status"]["message"] = question,
            1 => now = task("c", "TASK_STATE_WORKING"),
            _ => {
                now = task("c", "TASK_STATE_COMPLETED");
                now["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": "You are in."}]}]);
            }
        }
        match request["method"].as_str().unwrap_or_default() {
            "SendMessage" | "SendStreamingMessage" => {
                self.messages.fetch_add(1, Ordering::SeqCst);
                if request["params"]["message"].get("taskId").is_some() && self.phase.load(Ordering::SeqCst) > 1 {
                    return error(-32004, "the task has ended");
                }
                let now = json!({"task": now});
                if request["method"] == "SendMessage" { result(&now) } else { stream(&[now], "") }
            }
            "GetTask" => result(&now),
            _ => error(-32004, "not here"),
        }
    }

    fn go_on(&self) {
        self.phase.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of received messages.
    fn messages(&self) -> usize {
        self.messages.load(Ordering::SeqCst)
    }
}

/// The id of the task in an answer that waits.
fn waiting(reply: &Reply) -> String {
    assert_eq!(state(reply), "TASK_STATE_AUTH_REQUIRED", "{}", reply.text);
    reply.task()["id"].as_str().expect("an id").to_owned()
}

async fn read(front: &TestServer, id: &str) -> Value {
    let read = front.call("GetTask", json!({"id": id}).to_string()).send().await.expect("a reply");
    read.body["result"].clone()
}

async fn until_ended(front: &TestServer, id: &str) -> Value {
    until("the task has ended", async || read(front, id).await["status"]["state"] == "TASK_STATE_COMPLETED").await;
    read(front, id).await
}

#[tokio::test]
async fn a_task_that_goes_on_without_its_client_is_followed_when_it_is_read() {
    for streaming in [false, true] {
        let login = Login::default();
        let front = front(&login.start(streaming).await, "").await;
        let id = waiting(&front.say("hi").send().await.expect("a reply"));
        assert_eq!(read(&front, &id).await["status"]["state"], "TASK_STATE_AUTH_REQUIRED");
        login.go_on();
        until("the task goes on", async || read(&front, &id).await["status"]["state"] == "TASK_STATE_WORKING").await;
        login.go_on();
        let ended = until_ended(&front, &id).await;
        assert_eq!(ended["artifacts"][0]["parts"][0]["text"], "You are in.", "{ended}");
        assert_eq!(login.messages(), 1, "nothing is sent but the message");
    }
}

#[tokio::test]
async fn a_subscriber_hears_how_a_task_goes_on_without_its_client() {
    for streaming in [false, true] {
        let login = Login::default();
        let front = front(&login.start(streaming).await, "").await;
        let id = waiting(&front.say("hi").send().await.expect("a reply"));
        let events = front.call("SubscribeToTask", json!({"id": id}).to_string()).open().await.expect("a stream");
        login.go_on();
        login.go_on();
        let events = events.rest().await.expect("events");
        let last = &events.last().expect("an event")["result"];
        assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{events:?}");
        assert!(events.iter().any(|event| event.to_string().contains("You are in.")), "{events:?}");
    }
}

/// A card of a [`Login`] that tells of its task only to readers with a key; where the card is, and the address of the agent.
async fn login_for_key(login: &Login, key: &'static str) -> (String, String) {
    let login = login.clone();
    let answered = post(move |headers: HeaderMap, body: String| {
        let login = login.clone();
        async move {
            let request: Value = serde_json::from_str(&body).expect("JSON");
            let is_known = headers.get("x-key").is_some_and(|value| value.as_bytes() == key.as_bytes());
            if request["method"] == "GetTask" && !is_known {
                return error(-32001, "no such task");
            }
            login.answer(&request)
        }
    });
    let url = serve(Router::new().route("/rpc", answered)).await;
    let card = card(&format!("{url}/rpc"), false, &json!([])).to_string();
    let served = get(move || async { ([("content-type", "application/json")], card) });
    let card = format!("{}/card.json", serve(Router::new().route("/card.json", served)).await);
    (card, url.trim_start_matches("http://").to_owned())
}

#[tokio::test]
async fn a_task_that_waits_is_asked_for_with_the_header_fields_of_its_newest_reader() {
    let login = Login::default();
    let (card, host) = login_for_key(&login, "new").await;
    let front = front(&card, &format!("headers_forward = [\"X-Key\"]\nallow_hosts = [{host:?}]")).await;
    let id = waiting(&front.say("hi").send().await.expect("a reply"));
    let subscribe = |key| front.call("SubscribeToTask", json!({"id": id}).to_string()).header("x-key", key).open();
    let _older = subscribe("old").await.expect("a stream");
    let newer = subscribe("new").await.expect("a stream");
    login.go_on();
    login.go_on();
    let events = newer.rest().await.expect("events");
    let last = &events.last().expect("an event")["result"];
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{events:?}");
}

#[tokio::test]
async fn the_reader_of_a_task_that_goes_on_without_its_client_is_not_the_caller_of_the_turn() {
    let login = Login::default();
    let shown = "{ principal = true, headers = [\"x-reader\"] }";
    let folder = tempfile::tempdir().expect("a folder");
    let extension = steering("respond = \"caller\"").replace("{ principal = true }", shown);
    let extension = unsteered(&extension, folder.path());
    let front = config(&login.start(false).await, "").with(&extension).start().await.expect("the front starts");
    let id = waiting(&front.say("hi").send().await.expect("a reply"));
    login.go_on();
    login.go_on();
    let read = async || {
        let request = front.call("GetTask", json!({"id": id}).to_string()).header("x-reader", "eve");
        request.send().await.expect("a reply").body["result"].clone()
    };
    until("the task has ended", async || read().await["status"]["state"] == "TASK_STATE_COMPLETED").await;
    let ended = read().await;
    assert_eq!(ended["artifacts"][0]["metadata"]["steering/result"], "Presence::Earlier nobody {} []", "{ended}");
}

#[tokio::test]
async fn a_message_to_a_task_that_has_ended_without_its_client_does_not_fail_it() {
    for streaming in [false, true] {
        let login = Login::default();
        let front = front(&login.start(streaming).await, "").await;
        let id = waiting(&front.say("hi").send().await.expect("a reply"));
        login.go_on();
        login.go_on();
        let refused = front.say("I did").field("taskId", &id).send().await.expect("a reply");
        assert_eq!(refused.code(), -32004, "{}", refused.text);
        assert!(refused.text.contains("TASK_STATE_COMPLETED"), "{}", refused.text);
        let ended = read(&front, &id).await;
        assert_eq!(ended["artifacts"][0]["parts"][0]["text"], "You are in.", "{ended}");
        assert_eq!(login.messages(), 1, "the message is not sent to a task that has ended");
    }
}

#[tokio::test]
async fn a_message_to_a_task_that_goes_on_without_its_client_is_refused_at_once_whichever_state_its_agent_names() {
    for state in ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"] {
        let url = agent(false, move |request: Value| async move {
            if request["method"] == "SendMessage" {
                return result(&json!({"task": task("c", "TASK_STATE_AUTH_REQUIRED")}));
            }
            result(&task("c", state))
        });
        let front = front(&url.await, "").await;
        let id = waiting(&front.say("hi").send().await.expect("a reply"));
        let refused = front.say("I did").field("taskId", &id).send().await.expect("a reply");
        assert_eq!(refused.code(), -32004, "{state}: {}", refused.text);
        assert_eq!(read(&front, &id).await["status"]["state"], "TASK_STATE_WORKING", "{state}");
        let canceled = front.call("CancelTask", json!({"id": id}).to_string()).send().await.expect("a reply");
        assert_eq!(canceled.body["result"]["status"]["state"], "TASK_STATE_CANCELED", "{}", canceled.text);
    }
}

#[tokio::test]
async fn a_task_that_has_ended_without_its_client_cannot_be_cancelled() {
    let login = Login::default();
    let front = front(&login.start(false).await, "").await;
    let id = waiting(&front.say("hi").send().await.expect("a reply"));
    login.go_on();
    login.go_on();
    let refused = front.call("CancelTask", json!({"id": id}).to_string()).send().await.expect("a reply");
    assert_eq!(refused.code(), -32002, "{}", refused.text);
    assert_eq!(read(&front, &id).await["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_task_that_goes_on_without_its_client_is_followed_after_a_restart() {
    let login = Login::default();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("annex.toml");
    let config = config(&login.start(false).await, "").set("tasks.data_dir", "data").toml();
    std::fs::write(&file, config).expect("a config");
    let mut front = TestServer::from_file(&file, None).await.expect("the front starts");
    let id = waiting(&front.say("hi").send().await.expect("a reply"));
    front.begin_shutdown();
    front.ended().await.expect("an end");
    login.go_on();
    login.go_on();
    let front = TestServer::from_file(&file, None).await.expect("the front starts again");
    until_ended(&front, &id).await;
}

#[tokio::test]
async fn a_task_that_goes_on_without_its_client_is_followed_over_each_binding_of_the_upstream() {
    let behind = catalogue::catalogue().await;
    for binding in ["JSONRPC", "HTTP+JSON", "GRPC"] {
        let front = front(behind.url(), &format!("binding = {binding:?}")).await;
        let asked = front.say("hello").extensions(catalogue::permits::URI).send().await.expect("a reply");
        let id = waiting(&asked);
        let state = catalogue::permits::state_of(&asked);
        catalogue::permits::approve(&behind, &state).await;
        let ended = until_ended(&front, &id).await;
        assert_eq!(ended["artifacts"][0]["parts"][0]["text"], "Done.", "{binding}: {ended}");
    }
}

#[tokio::test]
async fn a_task_that_an_upstream_has_taken_is_told_at_once_and_can_be_cancelled() {
    let canceled = Arc::new(Notify::new());
    let cancels = Arc::clone(&canceled);
    let url = agent(true, move |request: Value| {
        let cancels = Arc::clone(&cancels);
        async move {
            if request["method"] == "CancelTask" {
                cancels.notify_one();
                return result(&task("c", "TASK_STATE_CANCELED"));
            }
            let first = json!({"jsonrpc": "2.0", "id": 1, "result": {"task": task("c", "TASK_STATE_SUBMITTED")}});
            let first = futures::stream::once(async move { Ok::<_, std::io::Error>(format!("data: {first}\n\n")) });
            // Nothing more comes: the model behind it thinks.
            let silence = futures::StreamExt::chain(first, futures::stream::pending());
            let body = axum::body::Body::from_stream(silence);
            axum::response::IntoResponse::into_response(([("content-type", "text/event-stream")], body))
        }
    });
    let front = front(&url.await, "").await;
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
    let at_once = json!({"message": message, "configuration": {"returnImmediately": true}});
    let reply = front.call("SendMessage", at_once.to_string()).send().await.expect("a reply");
    assert_eq!(state(&reply), "TASK_STATE_SUBMITTED", "{}", reply.text);
    let id = &reply.task()["id"];
    let ended = front.call("CancelTask", json!({"id": id}).to_string()).send().await.expect("a reply");
    assert_eq!(ended.body["result"]["status"]["state"], "TASK_STATE_CANCELED", "{}", ended.text);
    canceled.notified().await;
}
