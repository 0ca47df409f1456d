//! Sessions as operators see them: through the admin API and in the place where they are kept.

use std::fs;

use annex_server::{Config, SessionFilter, SessionName, Sessions};
use annex_test_support::{TestConfig, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::auth::{ADA, BOB, api_keys};
use crate::installation::{TOKEN, admin};

const URI: &str = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1";
const KEY: &str = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state";

fn files(more: &str) -> TempDir {
    let agent = TestConfig::template("Be short.").set("agent.name", "keeper").set("agent.output_key", "last");
    let config = agent.set("agent.model.scripted.fallback", "well").set("admin.token_file", "token");
    let config = config.set("tasks.data_dir", "data").with(more);
    let config = config.extension("state-injection", "grants.session-state = { read = true }");
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("token"), TOKEN).expect("a file");
    fs::write(folder.path().join("annex.toml"), config.toml()).expect("a file");
    folder
}

fn path(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("annex.toml")
}

async fn serve(folder: &TempDir) -> TestServer {
    TestServer::from_file(&path(folder), None).await.expect("a server")
}

fn state(name: &str) -> Value {
    json!({KEY: {"name": name, "n": 1, "api_token": "t-1", "deep": {"Password": "p-1"}}})
}

/// Sends a message with metadata and requests `extensions`.
async fn send(server: &TestServer, context: &str, extensions: &str, metadata: Value) -> Value {
    let message = json!({"messageId": uuid::Uuid::new_v4().to_string(), "contextId": context, "role": "ROLE_USER",
        "parts": [{"text": "hi"}], "metadata": metadata});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
    let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).header("a2a-version", "1.0");
    let request = request.header("a2a-extensions", extensions).json(&body);
    request.send().await.expect("an answer").json().await.expect("JSON")
}

/// Sends a message with state, as the caller with the key.
async fn say(server: &TestServer, key: &str, context: &str, text: &str) {
    let state = state("Ada");
    let message = json!({"messageId": uuid::Uuid::new_v4().to_string(), "contextId": context, "role": "ROLE_USER",
        "parts": [{"text": text}], "metadata": state});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {
        "message": message, "configuration": {"returnImmediately": text == "slow"}}});
    let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).header("a2a-version", "1.0");
    let request = request.header("a2a-extensions", URI).header("x-api-key", key).json(&body);
    let answer: Value = request.send().await.expect("an answer").json().await.expect("JSON");
    assert!(answer["result"]["task"]["id"].is_string(), "{answer}");
}

#[tokio::test]
async fn sessions_are_listed_shown_and_deleted_and_secrets_are_hidden() {
    let folder = files("");
    let server = serve(&folder).await;
    say(&server, "", "one", "hi").await;
    say(&server, "", "two", r#"{"card": {"PINCode": 4711, "spinning": true}}"#).await;
    let (status, list) = admin(&server, "GET", "sessions?limit=1", Value::Null).await;
    assert_eq!((status, &list["sessions"][0]["context"]), (200, &json!("one")), "{list}");
    assert_eq!(list["sessions"][0]["keys"], json!(["name", "n", "api_token", "deep", "last"]));
    let next = list["next"].as_str().expect("a place");
    let (_, rest) = admin(&server, "GET", &format!("sessions?limit=5&after={next}"), Value::Null).await;
    assert_eq!((&rest["sessions"][0]["context"], &rest["next"]), (&json!("two"), &Value::Null), "{rest}");
    assert_eq!(admin(&server, "GET", "sessions?after=nonsense", Value::Null).await.0, 400);

    let (_, shown) = admin(&server, "GET", "sessions/one", Value::Null).await;
    let expected =
        json!({"name": "Ada", "n": 1, "api_token": "[hidden]", "deep": {"Password": "[hidden]"}, "last": "well"});
    assert_eq!((&shown["state"], &shown["agent"]), (&expected, &json!("keeper")), "{shown}");
    let (_, events) = admin(&server, "GET", "sessions/one/events", Value::Null).await;
    let authors: Vec<&Value> =
        events["events"].as_array().expect("events").iter().map(|event| &event["author"]).collect();
    assert_eq!(authors, ["user", "keeper"]);
    assert!(!events.to_string().contains("t-1") && !events.to_string().contains("p-1"), "{events}");
    let (_, events) = admin(&server, "GET", "sessions/two/events", Value::Null).await;
    let text = &events["events"][0]["parts"][0]["text"];
    assert_eq!(text, r#"{"card":{"PINCode":"[hidden]","spinning":true}}"#, "a text that is JSON: {events}");
    let (_, last) = admin(&server, "GET", "sessions/one/events?last=1", Value::Null).await;
    assert_eq!(last["events"][0]["parts"][0]["text"], "well");

    assert_eq!(admin(&server, "DELETE", "sessions/one", Value::Null).await.0, 200);
    for (method, path) in [("GET", "sessions/one"), ("DELETE", "sessions/one"), ("GET", "sessions/one/events")] {
        let (status, missing) = admin(&server, method, path, Value::Null).await;
        assert_eq!((status, &missing["error"]["code"]), (404, &json!("no_session")), "{method} {path}");
    }
}

#[tokio::test]
async fn a_session_is_found_without_its_user_while_one_user_has_it() {
    let folder = files(&api_keys());
    let server = serve(&folder).await;
    say(&server, ADA, "c", "hi").await;
    let (status, only) = admin(&server, "GET", "sessions/c", Value::Null).await;
    assert_eq!((status, &only["user"]), (200, &json!("principal:ada")), "{only}");
    assert_eq!(admin(&server, "GET", "sessions/c/events", Value::Null).await.0, 200);
    assert_eq!(admin(&server, "DELETE", "sessions/c", Value::Null).await.0, 404, "nobody anonymous has it");
    say(&server, BOB, "c", "hi").await;
    let (status, several) = admin(&server, "GET", "sessions/c", Value::Null).await;
    assert_eq!((status, &several["error"]["code"]), (409, &json!("several_users")));
    let named = several["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(
        named.contains("principal:ada, principal:bob") || named.contains("principal:bob, principal:ada"),
        "{named}"
    );
    assert_eq!(admin(&server, "GET", "sessions/none", Value::Null).await.0, 404);
    let (_, list) = admin(&server, "GET", "sessions", Value::Null).await;
    let user = list["sessions"][0]["user"].as_str().expect("a user");
    let (status, shown) = admin(&server, "GET", &format!("sessions/c?user={user}"), Value::Null).await;
    assert_eq!((status, &shown["user"]), (200, &json!(user)));
    let (_, others) = admin(&server, "GET", "sessions?user=principal:eve", Value::Null).await;
    assert_eq!(others["sessions"], json!([]));
    let (status, unknown) = admin(&server, "GET", "sessions?tenant=none", Value::Null).await;
    assert_eq!((status, &unknown["error"]["code"]), (404, &json!("no_tenant")));
}

#[tokio::test]
async fn a_session_is_not_deleted_under_a_turn() {
    let folder = files("");
    let server = serve(&folder).await;
    say(&server, "", "c", "slow").await;
    let (status, busy) = admin(&server, "DELETE", "sessions/c", Value::Null).await;
    assert_eq!((status, &busy["error"]["code"]), (409, &json!("busy")));
}

#[tokio::test]
async fn what_is_hidden_is_the_operators_choice() {
    let folder = files("[sessions]\nhide = [\"name\"]");
    let server = serve(&folder).await;
    say(&server, "", "c", "hi").await;
    let (_, shown) = admin(&server, "GET", "sessions/c", Value::Null).await;
    assert_eq!((&shown["state"]["name"], &shown["state"]["api_token"]), (&json!("[hidden]"), &json!("t-1")));
}

#[tokio::test]
async fn sessions_are_read_where_a_server_that_has_stopped_kept_them() {
    let folder = files("");
    let mut server = serve(&folder).await;
    say(&server, "", "c", "hi").await;
    let config = Config::read(&path(&folder)).expect("a config");
    let here = folder.path().to_owned();
    server.begin_shutdown();
    server.ended().await.expect("a clean end");
    let sessions = Sessions::open(&config, &here).await.expect("the store");
    let list = sessions.list(SessionFilter { limit: 10, ..SessionFilter::default() }).await.expect("a list");
    assert_eq!(json!(list)["sessions"][0]["context"], "c");
    let name = SessionName { context: "c".to_owned(), ..SessionName::default() };
    let shown = sessions.show(&name).await.expect("a session");
    assert_eq!(json!(shown)["state"]["api_token"], "[hidden]");
    assert_eq!(json!(sessions.events(&name, 10).await.expect("events"))["events"][1]["author"], "keeper");
    sessions.delete(&name).await.expect("deleted");
    assert!(sessions.show(&name).await.is_err());
}

#[tokio::test]
async fn a_refused_message_makes_no_session() {
    let folder = files("");
    let server = serve(&folder).await;
    let refused = send(&server, "c", URI, json!({KEY: "no object"})).await;
    assert_eq!(refused["error"]["code"], -32_602, "{refused}");
    let (_, list) = admin(&server, "GET", "sessions", Value::Null).await;
    assert_eq!(list["sessions"], json!([]));
}

#[tokio::test]
async fn state_that_comes_without_its_extension_changes_nothing() {
    let folder = files("");
    let server = serve(&folder).await;
    for (extensions, name) in [(URI, "Ada"), ("", "Bob")] {
        let answer = send(&server, "c", extensions, state(name)).await;
        assert!(answer["result"]["task"]["id"].is_string(), "{answer}");
    }
    let (_, shown) = admin(&server, "GET", "sessions/c", Value::Null).await;
    assert_eq!((&shown["state"]["name"], &shown["revision"]), (&json!("Ada"), &json!(4)), "{shown}");
}

#[tokio::test]
async fn turns_that_come_at_once_leave_a_history_that_alternates() {
    let folder = files("");
    let server = serve(&folder).await;
    futures::future::join_all((0..8).map(|_| send(&server, "c", URI, state("Ada")))).await;
    let (_, events) = admin(&server, "GET", "sessions/c/events", Value::Null).await;
    let events = events["events"].as_array().expect("events").clone();
    assert_eq!(events.len(), 16);
    for turn in events.chunks(2) {
        assert_eq!((&turn[0]["author"], &turn[1]["author"]), (&json!("user"), &json!("keeper")));
        assert_eq!(turn[0]["task"], turn[1]["task"]);
    }
}

/// Sends a message whose state is this, and returns the state of its task.
async fn keep(server: &TestServer, context: &str, state: Value) -> Value {
    send(server, context, URI, json!({KEY: state})).await["result"]["task"]["status"].clone()
}

fn scoped(more: &str) -> TempDir {
    let folder = files(more);
    let config = fs::read_to_string(path(&folder)).expect("a config");
    let grant = "read = true\nscopes = [\"user\", \"app\"]";
    let config = config.replace("read = true", grant);
    assert!(config.contains(grant), "{config}");
    fs::write(path(&folder), config).expect("a file");
    folder
}

#[tokio::test]
async fn keys_that_fill_a_shared_scope_are_listed_and_deleted_by_the_operator() {
    let folder = scoped("[sessions]\nmax_state_keys = 2");
    let server = serve(&folder).await;
    keep(&server, "c", json!({"app:a": 1, "app:token": 2, "user:a": 1, "user:b": 2, "own": 3})).await;
    let refused = send(&server, "d", URI, json!({KEY: {"app:new": 1}})).await.to_string();
    for word in ["the limit is 2", "ask the operator to delete", "sessions.max_state_keys"] {
        assert!(refused.contains(word), "{word}: {refused}");
    }
    let (status, shown) = admin(&server, "GET", "state", Value::Null).await;
    let expected = json!({"agent": "keeper", "state": {"app:a": 1, "app:token": "[hidden]"}});
    assert_eq!((status, shown), (200, expected));
    let (_, shown) = admin(&server, "GET", "state?context=c", Value::Null).await;
    assert_eq!(shown["state"], json!({"app:a": 1, "app:token": "[hidden]", "user:a": 1, "user:b": 2}));
    let user = shown["user"].as_str().expect("a user").to_owned();

    // It has to be said whose keys they are, and then none is deleted before all can be.
    for body in [json!({"keys": ["app:a", "user:a"]}), json!({"keys": ["app:a", "own"], "user": user})] {
        let (status, refusal) = admin(&server, "POST", "state/delete", body).await;
        assert_eq!((status, &refusal["error"]["code"]), (400, &json!("invalid_request")), "{refusal}");
    }
    let keys = json!({"keys": ["app:a", "user:a", "own", "none"], "context": "c"});
    let (status, done) = admin(&server, "POST", "state/delete", keys.clone()).await;
    assert_eq!((status, done), (200, json!({"deleted": ["app:a", "user:a", "own"], "missing": ["none"]})));
    let (status, gone) = admin(&server, "POST", "state/delete", keys).await;
    assert_eq!((status, &gone["error"]["code"]), (404, &json!("no_state")), "{gone}");
    let (_, shown) = admin(&server, "GET", "sessions/c", Value::Null).await;
    assert_eq!(shown["state"], json!({"last": "well", "app:token": "[hidden]", "user:b": 2}), "{shown}");
    keep(&server, "d", json!({"app:new": 1})).await;

    let (status, done) = admin(&server, "DELETE", &format!("state?user={user}"), Value::Null).await;
    assert_eq!((status, done), (200, json!({"user": user, "keys": 1})));
    let (status, gone) = admin(&server, "DELETE", &format!("state?user={user}"), Value::Null).await;
    assert_eq!((status, &gone["error"]["code"]), (404, &json!("no_state")), "{gone}");
    assert_eq!(admin(&server, "DELETE", "state", Value::Null).await.0, 400, "nobody is named");
    let (_, shown) = admin(&server, "GET", "state", Value::Null).await;
    assert_eq!(shown["state"], json!({"app:token": "[hidden]", "app:new": 1}));
}

#[tokio::test]
async fn null_removes_a_key_where_the_operator_says_so_and_is_a_value_elsewhere() {
    for (more, left) in [
        ("", json!({"a": null, "last": "well", "app:a": null})),
        ("[sessions]\nnull_removes = true", json!({"last": "well"})),
    ] {
        let folder = scoped(more);
        let server = serve(&folder).await;
        keep(&server, "c", json!({"a": 1, "app:a": 1})).await;
        keep(&server, "c", json!({"a": null, "app:a": null})).await;
        let (_, shown) = admin(&server, "GET", "sessions/c", Value::Null).await;
        assert_eq!(shown["state"], left, "{more}");
    }
}
