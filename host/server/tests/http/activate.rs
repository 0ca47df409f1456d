//! Extensions that are active without a request by the client.

use std::collections::BTreeMap;
use std::path::Path;

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_grpc::pb::extension::CallRequest;
use annex_grpc::pb::extension::extension_service_client::ExtensionServiceClient;
use annex_grpc::pb::v0_3 as older;
use annex_server::Config;
use annex_test_support::{COMMAND_KEY, TEST_EXTENSION, TIMESTAMP, TestConfig, TestServer};
use prost_types::value::Kind;
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::test_extension;

mod callers;
mod identity;
mod readers;

/// The ways of a message to the server: the three bindings, and those of 0.3.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    JsonRpc,
    HttpJson,
    Grpc,
    OlderJsonRpc,
    OlderHttpJson,
    OlderGrpc,
}

const WAYS: [Way; 6] = [Way::JsonRpc, Way::HttpJson, Way::Grpc, Way::OlderJsonRpc, Way::OlderHttpJson, Way::OlderGrpc];

/// A request: the requested extensions, the commands and the caller. Empty texts are left out.
#[derive(Clone, Copy, Default)]
struct TestRequest<'a> {
    /// In the header.
    asks_for: &'a str,
    /// A command in the metadata of the message.
    command: &'a str,
    /// A URI in `extensions` of the message.
    names: &'a str,
    /// An API key.
    key: &'a str,
    /// A bearer token.
    token: &'a str,
}

/// The answer as a client sees it.
#[derive(Debug)]
struct TestAnswer {
    /// The extensions that were active, as the header of the answer names them.
    active: Option<String>,
    /// The text of the error.
    error: Option<String>,
}

/// The message by way of `way`.
async fn say(server: &TestServer, way: Way, said: TestRequest<'_>) -> TestAnswer {
    match way {
        Way::Grpc => say_grpc(server, said).await,
        Way::OlderGrpc => say_older_grpc(server, said).await,
        Way::JsonRpc | Way::HttpJson | Way::OlderJsonRpc | Way::OlderHttpJson => say_http(server, way, said).await,
    }
}

fn headers(way: Way, said: TestRequest<'_>) -> Vec<(&'static str, String)> {
    let is_older = matches!(way, Way::OlderJsonRpc | Way::OlderHttpJson | Way::OlderGrpc);
    let asks = if is_older { "x-a2a-extensions" } else { "a2a-extensions" };
    let version = if is_older { "0.3" } else { "1.0" };
    let token = if said.token.is_empty() { String::new() } else { format!("Bearer {}", said.token) };
    let headers = [
        ("a2a-version", version.to_owned()),
        (asks, said.asks_for.to_owned()),
        ("x-api-key", said.key.to_owned()),
        ("authorization", token),
    ];
    headers.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

async fn say_http(server: &TestServer, way: Way, said: TestRequest<'_>) -> TestAnswer {
    let mut message = match way {
        Way::OlderJsonRpc => json!({"kind": "message", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}),
        Way::OlderHttpJson => json!({"role": "ROLE_USER", "content": [{"text": "hi"}]}),
        _ => json!({"role": "ROLE_USER", "parts": [{"text": "hi"}]}),
    };
    message["messageId"] = uuid::Uuid::new_v4().to_string().into();
    if !said.command.is_empty() {
        message["metadata"] = json!({COMMAND_KEY: said.command});
    }
    if !said.names.is_empty() {
        message["extensions"] = json!([said.names]);
    }
    let params = json!({"message": message});
    let rpc = |method: &str| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let (path, body) = match way {
        Way::OlderJsonRpc => ("/a2a/jsonrpc", rpc("message/send")),
        Way::HttpJson => ("/a2a/rest/message:send", params),
        Way::OlderHttpJson => ("/a2a/rest/v1/message:send", params),
        Way::JsonRpc | Way::Grpc | Way::OlderGrpc => ("/a2a/jsonrpc", rpc("SendMessage")),
    };
    let mut request = server.client().post(format!("{}{path}", server.url())).json(&body);
    for (name, value) in headers(way, said) {
        request = request.header(name, value);
    }
    let response = request.send().await.expect("an answer");
    let echo =
        if matches!(way, Way::OlderJsonRpc | Way::OlderHttpJson) { "x-a2a-extensions" } else { "a2a-extensions" };
    let active = response.headers().get(echo).map(|value| value.to_str().expect("ASCII").to_owned());
    let status = response.status();
    let body: Value = response.json().await.expect("JSON");
    let is_error = !status.is_success() || body.get("error").is_some();
    TestAnswer { active, error: is_error.then(|| body.to_string()) }
}

/// The command as metadata of a message.
fn metadata(said: TestRequest<'_>) -> Option<prost_types::Struct> {
    (!said.command.is_empty()).then(|| prost_types::Struct {
        fields: BTreeMap::from([(
            COMMAND_KEY.to_owned(),
            prost_types::Value { kind: Some(Kind::StringValue(said.command.to_owned())) },
        )]),
    })
}

async fn say_older_grpc(server: &TestServer, said: TestRequest<'_>) -> TestAnswer {
    let message = older::Message {
        message_id: uuid::Uuid::new_v4().to_string(),
        role: older::Role::User.into(),
        content: vec![older::Part { part: Some(older::part::Part::Text("hi".to_owned())), metadata: None }],
        metadata: metadata(said),
        extensions: Some(said.names.to_owned()).filter(|uri| !uri.is_empty()).into_iter().collect(),
        ..older::Message::default()
    };
    let configuration = older::SendMessageConfiguration { blocking: true, ..Default::default() };
    let mut request = tonic::Request::new(older::SendMessageRequest {
        request: Some(message),
        configuration: Some(configuration),
        metadata: None,
    });
    for (name, value) in headers(Way::OlderGrpc, said) {
        request.metadata_mut().insert(name, value.parse().expect("ASCII"));
    }
    let mut client = older::a2a_service_client::A2aServiceClient::new(channel(server).await);
    match client.send_message(request).await {
        Ok(response) => {
            let active = response.metadata().get("x-a2a-extensions");
            TestAnswer { active: active.map(|value| value.to_str().expect("ASCII").to_owned()), error: None }
        }
        Err(status) => TestAnswer { active: None, error: Some(status.message().to_owned()) },
    }
}

async fn say_grpc(server: &TestServer, said: TestRequest<'_>) -> TestAnswer {
    let metadata = metadata(said);
    let part = pb::Part { content: Some(pb::part::Content::Text("hi".to_owned())), ..pb::Part::default() };
    let message = pb::Message {
        message_id: uuid::Uuid::new_v4().to_string(),
        role: pb::Role::User.into(),
        parts: vec![part],
        metadata,
        extensions: Some(said.names.to_owned()).filter(|uri| !uri.is_empty()).into_iter().collect(),
        ..pb::Message::default()
    };
    let message = pb::SendMessageRequest { message: Some(message), ..pb::SendMessageRequest::default() };
    let mut request = tonic::Request::new(message);
    for (name, value) in headers(Way::Grpc, said) {
        request.metadata_mut().insert(name, value.parse().expect("ASCII"));
    }
    match A2aServiceClient::new(channel(server).await).send_message(request).await {
        Ok(response) => {
            let active = response.metadata().get("a2a-extensions");
            TestAnswer { active: active.map(|value| value.to_str().expect("ASCII").to_owned()), error: None }
        }
        Err(status) => TestAnswer { active: None, error: Some(status.message().to_owned()) },
    }
}

async fn channel(server: &TestServer) -> Channel {
    Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel")
}

/// An agent that says one word.
fn script() -> TestConfig {
    let steps = r#"[{ artifact = { id = "a", parts = [{ text = "done" }] } }, { status = { state = "completed" } }]"#;
    TestConfig::script(&format!("[[agent.rule]]\nsteps = {steps}\n"))
}

async fn server(extensions: &str) -> TestServer {
    script().with(extensions).start().await.expect("the server starts")
}

/// An extension that finds something wrong with each message.
const OBJECTS: &str = "[extension.parameters.behaviour]\ncheck = \"violation\"";

#[tokio::test]
async fn an_extension_that_is_always_active_checks_messages_of_who_does_not_ask_for_it() {
    let objecting = server(&test_extension(&format!("activate = \"always\"\n{OBJECTS}"))).await;
    let content = server(&test_extension("activate = \"always\"")).await;
    for way in WAYS {
        let refused = say(&objecting, way, TestRequest::default()).await;
        let error = refused.error.expect("an error");
        assert!(error.contains("/message/parts/0: was told to object"), "{way:?}: {error}");
        let taken = say(&content, way, TestRequest::default()).await;
        assert_eq!((taken.active.as_deref(), taken.error), (Some(TEST_EXTENSION), None), "{way:?}");
        let asked = say(&content, way, TestRequest { asks_for: TEST_EXTENSION, ..TestRequest::default() }).await;
        assert_eq!(asked.active.as_deref(), Some(TEST_EXTENSION), "{way:?}: it is named once");
    }
    let reply = objecting.say("hi").context("c").send().await.expect("a reply");
    assert_eq!((reply.code(), reply.violations()), (-32_602, vec!["/message/parts/0".to_owned()]), "{}", reply.text);
    let refused = objecting.say("hi").streaming().send().await.expect("a reply");
    assert_eq!(refused.code(), -32_602, "{}", refused.text);
    let tasks = objecting.call("ListTasks", r#"{"contextId":"c"}"#).send().await.expect("a list");
    assert_eq!(tasks.body["result"]["totalSize"], 0);
}

#[tokio::test]
async fn header_and_artifact_say_that_an_extension_was_active_which_nobody_asked_for() {
    let timestamp =
        "[[extension]]\ncomponent = \"timestamp\"\nactivate = \"always\"\n[extension.grants]\nclock = true\n";
    let server = server(timestamp).await;
    let reply = server.say("hi").send().await.expect("a reply");
    assert_eq!(reply.extensions.as_deref(), Some(TIMESTAMP));
    assert_eq!(reply.task()["artifacts"][0]["extensions"], json!([TIMESTAMP]), "{}", reply.text);
    let events = server.say("hi").streaming().open().await.expect("a stream");
    assert_eq!(events.extensions.as_deref(), Some(TIMESTAMP));
    let events = events.rest().await.expect("events");
    let artifact = events.iter().find_map(|event| event["result"]["artifactUpdate"]["artifact"].as_object());
    assert_eq!(artifact.expect("an artifact")["extensions"], json!([TIMESTAMP]));
}

#[tokio::test]
async fn a_message_that_bears_its_metadata_or_names_it_activates_an_extension() {
    let by_metadata = server(&test_extension("activate = \"metadata\"")).await;
    let by_request = server(&test_extension("")).await;
    let bearing = TestRequest { command: "ok", ..TestRequest::default() };
    let naming = TestRequest { names: TEST_EXTENSION, ..TestRequest::default() };
    let others = TestRequest { names: "urn:other", ..TestRequest::default() };
    for way in WAYS {
        for (said, active) in [(bearing, true), (naming, true), (others, false), (TestRequest::default(), false)] {
            let heard = say(&by_metadata, way, said).await;
            assert_eq!((heard.active.is_some(), &heard.error), (active, &None), "{way:?}: {heard:?}");
            assert_eq!(say(&by_request, way, said).await.active, None, "{way:?}");
        }
        let asked = say(&by_metadata, way, TestRequest { asks_for: TEST_EXTENSION, ..TestRequest::default() }).await;
        assert_eq!(asked.active.as_deref(), Some(TEST_EXTENSION), "{way:?}");
    }
    let key = COMMAND_KEY;
    for (part, request, active) in [
        (json!({key: "ok"}), json!({}), true),
        (json!({}), json!({key: "ok"}), true),
        (json!({"k": 1}), json!({"k": 1}), false),
    ] {
        let message = json!({"messageId": part.to_string(), "role": "ROLE_USER", "parts": [{"text": "hi"}, {"text": "ho", "metadata": part}]});
        let params = json!({"message": message, "metadata": request});
        let reply = by_metadata.call("SendMessage", params.to_string()).send().await.expect("a reply");
        assert_eq!(reply.extensions.is_some(), active, "{params}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_required_extension_that_is_active_without_being_asked_for_is_not_missing() {
    let always = server(&test_extension("activate = \"always\"\nrequired = true")).await;
    let metadata = server(&test_extension("activate = \"metadata\"\nrequired = true")).await;
    for way in WAYS {
        let taken = say(&always, way, TestRequest::default()).await;
        assert_eq!((taken.active.as_deref(), taken.error), (Some(TEST_EXTENSION), None), "{way:?}");
        let bearing = say(&metadata, way, TestRequest { command: "ok", ..TestRequest::default() }).await;
        assert_eq!((bearing.active.as_deref(), bearing.error), (Some(TEST_EXTENSION), None), "{way:?}");
        let error = say(&metadata, way, TestRequest::default()).await.error.expect("it is missing");
        assert!(error.contains(TEST_EXTENSION), "{way:?}: {error}");
    }
}

/// Extensions `urn:a`, `urn:b` and so on, each with the keys of its `[[extension]]` and its dependencies.
fn chain(extensions: &[(&str, &str, &[&str])]) -> String {
    let one = |(uri, keys, needs): &(&str, &str, &[&str])| {
        test_extension(&format!(
            "{keys}\n[extension.parameters]\nuri = {uri:?}\nowns_keys = false\n\
             behaviour = {{ respond = \"none\" }}\ndepends_on = {needs:?}\n"
        ))
    };
    extensions.iter().map(one).collect()
}

#[tokio::test]
async fn an_extension_that_comes_unasked_brings_what_it_depends_on() {
    let always = "activate = \"always\"";
    let server = server(&chain(&[
        ("urn:a", "", &[]),
        ("urn:b", "", &["urn:a"]),
        ("urn:c", always, &["urn:b"]),
        ("urn:d", "", &[]),
        ("urn:e", "", &["urn:d"]),
    ]))
    .await;
    let active = async |asked: &str| server.say("hi").extensions(asked).send().await.expect("a reply").extensions;
    assert_eq!(active("").await.as_deref(), Some("urn:a,urn:b,urn:c"));
    // Who asks for one extension still has to ask for what that one depends on.
    assert_eq!(active("urn:e").await.as_deref(), Some("urn:a,urn:b,urn:c"));
    assert_eq!(active("urn:e,urn:d").await.as_deref(), Some("urn:a,urn:b,urn:c,urn:d,urn:e"));
}

#[tokio::test]
async fn methods_of_an_extension_that_is_always_active_need_no_asking() {
    let keys = |activate: &str| format!("activate = {activate:?}\nparameters = {{ methods = [\"test/echo\"] }}");
    let always = server(&test_extension(&keys("always"))).await;
    let reply = always.call("test/echo", "{}").send().await.expect("a reply");
    assert_eq!((reply.code(), reply.extensions.as_deref()), (0, Some(TEST_EXTENSION)), "{}", reply.text);
    let url = format!("{}/a2a/rest/extensions/test/test/echo", always.url());
    let response = always.client().post(url).header("a2a-version", "1.0").json(&json!({})).send().await;
    assert_eq!(response.expect("an answer").status(), 200);
    let mut request = tonic::Request::new(CallRequest { method: "test/echo".to_owned(), params_json: "{}".to_owned() });
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("a value"));
    let answer = ExtensionServiceClient::new(channel(&always).await).call(request).await.expect("an answer");
    assert_eq!(answer.metadata().get("a2a-extensions").expect("an echo"), TEST_EXTENSION);
    // A call of a method bears no message.
    let metadata = server(&test_extension(&keys("metadata"))).await;
    assert_eq!(metadata.call("test/echo", "{}").send().await.expect("a reply").code(), -32_008);
}

#[tokio::test]
async fn the_card_says_when_an_extension_is_active() {
    let described = async |activate: &str| {
        let server = server(&test_extension(activate)).await;
        let card = server.get("/.well-known/agent-card.json").await.expect("a card");
        let card: Value = card.json().await.expect("JSON");
        card["capabilities"]["extensions"][0]["description"].as_str().expect("a text").to_owned()
    };
    assert_eq!(described("activate = \"requested\"").await, "Misbehaves on command.");
    let always = described("activate = \"always\"").await;
    assert_eq!(always, "Misbehaves on command. Active for every message, whether the client asks for it or not.");
    let metadata = described("activate = \"metadata\"").await;
    assert!(
        metadata.ends_with("Active also when a message bears its metadata or names it in `extensions`."),
        "{metadata}"
    );
}

#[test]
fn a_misspelt_activate_is_refused_with_what_is_accepted() {
    let config = TestConfig::template("i").extension("x.wasm", "activate = \"allways\"");
    let error = Config::parse(Path::new("test.toml"), &config.toml()).expect_err("refused").to_string();
    for word in ["\"allways\"", "did you mean `always`", "`requested`", "`metadata`"] {
        assert!(error.contains(word), "{error}");
    }
}

/// Each agent has its own extensions: a setting in one tenant's file affects no other tenant.
#[tokio::test]
async fn an_extension_that_a_tenant_has_always_active_is_for_its_messages_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, config: &TestConfig| std::fs::write(folder.path().join(name), config.toml()).expect("a file");
    write("acme.toml", &script().with(&test_extension(&format!("activate = \"always\"\n{OBJECTS}"))));
    write("annex.toml", &script().with("[[tenant]]\nname = \"acme\"\nconfig = \"acme.toml\""));
    let server = TestServer::from_file(&folder.path().join("annex.toml"), None).await.expect("a server");
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
    for (tenant, code) in [("acme", -32_602), ("", 0)] {
        let params = json!({"tenant": tenant, "message": message});
        let reply = server.call("SendMessage", params.to_string()).send().await.expect("a reply");
        assert_eq!(reply.code(), code, "{tenant:?}: {}", reply.text);
    }
}
