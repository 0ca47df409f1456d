//! The answers that clients get where an extension fails and may be skipped, or is in quarantine.

use annex_test_support::{COMMAND_KEY, Reply, Request, TEST_EXTENSION, TIMESTAMP, TestServer};
use serde_json::Value;

use crate::{agent, test_extension};

/// Failed turns in a row that open a quarantine.
const FAULTS: usize = 5;

/// A server with the test extension, whose table has `more`, followed by the timestamp extension.
async fn server(more: &str) -> TestServer {
    let timestamp = "[[extension]]\ncomponent = \"timestamp\"\ngrants = { clock = true }";
    agent("Say something.", &format!("{}\n{timestamp}", test_extension(more))).await
}

fn request(server: &TestServer, command: &str) -> Request {
    server.say("prompt").extensions(TEST_EXTENSION).extensions(TIMESTAMP).metadata(COMMAND_KEY, command)
}

async fn command(server: &TestServer, text: &str) -> Reply {
    request(server, text).send().await.expect("a reply")
}

async fn readiness(server: &TestServer) -> Value {
    let reply = server.get("/readyz").await.expect("a reply");
    assert_eq!(reply.status().as_u16(), 200, "a quarantined extension does not stop the server");
    serde_json::from_slice(&reply.bytes().await.expect("a body")).expect("JSON")
}

#[tokio::test]
async fn a_skipped_extension_is_neither_in_the_header_nor_on_the_artifact() {
    let server = server("on_failure = \"skip\"").await;
    let both = format!("{TEST_EXTENSION},{TIMESTAMP}");
    assert_eq!(command(&server, "\"ok\"").await.extensions, Some(both));
    // On the way in, and on the way out.
    for text in [r#""trap""#, r#""loop""#, r#"{"respond":"trap"}"#, r#"{"respond":"foreign-key"}"#] {
        let reply = command(&server, text).await;
        assert_eq!((reply.code(), reply.extensions.as_deref()), (0, Some(TIMESTAMP)), "{text}: {}", reply.text);
        assert_eq!(reply.task()["status"]["state"], "TASK_STATE_COMPLETED", "{text}");
        assert_eq!(reply.task()["artifacts"][0]["extensions"], Value::from(vec![TIMESTAMP]), "{text}");
        assert!(!reply.text.contains("test/response"), "{text}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_stream_goes_on_without_an_extension_that_failed() {
    let server = server("on_failure = \"skip\"").await;
    let stream = request(&server, r#"{"respond":"trap"}"#).streaming().open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    let artifact = &events.iter().find(|event| event["result"]["artifactUpdate"].is_object()).expect("an artifact");
    assert_eq!(artifact["result"]["artifactUpdate"]["artifact"]["extensions"], Value::from(vec![TIMESTAMP]));
    let last = events.last().expect("events");
    assert_eq!(last["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_refusal_stays_one_although_the_extension_may_be_skipped() {
    let server = server("on_failure = \"skip\"").await;
    assert_eq!(command(&server, "\"violation\"").await.code(), -32_602);
    assert_eq!(command(&server, "\"reject\"").await.code(), -32_950);
}

#[tokio::test]
async fn a_quarantined_extension_is_refused_as_overloaded_and_listed_as_what_it_is() {
    let server = server("").await;
    assert_eq!(readiness(&server).await, serde_json::json!({"phase": "ready", "edition": 1}));
    for _ in 0..FAULTS {
        assert_eq!(command(&server, "\"trap\"").await.code(), -32_603);
    }
    let reply = command(&server, "\"ok\"").await;
    assert_eq!(reply.code(), -32_000, "{}", reply.text);
    assert!(reply.text.contains(TEST_EXTENSION) && reply.text.contains("quarantined"), "{}", reply.text);
    assert_eq!(readiness(&server).await["quarantined"], Value::from(vec![TEST_EXTENSION]));
    let neighbour = server.say("prompt").extensions(TIMESTAMP).send().await.expect("a reply");
    assert_eq!((neighbour.code(), neighbour.extensions.as_deref()), (0, Some(TIMESTAMP)));
}

#[tokio::test]
async fn a_quarantined_extension_that_may_be_skipped_refuses_nobody() {
    let server = server("on_failure = \"skip\"").await;
    for _ in 0..FAULTS * 2 {
        let reply = command(&server, "\"trap\"").await;
        assert_eq!((reply.code(), reply.extensions.as_deref()), (0, Some(TIMESTAMP)), "{}", reply.text);
    }
    assert_eq!(readiness(&server).await["quarantined"], Value::from(vec![TEST_EXTENSION]));
}
