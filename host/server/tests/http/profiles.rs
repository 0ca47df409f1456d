//! Profiles: extensions that restrict the content of messages, or rewrite messages.

use serde_json::json;

use crate::{agent, test_extension};

const URI: &str = "https://annex.example/test/v1";
const REWRITING: &str = "[extension.grants]\nrewrite-message = true";

#[tokio::test]
async fn a_message_that_breaks_the_profile_leaves_nothing_behind() {
    let server = agent("Be short.", &test_extension("")).await;
    let request = server.say("prompt").context("c").extensions(URI);
    let reply = request.metadata("test/command", r#"{"check":"violation"}"#).send().await.expect("a reply");
    assert_eq!((reply.code(), reply.violations()), (-32_602, vec!["/message/parts/0".to_owned()]));
    let tasks = server.call("ListTasks", r#"{"contextId":"c"}"#).send().await.expect("a reply");
    assert_eq!(tasks.body["result"]["totalSize"], 0);
}

#[tokio::test]
async fn the_agent_and_the_history_get_the_message_as_it_was_rewritten() {
    let server = agent("Be short.", &test_extension(REWRITING)).await;
    let request = server.say("prompt").extensions(URI).metadata("test/command", r#"{"check":"rewrite"}"#);
    let reply = request.send().await.expect("a reply");
    assert_eq!(reply.answer(), "nothing matched");
    assert_eq!(reply.task()["history"][0]["parts"], json!([{"text": "rewritten"}]));
}

#[tokio::test]
async fn a_message_that_is_sent_again_is_told_by_what_was_sent() {
    let server = agent("Be short.", &test_extension(REWRITING)).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let request = server.say("prompt").context("c").field("messageId", "m-1").extensions(URI);
        let request = request.metadata("test/command", r#"{"check":"rewrite"}"#);
        ids.push(request.send().await.expect("a reply").task()["id"].clone());
    }
    assert!(ids[0].is_string() && ids[0] == ids[1], "{ids:?}");
}

#[tokio::test]
async fn rewriting_without_the_grant_is_a_fault_that_tells_nothing() {
    let server = agent("Be short.", &test_extension("")).await;
    let request = server.say("prompt").extensions(URI).metadata("test/command", r#"{"check":"rewrite"}"#);
    let reply = request.send().await.expect("a reply");
    assert_eq!(reply.code(), -32_603);
}
