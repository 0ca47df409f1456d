//! The hook `output`: what clients, receivers, the store and the session get of a revised answer.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use annex_components::STEERING_GRANTS;
use annex_conversation::{ConversationKey, ConversationStore, Event, Limits, SqliteStore, Window};
use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::{Reply, TestConfig, TestServer, component};
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::push::receiver;
use crate::upstream::mirror;

mod ends;

/// The URI of the extension that steers turns on command.
pub(crate) const STEERING: &str = "https://annex.example/steering/v1";

/// The extension that steers turns on command, active for every message. `behaviour` has a command for each hook, as TOML.
pub(crate) fn steering(behaviour: &str) -> String {
    steering_as(STEERING, behaviour, "")
}

/// The same extension under another URI, with further keys of its table.
pub(crate) fn steering_as(uri: &str, behaviour: &str, more: &str) -> String {
    format!(
        r#"
        [[extension]]
        component = {:?}
        activate = "always"
        {more}
        parameters = {{ uri = "{uri}", behaviour = {{ {behaviour} }}, owns_keys = {} }}
        [extension.grants]
        caller = {{ principal = true }}
        live-card = {{}}
        {STEERING_GRANTS}
        "#,
        component("test-steering"),
        uri == STEERING,
    )
}

/// Rules of a scripted agent: chunks of a card number, an artifact without a last chunk, statuses and a message.
const SCRIPT: &str = r#"
    [[agent.rule]]
    message_id = "chunks"
    steps = [
      { status = { state = "working", text = "secret status" } },
      { artifact = { id = "a", parts = [{ text = "secret 4111 1111" }] } },
      { artifact = { id = "a", parts = [{ text = " 1111 1111" }], append = true, last_chunk = true } },
      { status = { state = "completed", text = "secret end" } },
    ]
    [[agent.rule]]
    message_id = "open"
    steps = [
      { artifact = { id = "a", parts = [{ text = "one " }] } },
      { artifact = { id = "a", parts = [{ text = "two" }], append = true } },
      { status = { state = "completed" } },
    ]
    [[agent.rule]]
    message_id = "ask"
    steps = [{ status = { state = "input-required", text = "secret question" } }]
    [[agent.rule]]
    message_id = "answer"
    steps = [{ message = { parts = [{ text = "secret message" }] } }]
"#;

async fn script(behaviour: &str, more: &str) -> TestServer {
    let config = TestConfig::script(SCRIPT).with(&steering(behaviour)).with(more);
    config.start().await.expect("a server")
}

/// The answer to a message whose id begins with `rule`.
async fn told(server: &TestServer, rule: &str) -> Reply {
    server.say("x").field("messageId", &format!("{rule}-1")).send().await.expect("a reply")
}

pub(crate) fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

/// The text of the status.
pub(crate) fn words(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

/// Nothing in the text is the agent's own.
fn is_revised(text: &str) -> bool {
    !text.contains("secret") && text.contains("rewritten")
}

#[tokio::test]
async fn what_is_stored_pushed_streamed_and_listed_is_what_was_shown() {
    let server =
        script(r#"revise = "rewrite""#, "[push]\nallow = [\"127.0.0.0/8\"]\n[tasks]\nlist_all_anonymous = true").await;
    let (url, mut received) = receiver().await;
    let http = |path: &str| server.client().post(format!("{}{path}", server.url())).header("a2a-version", "1.0");
    let message = |id: &str| json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "x"}]});

    let sent =
        json!({"message": message("chunks-jsonrpc"), "configuration": {"taskPushNotificationConfig": {"url": url}}});
    let sent = server.call("SendMessage", sent.to_string()).send().await.expect("a reply");
    assert!(is_revised(&sent.text), "{}", sent.text);
    let task = sent.task()["id"].as_str().expect("an id").to_owned();
    loop {
        let (_, event) = received.recv().await.expect("an event");
        if !event["statusUpdate"].is_object() || !event["statusUpdate"]["status"]["message"].is_null() {
            assert!(is_revised(&event.to_string()), "{event}");
        }
        if state(&event["statusUpdate"]) == "TASK_STATE_COMPLETED" {
            break;
        }
    }
    let read = server.call("GetTask", json!({"id": task}).to_string()).send().await.expect("a reply");
    assert!(is_revised(&read.text), "{}", read.text);
    let streamed = server.say("x").field("messageId", "chunks-streamed").streaming().open().await.expect("a stream");
    let events = Value::Array(streamed.rest().await.expect("events")).to_string();
    assert!(is_revised(&events), "{events}");
    let listed = server.call("ListTasks", r#"{"includeArtifacts":true}"#).send().await.expect("a reply");
    assert!(is_revised(&listed.text), "{}", listed.text);

    let body = json!({"message": message("chunks-rest")});
    let rest = http("/a2a/rest/message:send").json(&body).send().await.expect("an answer").text().await.expect("text");
    assert!(is_revised(&rest), "{rest}");
    let body = json!({"message": message("chunks-rest-stream")});
    let rest = http("/a2a/rest/message:stream").json(&body).send().await.expect("an answer");
    let rest = rest.text().await.expect("text");
    assert!(is_revised(&rest), "{rest}");

    let older = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": {
        "kind": "message", "messageId": "chunks-older", "role": "user", "parts": [{"kind": "text", "text": "x"}]}}});
    let older = server.client().post(format!("{}/a2a/jsonrpc", server.url())).json(&older).send().await;
    let older = older.expect("an answer").text().await.expect("text");
    assert!(is_revised(&older), "{older}");

    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    let part = pb::Part { content: Some(pb::part::Content::Text("x".to_owned())), ..pb::Part::default() };
    let message = pb::Message {
        message_id: "chunks-grpc".to_owned(),
        role: pb::Role::User.into(),
        parts: vec![part],
        ..pb::Message::default()
    };
    let request = pb::SendMessageRequest { message: Some(message), ..pb::SendMessageRequest::default() };
    let mut request = tonic::Request::new(request);
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("ASCII"));
    let answer = A2aServiceClient::new(channel).send_message(request).await.expect("an answer");
    let answer = format!("{answer:?}");
    assert!(is_revised(&answer), "{answer}");
}

#[tokio::test]
async fn a_card_number_across_two_chunks_never_leaves() {
    let server = script(r#"revise = "hold""#, "").await;
    let stream = server.say("x").field("messageId", "chunks-1").streaming().open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    let chunks: Vec<&Value> = events.iter().filter_map(|event| event["result"].get("artifactUpdate")).collect();
    assert_eq!(chunks.len(), 1, "{events:?}");
    assert_eq!(chunks[0]["artifact"]["parts"], json!([{"text": "secret 4111 1111"}, {"text": " 1111 1111"}]));
    assert_eq!((&chunks[0]["lastChunk"], chunks[0].get("append")), (&json!(true), None));

    // An extension that sees both chunks at once sees the number.
    let both = format!("{}{}", steering_as("urn:see", r#"revise = "seen""#, ""), steering(r#"revise = "hold""#));
    let server = TestConfig::script(SCRIPT).with(&both).start().await.expect("a server");
    let task = told(&server, "chunks").await.task().clone();
    let seen = task["artifacts"][0]["parts"][0]["text"].as_str().expect("a text").to_owned();
    assert!(seen.contains("secret 4111 1111 1111 1111"), "{seen}");
}

#[tokio::test]
async fn a_turn_that_ends_without_a_last_chunk_sends_what_was_held() {
    let server = script(r#"revise = "hold""#, "").await;
    let stream = server.say("x").field("messageId", "open-1").streaming().open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    let chunks: Vec<&Value> = events.iter().filter_map(|event| event["result"].get("artifactUpdate")).collect();
    assert_eq!(chunks.len(), 1, "{events:?}");
    assert_eq!(chunks[0]["artifact"]["parts"], json!([{"text": "one two"}]));
    assert_eq!(chunks[0]["lastChunk"], json!(true));
    assert_eq!(state(&events.last().expect("an event")["result"]["statusUpdate"]), "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_refused_answer_fails_the_task_with_the_reason() {
    for rule in ["chunks", "answer"] {
        let server = script(r#"revise = "refuse""#, "").await;
        let reply = told(&server, rule).await;
        let task = reply.task();
        assert_eq!((state(task), words(task)), ("TASK_STATE_FAILED", "revise was told to refuse"), "{}", reply.text);
        assert!(task["artifacts"].is_null(), "{task}");
        let params = json!({"id": task["id"]}).to_string();
        let read = server.call("GetTask", params).send().await.expect("a reply");
        assert_eq!(words(&read.body["result"]), "revise was told to refuse");
        assert!(!read.text.contains("secret message") && !read.text.contains("4111"), "{}", read.text);
    }
}

#[tokio::test]
async fn a_question_is_revised_before_the_task_waits() {
    let server = script(r#"revise = "rewrite""#, "").await;
    let reply = told(&server, "ask").await;
    assert_eq!((state(reply.task()), words(reply.task())), ("TASK_STATE_INPUT_REQUIRED", "rewritten"));
}

#[tokio::test]
async fn a_fault_in_revise_fails_the_task_and_tells_nothing() {
    for command in ["trap", "no-part", "foreign-metadata", "hold-message", "bad-json"] {
        let server = script(&format!("revise = \"{command}\""), "").await;
        let reply = told(&server, "chunks").await;
        assert_eq!(state(reply.task()), "TASK_STATE_FAILED", "{command}: {}", reply.text);
        assert!(words(reply.task()).contains("error id"), "{command}: {}", reply.text);
        assert!(!reply.text.contains("4111"), "{command}: {}", reply.text);
    }
}

/// A template agent with these rules, whose sessions are stored in `folder`.
fn template(instruction: &str, extensions: &str, folder: &Path) -> TestConfig {
    let config = TestConfig::template(instruction).set("agent.output_key", "last_answer").with(extensions);
    config.set("tasks.data_dir", folder.join("data"))
}

/// The events of the agent `app` in the context `c`.
pub(crate) async fn session(folder: &Path, app: &str) -> Vec<Arc<Event>> {
    let file = folder.join("data/conversations.sqlite");
    let store = SqliteStore::open(&file, None, Limits::default()).await.expect("a store");
    let key = ConversationKey::new("", app, "A2A_USER_c", "c");
    store.conversation(&key, Window::ALL).await.expect("a conversation").history
}

/// The texts of the agent's events.
pub(crate) fn said(events: &[Arc<Event>]) -> Vec<String> {
    let parts = events.iter().filter(|event| !event.is_from_user()).flat_map(|event| event.parts.iter());
    parts.map(|part| serde_json::to_string(part).expect("JSON")).collect()
}

#[tokio::test]
async fn the_session_has_the_answer_that_the_client_saw() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = "[[agent.model.scripted.rules]]\nwhen = \"^pieces$\"\nanswer = \"one secret two secret\"\nchunks = 4";
    let config = template("A secret.", &steering(r#"revise = "upper""#), folder.path()).with(rules);
    let server = config.start().await.expect("a server");
    for (text, expected) in [("prompt", "A SECRET."), ("pieces", "ONE SECRET TWO SECRET")] {
        let reply = server.say(text).context("c").send().await.expect("a reply");
        let parts = reply.task()["artifacts"][0]["parts"].as_array().expect("parts").clone();
        let shown: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        assert_eq!(shown, expected, "{}", reply.text);
    }
    let texts = said(&session(folder.path(), "test_agent").await);
    assert_eq!(texts, [r#"{"text":"A SECRET."}"#, r#"{"text":"ONE SECRET TWO SECRET"}"#]);
}

#[tokio::test]
async fn the_output_key_has_the_answer_that_the_client_saw() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = template("last={last_answer?}", &steering(r#"revise = "rewrite""#), folder.path());
    let server = config.start().await.expect("a server");
    server.say("prompt").context("c").send().await.expect("a reply");
    let store = SqliteStore::open(&folder.path().join("data/conversations.sqlite"), None, Limits::default()).await;
    let key = ConversationKey::new("", "test_agent", "A2A_USER_c", "c");
    let found = store.expect("a store").conversation(&key, Window::NONE).await.expect("a conversation");
    assert_eq!(found.state.merged().to_json_string(), r#"{"last_answer":"rewritten"}"#);
}

#[tokio::test]
async fn a_refused_answer_is_not_in_the_session() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = template("A secret.", &steering(r#"revise = "refuse""#), folder.path()).start().await;
    let server = server.expect("a server");
    let reply = server.say("prompt").context("c").send().await.expect("a reply");
    assert_eq!(state(reply.task()), "TASK_STATE_FAILED", "{}", reply.text);
    let events = session(folder.path(), "test_agent").await;
    assert!(events.len() > 1 && said(&events).is_empty(), "{events:?}");
    assert!(!format!("{events:?}").contains("secret"), "{events:?}");
}

#[tokio::test]
async fn text_before_a_tool_call_is_revised_in_the_session_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/mcp_server.py");
    let more = format!(
        r#"
        [[agent.model.scripted.rules]]
        when = "^sum$"
        answer = "I add secret numbers."
        call = [{{ tool = "sum", arguments = '{{"a": 1, "b": 2}}' }}]

        [[agent.model.scripted.rules]]
        when = ""
        after = "sum"
        answer = "The secret is 3."

        [[agent.mcp]]
        name = "test"
        command = "python3"
        args = [{program:?}]
        "#
    );
    let config = template("I", &steering(r#"revise = "upper""#), folder.path()).with(&more);
    let server = config.start().await.expect("a server");
    let reply = server.say("sum").context("c").send().await.expect("a reply");
    assert_eq!(reply.answer(), "THE SECRET IS 3.", "{}", reply.text);
    let texts = said(&session(folder.path(), "test_agent").await);
    assert_eq!(texts.first().map(String::as_str), Some(r#"{"text":"I ADD SECRET NUMBERS."}"#), "{texts:?}");
    assert_eq!(texts.last().map(String::as_str), Some(r#"{"text":"THE SECRET IS 3."}"#), "{texts:?}");
}

/// The table of the steering extension in front of an agent behind the server, where the hook `steering` is refused. The
/// component in `folder` has the hook as an interface of another package, which the host ignores.
pub(crate) fn unsteered(extension: &str, folder: &Path) -> String {
    let unsteered = folder.join("unsteered.wasm");
    fs::write(&unsteered, without_steering()).expect("a file");
    let shipped = format!("component = {:?}", component("test-steering"));
    extension.replace(&shipped, &format!("component = {unsteered:?}"))
}

fn without_steering() -> Vec<u8> {
    let (from, to) = (b"annex:extension/steering@", b"other:extension/steering@");
    let mut bytes = fs::read(component("test-steering")).expect("the component");
    while let Some(at) = bytes.windows(from.len()).position(|window| window == from) {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    bytes
}

#[tokio::test]
async fn the_state_of_an_upstream_is_read_from_the_content_that_the_client_saw() {
    let upstream = mirror("").await;
    for (command, is_changed) in [("ok", true), ("empty", false), ("refuse", false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let extension = unsteered(&steering(&format!("revise = \"{command}\"")), folder.path());
        let config = TestConfig::upstream(upstream.url()).with(&extension);
        // The mirror's data part has the message that reached it.
        let config = config.set("agent.state.receive", "data-part").set("agent.state.receive_key", "message");
        let config = config.set("tasks.data_dir", folder.path().join("data"));
        let front = config.start().await.expect("the front starts");
        let reply = front.say("secret").context("c").send().await.expect("a reply");
        let expected = if command == "refuse" { "TASK_STATE_FAILED" } else { "TASK_STATE_COMPLETED" };
        assert_eq!(state(reply.task()), expected, "{command}: {}", reply.text);
        let file = folder.path().join("data/conversations.sqlite");
        let store = SqliteStore::open(&file, None, Limits::default()).await.expect("a store");
        let key = ConversationKey::new("", "front", "A2A_USER_c", "c");
        let found = store.conversation(&key, Window::NONE).await.expect("a conversation").state.merged();
        assert_eq!(found.to_json_string().contains("secret"), is_changed, "{command}: {}", found.to_json_string());
    }
}

#[tokio::test]
async fn a_refusal_of_an_upstream_is_revised() {
    let upstream = mirror("").await;
    for (command, expected) in [("ok", ""), ("rewrite", "rewritten"), ("empty", "an extension has removed the reason")]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let extension = unsteered(&steering(&format!("revise = \"{command}\"")), folder.path());
        let config = TestConfig::upstream(upstream.url()).with(&extension);
        let front = config.set("tasks.data_dir", folder.path().join("data")).start().await.expect("the front starts");
        for (text, code, own) in [
            ("invalid", -32602, "is not to my taste"),
            ("unsupported", -32004, "not today"),
            ("type", -32005, "text/odd"),
        ] {
            let reply = front.say(text).context("c").send().await.expect("a reply");
            assert_eq!(reply.code(), code, "{command}: {}", reply.text);
            assert_eq!(reply.text.contains(own), command == "ok", "{command}: {}", reply.text);
            assert!(reply.text.contains(expected), "{command}: {}", reply.text);
            let events = format!("{:?}", session(folder.path(), "front").await);
            assert_eq!(events.contains(own), command == "ok", "{command}: {events}");
        }
    }
}

#[tokio::test]
async fn a_message_of_an_upstream_is_revised() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = mirror("").await;
    let extension = unsteered(&steering(r#"revise = "upper""#), folder.path());
    let config = TestConfig::upstream(upstream.url()).with(&extension);
    let config = config.set("tasks.data_dir", folder.path().join("data"));
    let front = config.start().await.expect("the front starts");
    let reply = front.say("answer").context("c").send().await.expect("a reply");
    assert_eq!(reply.body["result"]["message"]["parts"][0]["text"], "DIRECTLY.", "{}", reply.text);
    assert_eq!(reply.body["result"]["message"]["extensions"][0], STEERING);
    let pieces = front.say("pieces").context("c").send().await.expect("a reply");
    assert!(pieces.text.contains("THREE") && !pieces.text.contains("three"), "{}", pieces.text);
    let texts = said(&session(folder.path(), "front").await);
    assert_eq!(texts, [r#"{"text":"DIRECTLY."}"#, r#"{"text":"ONE TWO THREE"}"#]);
}
