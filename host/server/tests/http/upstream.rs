//! A server in front of a remote agent. The remote is another server of this repository, whose agent shows the messages
//! that reach it.

use std::sync::Arc;
use std::time::Duration;

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use annex_conversation::{Conversation, StateDelta};
use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_protocol::{A2aError, Artifact, Json, Message, Part, PartContent, SendMessageRequest, TaskState};
use annex_test_support::{COMMAND_KEY, Reply, TEST_EXTENSION, TestConfig, TestServer};
use async_trait::async_trait;
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::forgotten::files_with;

mod cards;
pub(crate) mod foreign;
mod hostile;
mod oauth;
mod states;
mod waiting;

/// An extension that only the upstream has.
const ITS_OWN: &str = "urn:upstream:own";

/// An agent that obeys the text of a message, and shows the message and the request's metadata in an artifact.
struct Mirror;

#[async_trait]
impl AgentExecutor for Mirror {
    fn name(&self) -> &'static str {
        "mirror"
    }

    fn before_turn(
        &self,
        request: &SendMessageRequest,
        _conversation: &Conversation,
        _delta: &mut StateDelta,
    ) -> Result<(), A2aError> {
        match request.message.text().as_str() {
            "invalid" => Err(A2aError::invalid_field("message.parts[0]", "is not to my taste")),
            "unsupported" => Err(A2aError::UnsupportedOperation { reason: "not today".to_owned() }),
            "type" => Err(A2aError::ContentTypeNotSupported { content_type: "text/odd".to_owned() }),
            "fault" => Err(A2aError::Internal { error_id: "its-own-id".to_owned() }),
            _ => Ok(()),
        }
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        let said = |text: &str| Some(Message::agent(turn.context_id.clone(), None, vec![Part::text(text)]));
        let text = turn.message.text();
        match text.lines().last().unwrap_or_default() {
            "answer" => return events.send(AgentEvent::Message(said("Directly.").expect("a message"))).await,
            "ask" => {
                let message = said("Which one?");
                return events.send(AgentEvent::Status { state: TaskState::InputRequired, message }).await;
            }
            "wait" => {
                events.send(AgentEvent::Status { state: TaskState::Working, message: said("I wait.") }).await?;
                turn.cancel.cancelled().await;
                return Ok(());
            }
            "pieces" => {
                events.send(AgentEvent::Status { state: TaskState::Working, message: None }).await?;
                for (piece, append, last_chunk) in
                    [("one ", false, false), ("two ", true, false), ("three", true, true)]
                {
                    let artifact = Artifact { parts: vec![Part::text(piece)].into(), ..named("pieces") };
                    events.send(AgentEvent::Artifact { artifact, append, last_chunk }).await?;
                    // In real time: what is sent in one go may travel as one event.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                return Ok(());
            }
            _ => {}
        }
        let seen = json!({"message": &*turn.message, "metadata": &*turn.metadata}).to_string();
        let seen = PartContent::Data(Json::parse(seen).expect("JSON")).into();
        let mut artifact = Artifact { parts: vec![seen].into(), ..named("seen") };
        artifact.metadata.insert("delta".to_owned(), Json::parse(DELTA.to_owned()).expect("JSON"));
        events.send(AgentEvent::Artifact { artifact, append: false, last_chunk: true }).await
    }
}

/// A change of state. Two of its keys are in the scopes `user` and `app`.
const DELTA: &str = r#"{"mood":"good","n":1.0,"user:name":"Eve","app:all":true}"#;

fn named(id: &str) -> Artifact {
    Artifact { artifact_id: id.into(), name: Some(id.to_owned()), ..Artifact::default() }
}

/// The server that plays the upstream.
pub(crate) async fn mirror(more: &str) -> TestServer {
    let config = TestConfig::without_agent().set("card.name", "Mirror").set("card.input_modes", ["*/*"]);
    config.with(more).start_with(Arc::new(Mirror)).await.expect("the mirror starts")
}

/// The config of a server in front of the agent at `url`; `agent` are further keys of `[agent]`.
pub(crate) fn config(url: &str, agent: &str) -> TestConfig {
    TestConfig::upstream(url).with(&format!("[agent]\n{agent}"))
}

async fn front(url: &str, agent: &str) -> TestServer {
    config(url, agent).start().await.expect("the front starts")
}

/// The request as it reached the mirror.
fn seen(reply: &Reply) -> &Value {
    let seen = &reply.task()["artifacts"][0]["parts"][0]["data"];
    assert!(seen.is_object(), "{}", reply.text);
    seen
}

fn state(reply: &Reply) -> &str {
    reply.task()["status"]["state"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn metadata_that_is_forgotten_reaches_the_upstream_and_no_store() {
    let mirror = mirror("").await;
    for binding in ["JSONRPC", "HTTP+JSON", "GRPC"] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(mirror.url(), &format!("binding = {binding:?}\nforget_metadata = [\"urn:secret\"]"));
        let front = config.set("tasks.data_dir", folder.path()).start().await.expect("the front starts");
        let said = front.say("hello").metadata("urn:secret", "\"plum-4711\"").metadata("urn:other", "1");
        let reply = said.send().await.expect("a reply");
        let metadata = json!({"urn:other": 1, "urn:secret": "plum-4711"});
        assert_eq!(seen(&reply)["message"]["metadata"], metadata, "{binding}: {}", reply.text);
        assert_eq!(reply.task()["history"][0]["metadata"], json!({"urn:other": 1}), "{binding}: {}", reply.text);
        // An upstream that repeats nothing leaves nothing.
        let asked = front.say("ask").metadata("urn:secret", "\"pear-4712\"").send().await.expect("a reply");
        assert_eq!(state(&asked), "TASK_STATE_INPUT_REQUIRED", "{binding}: {}", asked.text);
        assert_eq!(files_with(folder.path(), "pear-4712"), Vec::<String>::new(), "{binding}");
    }
}

#[tokio::test]
async fn an_extension_does_not_get_metadata_that_is_forgotten_for_the_upstream() {
    let mirror = mirror("").await;
    let config = config(mirror.url(), &format!("forget_metadata = [{COMMAND_KEY:?}]"));
    let front = config.extension(annex_components::TEST_EXTENSION, "").start().await.expect("the front starts");
    let said = front.say("hello").extensions(TEST_EXTENSION).metadata(COMMAND_KEY, "\"violation\"");
    let reply = said.send().await.expect("a reply");
    // The extension owns the key, so the upstream does not get the metadata either.
    assert!(seen(&reply)["message"].get("metadata").is_none(), "{}", reply.text);
    assert!(reply.task()["history"][0].get("metadata").is_none(), "{}", reply.text);
}

/// The ways to the mirror: each binding, with streams and without, and JSON-RPC and HTTP+JSON of 0.3.
async fn fronts(mirror: &TestServer) -> Vec<(String, TestServer)> {
    let mut fronts = Vec::new();
    for binding in ["JSONRPC", "HTTP+JSON", "GRPC"] {
        fronts.push((binding.to_owned(), front(mirror.url(), &format!("binding = {binding:?}")).await));
    }
    for (name, streaming, version) in [
        ("1.0 without streams", false, "1.0"),
        ("0.3", true, "0.3"),
        ("0.3 without streams", false, "0.3"),
        ("HTTP+JSON of 0.3", true, foreign::HTTP_JSON_OF_0_3),
        ("HTTP+JSON of 0.3 without streams", false, foreign::HTTP_JSON_OF_0_3),
    ] {
        let card = foreign::card_of(mirror.url(), streaming, version).await;
        let host = mirror.url().trim_start_matches("http://");
        fronts.push((name.to_owned(), front(&card, &format!("allow_hosts = [{host:?}]")).await));
    }
    fronts
}

#[tokio::test]
async fn messages_and_answers_travel_both_ways_over_every_binding_and_version() {
    let mirror = mirror("").await;
    for (name, front) in fronts(&mirror).await {
        let reply = front.say("hello").metadata("k", r#"{"n":1}"#).context("mine").send().await.expect("a reply");
        assert_eq!(state(&reply), "TASK_STATE_COMPLETED", "{name}: {}", reply.text);
        assert_eq!(reply.context(), "mine", "{name}");
        let message = &seen(&reply)["message"];
        assert_eq!(message["parts"], json!([{"text": "hello"}]), "{name}");
        assert_eq!(message["metadata"]["k"]["n"].as_f64(), Some(1.0), "{name}");
        assert_ne!(message["contextId"], "mine", "{name}: the upstream has ids of its own");
        let again = front.say("again").context("mine").send().await.expect("a reply");
        assert_eq!(seen(&again)["message"]["contextId"], message["contextId"], "{name}: the conversation goes on");
        let answer = front.say("answer").send().await.expect("a reply");
        assert_eq!(answer.body["result"]["message"]["parts"][0]["text"], "Directly.", "{name}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_stream_is_relayed_piece_by_piece_and_nothing_is_announced_twice() {
    let mirror = mirror("").await;
    for (name, front) in fronts(&mirror).await.into_iter().filter(|(name, _)| !name.contains("without")) {
        let events = front.say("pieces").streaming().open().await.expect("a stream").rest().await.expect("events");
        let kinds: Vec<String> = events.iter().map(|event| kind(&event["result"])).collect();
        let expected = [
            "task SUBMITTED",
            "status WORKING",
            "artifact one ",
            "artifact two ",
            "artifact three",
            "status COMPLETED",
        ];
        assert_eq!(kinds, expected, "{name}");
        let id = &events[0]["result"]["task"]["id"];
        assert!(events[1..].iter().all(|event| event.to_string().contains(id.as_str().expect("an id"))), "{name}");
    }
}

fn kind(event: &Value) -> String {
    let state = |status: &Value| status["state"].as_str().unwrap_or_default().replace("TASK_STATE_", "");
    if let Some(task) = event.get("task") {
        return format!("task {}", state(&task["status"]));
    }
    match event.get("statusUpdate") {
        Some(update) => format!("status {}", state(&update["status"])),
        None => {
            format!("artifact {}", event["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str().unwrap_or_default())
        }
    }
}

#[tokio::test]
async fn a_task_that_waits_goes_on_at_the_upstream() {
    let mirror = mirror("").await;
    for (name, front) in fronts(&mirror).await {
        let asked = front.say("ask").send().await.expect("a reply");
        assert_eq!(state(&asked), "TASK_STATE_INPUT_REQUIRED", "{name}: {}", asked.text);
        assert_eq!(asked.task()["status"]["message"]["parts"][0]["text"], "Which one?", "{name}");
        let id = asked.task()["id"].as_str().expect("an id").to_owned();
        let done = front.say("that").field("taskId", &id).send().await.expect("a reply");
        assert_eq!(state(&done), "TASK_STATE_COMPLETED", "{name}: {}", done.text);
        let its_task = seen(&done)["message"]["taskId"].as_str().expect("a task").to_owned();
        assert_ne!(its_task, id, "{name}");
        let events = front.say("ask").streaming().open().await.expect("a stream").rest().await.expect("events");
        let id = events[0]["result"]["task"]["id"].as_str().expect("an id").to_owned();
        let more = front.say("more").field("taskId", &id).streaming().open().await.expect("a stream");
        let last = more.rest().await.expect("events").pop().expect("an event");
        assert_eq!(kind(&last["result"]), "status COMPLETED", "{name}: {last}");
    }
}

#[tokio::test]
async fn a_task_that_is_cancelled_is_cancelled_at_the_upstream_too() {
    let mirror = mirror("[tasks]\nlist_all_anonymous = true").await;
    for binding in ["JSONRPC", "HTTP+JSON", "GRPC"] {
        let front = front(mirror.url(), &format!("binding = {binding:?}")).await;
        for text in ["wait", "ask"] {
            let mut events = front.say(text).streaming().open().await.expect("a stream");
            let first = events.next().await.expect("events").expect("an event");
            let id = &first["result"]["task"]["id"];
            events.next().await.expect("events").expect("an event");
            let canceled = front.call("CancelTask", format!(r#"{{"id":{id}}}"#)).send().await.expect("a reply");
            assert_eq!(canceled.body["result"]["status"]["state"], "TASK_STATE_CANCELED", "{}", canceled.text);
        }
        let listed = mirror.call("ListTasks", "{}").send().await.expect("a reply");
        for task in listed.body["result"]["tasks"].as_array().expect("tasks") {
            assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED", "{binding}: {}", listed.text);
        }
    }
}

#[tokio::test]
async fn what_the_upstream_says_of_the_request_reaches_the_client_and_nothing_else_does() {
    let mirror = mirror("").await;
    for binding in ["JSONRPC", "HTTP+JSON", "GRPC"] {
        let front = front(mirror.url(), &format!("binding = {binding:?}")).await;
        for (text, code, said) in [
            ("invalid", -32602, "is not to my taste"),
            ("unsupported", -32004, "not today"),
            ("type", -32005, "text/odd"),
        ] {
            for reply in [front.say(text), front.say(text).streaming()] {
                let reply = reply.send().await.expect("a reply");
                assert_eq!(reply.code(), code, "{binding}: {}", reply.text);
                assert!(reply.text.contains(said), "{binding}: {}", reply.text);
            }
        }
        let reply = front.say("fault").send().await.expect("a reply");
        assert_eq!(state(&reply), "TASK_STATE_FAILED", "{binding}: {}", reply.text);
        assert!(!reply.text.contains("its-own-id") && reply.text.contains("log has the details"), "{}", reply.text);
    }
}

#[tokio::test]
async fn a_message_that_the_upstream_refuses_leaves_the_task_waiting() {
    let mirror = mirror("").await;
    let front = front(mirror.url(), "").await;
    let asked = front.say("ask").send().await.expect("a reply");
    let id = asked.task()["id"].as_str().expect("an id").to_owned();
    let refused = front.say("invalid").field("taskId", &id).send().await.expect("a reply");
    assert_eq!(state(&refused), "TASK_STATE_INPUT_REQUIRED", "{}", refused.text);
    assert!(refused.text.contains("is not to my taste"), "{}", refused.text);
    let done = front.say("that").field("taskId", &id).send().await.expect("a reply");
    assert_eq!(state(&done), "TASK_STATE_COMPLETED", "{}", done.text);
}

#[tokio::test]
async fn tasks_that_a_message_refers_to_have_the_names_of_the_upstream_there() {
    let mirror = mirror("").await;
    let front = front(mirror.url(), "").await;
    let first = front.say("hello").context("c").send().await.expect("a reply");
    let its_context = &seen(&first)["message"]["contextId"];
    let id = first.task()["id"].as_str().expect("an id");
    let message = json!({"messageId": "m", "role": "ROLE_USER", "contextId": "c", "parts": [{"text": "and?"}],
        "referenceTaskIds": [id, "unknown"]});
    let second = front.call("SendMessage", json!({"message": message}).to_string()).send().await.expect("a reply");
    let referred = seen(&second)["message"]["referenceTaskIds"].as_array().expect("references");
    assert_eq!(referred.len(), 1, "{referred:?}");
    assert_eq!(&seen(&second)["message"]["contextId"], its_context);
    let its_task = referred[0].as_str().expect("an id");
    let found = mirror.call("GetTask", json!({"id": its_task}).to_string()).send().await.expect("a reply");
    assert_eq!(found.body["result"]["status"]["state"], "TASK_STATE_COMPLETED", "{}", found.text);
}

#[tokio::test]
async fn a_task_that_waits_goes_on_after_a_restart() {
    let mirror = mirror("").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("annex.toml");
    let config = config(mirror.url(), "").set("tasks.data_dir", "data").toml();
    std::fs::write(&file, config).expect("a config");
    let mut front = TestServer::from_file(&file, None).await.expect("the front starts");
    let asked = front.say("ask").send().await.expect("a reply");
    let id = asked.task()["id"].as_str().expect("an id").to_owned();
    front.begin_shutdown();
    front.ended().await.expect("an end");
    let front = TestServer::from_file(&file, None).await.expect("the front starts again");
    let done = front.say("that").field("taskId", &id).send().await.expect("a reply");
    assert_eq!(state(&done), "TASK_STATE_COMPLETED", "{}", done.text);
    assert!(seen(&done)["message"]["taskId"].is_string(), "{}", done.text);
}

#[tokio::test]
async fn header_fields_reach_the_upstream_only_if_they_are_named() {
    let (url, requests) = foreign::recorder().await;
    let front =
        front(&url, "headers_forward = [\"X-Trace\"]\ncredentials = { header = \"X-Key\", env = \"PATH\" }").await;
    let body = front.say("hi").body();
    let request = front.client().post(format!("{}/a2a/jsonrpc", front.url())).body(body);
    let request = request.header("content-type", "application/json").header("a2a-version", "1.0");
    let request = request.header("x-trace", "t-1").header("authorization", "Bearer of-the-caller");
    request.send().await.expect("an answer");
    let headers = requests.lock().expect("a lock").pop().expect("a request");
    assert_eq!(headers["x-trace"], "t-1");
    assert_eq!(headers["x-key"].to_str().expect("text"), std::env::var("PATH").expect("PATH").trim());
    assert!(!headers.contains_key("authorization"), "{headers:?}");

    // Over gRPC they are metadata.
    let channel = Channel::from_shared(front.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    let part = pb::Part { content: Some(pb::part::Content::Text("hi".to_owned())), ..Default::default() };
    let role = pb::Role::User.into();
    let message = pb::Message { message_id: "over-grpc".to_owned(), role, parts: vec![part], ..Default::default() };
    let mut request = tonic::Request::new(pb::SendMessageRequest { message: Some(message), ..Default::default() });
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("a value"));
    request.metadata_mut().insert("x-trace", "t-2".parse().expect("a value"));
    A2aServiceClient::new(channel).send_message(request).await.expect("an answer");
    let headers = requests.lock().expect("a lock").pop().expect("a request");
    assert_eq!(headers["x-trace"], "t-2");
}
