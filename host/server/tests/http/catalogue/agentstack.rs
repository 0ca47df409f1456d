//! The extensions of agentstack, with metadata as its SDK reads and writes it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use annex_test_support::{Reply, TestConfig};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::catalogue::{catalogue, declaration, refusal};
use crate::durable::state;
use crate::forgotten::files_with;
use crate::tools;

fn uri(name: &str) -> String {
    format!("https://a2a-extensions.agentstack.beeai.dev/{name}/v1")
}

#[tokio::test]
async fn the_card_describes_the_agent_for_user_interfaces() {
    let server = catalogue().await;
    let entry = declaration(&server, &uri("ui/agent-detail")).await;
    assert_eq!(entry["params"]["interaction_mode"], "multi-turn", "{entry}");
    assert_eq!(entry["params"]["tools"][0]["name"], "notes", "{entry}");
    let entry = declaration(&server, &uri("ui/error")).await;
    assert_eq!(entry["params"], json!({"include_stacktrace": false}));
}

#[tokio::test]
async fn a_link_of_the_answer_is_a_citation() {
    let server = catalogue().await;
    let uri = uri("ui/citation");
    let reply = server.say("Who wrote notes?").extensions(&uri).send().await.expect("a reply");
    let artifact = &reply.task()["artifacts"][0];
    let cited = &artifact["metadata"][&uri]["citations"];
    assert_eq!(cited[0]["url"], "https://example.com/ada", "{}", reply.text);
    assert_eq!((&cited[0]["start_index"], &cited[0]["end_index"]), (&json!(10), &json!(42)), "{}", reply.text);
    let other = server.say("Who wrote notes?").send().await.expect("a reply");
    assert!(other.task()["artifacts"][0].get("metadata").is_none(), "{}", other.text);
}

#[tokio::test]
async fn a_new_task_waits_for_a_form_and_the_agent_gets_its_values() {
    let form = r#"
        [[extension]]
        component = "agentstack"
        [extension.parameters]
        extension = "form-request"
        [extension.parameters.form]
        title = "Who are you?"
        fields = [{ id = "name", type = "text", label = "Name", required = true }]
    "#;
    let server = TestConfig::template("{form?}").with(form).start().await.expect("the server starts");
    let uri = uri("ui/form_request");
    let asked = server.say("prompt").extensions(&uri).send().await.expect("a reply");
    assert_eq!(state(asked.task()), "TASK_STATE_INPUT_REQUIRED", "{}", asked.text);
    let message = &asked.task()["status"]["message"];
    assert_eq!(message["metadata"][&uri]["fields"][0]["id"], "name", "{}", asked.text);
    let task = asked.task()["id"].as_str().expect("an id");
    let answer =
        |values: &'static str| server.say("prompt").field("taskId", task).extensions(&uri).metadata(&uri, values);
    let empty = answer(r#"{"values": {"name": {"type": "text", "value": ""}}}"#).send().await.expect("a reply");
    let pointer = "/message/metadata/https:~1~1a2a-extensions.agentstack.beeai.dev~1ui~1form_request~1v1/values/name";
    assert_eq!((empty.code(), empty.violations()), (-32602, vec![pointer.to_owned()]), "{}", empty.text);
    let done = answer(r#"{"values": {"name": {"type": "text", "value": "Ada"}}}"#).send().await.expect("a reply");
    assert_eq!(state(done.task()), "TASK_STATE_COMPLETED", "{}", done.text);
    assert_eq!(serde_json::from_str::<Value>(done.answer()).ok(), Some(json!({"name": "Ada"})), "{}", done.text);
}

#[tokio::test]
async fn each_step_of_the_agent_is_shown_while_it_works() {
    let trajectory = r#"
        [[extension]]
        component = "agentstack-trajectory"
        [extension.grants]
        agent-steps = { steer = true }
    "#;
    let server = tools::config("", trajectory).start().await.expect("the server starts");
    let uri = uri("ui/trajectory");
    let stream = server.say("sum 1 2").extensions(&uri).streaming().open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    let step = |event: &Value| {
        let step = &event["result"]["statusUpdate"]["status"]["message"]["metadata"][&uri];
        let title = step["title"].as_str()?.to_owned();
        Some((title, step["content"].as_str().map(str::to_owned)))
    };
    let steps: Vec<_> = events.iter().filter_map(step).collect();
    let tool = "Calls the tool sum".to_owned();
    let answered = Some("The tool has answered.".to_owned());
    assert_eq!(steps.get(1..3), Some([(tool.clone(), None), (tool, answered)].as_slice()), "{events:?}");
    assert!(steps.iter().all(|(title, _)| title.starts_with("Calls the ")), "{steps:?}");
}

#[tokio::test]
async fn a_task_waits_for_a_secret_that_the_agent_gets_and_nothing_stores() {
    let secrets = r#"
        [[agent.model.scripted.rules]]
        when = "^check$"
        answer = "it begins with {first}"
        extract = { first = "key=(.)" }

        [[extension]]
        component = "agentstack"
        activate = "always"
        [extension.grants]
        forget-metadata = true
        session-state = { read = true, scopes = ["temp"] }
        [extension.parameters]
        extension = "secrets"
        secret_demands = { default = { name = "Key" } }
    "#;
    let folder = tempfile::tempdir().expect("a folder");
    let config = TestConfig::template("key={temp:secret_default?}").set("tasks.data_dir", folder.path());
    let mut server = config.with(secrets).start().await.expect("the server starts");
    let uri = uri("auth/secrets");
    let demands = json!({"secret_demands": {"default": {"name": "Key"}}});
    assert_eq!(declaration(&server, &uri).await["params"], demands);
    let asked = server.say("check").send().await.expect("a reply");
    assert_eq!(state(asked.task()), "TASK_STATE_AUTH_REQUIRED", "{}", asked.text);
    assert_eq!(asked.task()["status"]["message"]["metadata"][&uri], demands, "{}", asked.text);
    let task = asked.task()["id"].as_str().expect("an id");
    let answer = |metadata: &'static str| server.say("check").field("taskId", task).metadata(&uri, metadata).send();
    let wrong = answer(r#"{"secret_fulfillments": {"other": {"secret": "plum-4711"}}}"#).await.expect("a reply");
    assert_eq!(wrong.code(), -32602, "{}", wrong.text);
    let without = answer("{}").await.expect("a reply");
    assert_eq!(state(without.task()), "TASK_STATE_AUTH_REQUIRED", "{}", without.text);
    let done = answer(r#"{"secret_fulfillments": {"default": {"secret": "plum-4711"}}}"#).await.expect("a reply");
    assert_eq!((state(done.task()), done.answer()), ("TASK_STATE_COMPLETED", "it begins with p"), "{}", done.text);
    for reply in [&asked, &wrong, &without, &done] {
        assert!(!reply.text.contains("plum-4711"), "{}", reply.text);
    }
    server.begin_shutdown();
    server.ended().await.expect("a clean end");
    assert_eq!(files_with(folder.path(), "plum-4711"), Vec::<String>::new());
}

/// A token endpoint on a free port, with the forms that it has received. It gives a token for each code.
async fn token_endpoint() -> (u16, Arc<Mutex<Vec<String>>>) {
    let forms = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&forms);
    let answer = move |form: String| {
        seen.lock().expect("no panic").push(form);
        async { Json(json!({"access_token": "t-0k3n-4711", "token_type": "Bearer"})) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let router = Router::new().route("/token", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (port, forms)
}

/// A rule of the scripted model that repeats the first letter of the token, and the extension for that token.
fn oauth(port: u16, key: &Path) -> String {
    format!(
        r#"
        [[agent.model.scripted.rules]]
        when = "^check$"
        answer = "it begins with {{first}}"
        extract = {{ first = "token=(.)" }}

        [[extension]]
        component = "agentstack-oauth"
        activate = "always"
        [extension.limits]
        wall_ms = 10000
        [extension.grants]
        forget-metadata = true
        keyvalue = {{}}
        session-state = {{ read = true, scopes = ["temp"] }}
        secrets = {{ STATE_KEY = {{ file = {key:?} }} }}
        [extension.grants.http]
        allow = [{{ methods = ["POST"], scheme = "http", host = "127.0.0.1", port = {port} }}]
        allow_private = ["127.0.0.1"]
        [extension.parameters]
        authorization_endpoint = "https://login.example.com/authorize"
        token_endpoint = "http://127.0.0.1:{port}/token"
        client_id = "annex"
        redirect_uris = ["https://client.example.com/callback"]
        "#
    )
}

/// The state that the status of a waiting task names in its URL.
fn state_sent_with(reply: &Reply) -> &str {
    let url = &reply.task()["status"]["message"]["metadata"][&uri("auth/oauth")]["authorization_endpoint_url"];
    let (_, rest) = url.as_str().and_then(|url| url.split_once("&state=")).expect("a state");
    rest.split_once('&').expect("more fields").0
}

#[tokio::test]
async fn a_task_waits_for_an_authorization_and_nothing_stores_code_or_token() {
    let (port, forms) = token_endpoint().await;
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "0123456789abcdef0123456789abcdef").expect("a file");
    let data = folder.path().join("data");
    let config =
        TestConfig::template("token={temp:oauth_token?}").set("tasks.data_dir", &data).with(&oauth(port, &key));
    let mut server = config.start().await.expect("the server starts");
    let uri = uri("auth/oauth");
    let demands = json!({"oauth_demands": {"default": {"redirect_uri": true}}});
    assert_eq!(declaration(&server, &uri).await["params"], demands);
    let callback = "https://client.example.com/callback";
    let fulfillments = json!({"oauth_fulfillments": {"default": {"redirect_uri": callback}}}).to_string();
    let asked = server.say("check").metadata(&uri, &fulfillments).send().await.expect("a reply");
    assert_eq!(state(asked.task()), "TASK_STATE_AUTH_REQUIRED", "{}", asked.text);
    let sent_state = state_sent_with(&asked);
    let task = asked.task()["id"].as_str().expect("an id");
    let answer = |redirect_uri: String| {
        let answer = json!({"redirect_uri": redirect_uri}).to_string();
        server.say("check").field("taskId", task).metadata(&uri, &answer).send()
    };
    // A forged answer ends the authorization, and a message without an answer gets another one.
    let forged = answer(format!("{callback}?code=c0de-4711&state=forged")).await.expect("a reply");
    assert_eq!(forged.code(), -32602, "{}", forged.text);
    let late = answer(format!("{callback}?code=c0de-4711&state={sent_state}")).await.expect("a reply");
    assert_eq!(late.code(), -32602, "{}", late.text);
    assert!(forms.lock().expect("no panic").is_empty(), "no code was exchanged");
    let again = server.say("check").field("taskId", task).send().await.expect("a reply");
    assert_eq!(state(again.task()), "TASK_STATE_AUTH_REQUIRED", "{}", again.text);
    let sent_state = state_sent_with(&again);
    let done = answer(format!("{callback}?code=c0de-4711&state={sent_state}")).await.expect("a reply");
    assert_eq!((state(done.task()), done.answer()), ("TASK_STATE_COMPLETED", "it begins with t"), "{}", done.text);
    let form = forms.lock().expect("no panic").join(" ");
    assert!(form.contains("grant_type=authorization_code&code=c0de-4711&redirect_uri=https%3A%2F%2Fclient"), "{form}");
    for reply in [&asked, &forged, &late, &again, &done] {
        assert!(!reply.text.contains("c0de-4711") && !reply.text.contains("t-0k3n"), "{}", reply.text);
    }
    server.begin_shutdown();
    server.ended().await.expect("a clean end");
    for word in ["c0de-4711", "t-0k3n-4711"] {
        assert_eq!(files_with(&data, word), Vec::<String>::new(), "{word}");
    }
}

#[tokio::test]
async fn a_form_that_cannot_be_filled_in_keeps_the_server_from_starting() {
    let with = |parameters: &str| format!("component = \"agentstack\"\n[extension.parameters]\n{parameters}");
    for (parameters, named) in [
        ("extension = \"form\"", "initial_form"),
        ("extension = \"error\"\ndetail = {}", "detail"),
        ("extension = \"secrets\"\nsecret_demands = { a = { name = \"A\" } }", "forget-metadata = true"),
        ("extension = \"form-request\"\nform = { fields = [{ id = \"a\", type = \"number\" }] }", "number"),
    ] {
        let error = refusal(&with(parameters)).await;
        assert!(error.contains(named), "{named}: {error}");
    }
}
