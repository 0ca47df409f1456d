//! The session's state on its way to the upstream, and back.

use annex_test_support::{Reply, STATE_INJECTION, STATE_KEY, TestServer};
use serde_json::{Value, json};

use super::{config, mirror, seen};
use crate::state_injection;

/// A front with state injection, which may see the session's state.
async fn front(url: &str, state: &str) -> TestServer {
    let agent = format!("[agent.state]\n{state}");
    let extension = state_injection("session-state = { read = true }");
    TestServer::start(&format!("{}{extension}", config(url, &agent))).await.expect("the front starts")
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
    check(template, "/message/parts/0/text", "The user is Ada (1.50).".into()).await;
}

#[tokio::test]
async fn what_the_upstream_says_of_state_changes_nothing_unless_the_config_says_where_to_look() {
    let mirror = mirror("").await;
    let front = front(mirror.url(), "send = \"request-metadata\"\nkey = \"st\"").await;
    let reply = told(&front).await;
    assert!(reply.text.contains("mood"), "the mirror did send a change: {}", reply.text);
    assert_eq!(reply.returned_state(), &json!({"name": "Ada", "n": 1.5}), "{}", reply.text);
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
