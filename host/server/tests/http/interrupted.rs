//! Tasks that wait for their client: for input, or for credentials (A2A 1.0 sections 3.4.3 and 7.6).

use annex_test_support::{Events, TestServer};
use serde_json::{Value, json};

use crate::durable::{counting, id_of, serve, state};
use crate::push::receiver;
use crate::three_ways::{ALL, TestAnswer, TestMessage, say};

async fn subscribe(server: &TestServer, id: &str) -> Events {
    server.call("SubscribeToTask", json!({"id": id}).to_string()).open().await.expect("a stream")
}

/// The states and kinds of events, in order.
fn kinds(events: &[Value]) -> Vec<String> {
    let kind = |event: &Value| {
        let (kind, update) = event["result"].as_object().and_then(|result| result.iter().next()).expect("one member");
        update["status"]["state"].as_str().unwrap_or(kind).trim_start_matches("TASK_STATE_").to_owned()
    };
    events.iter().map(kind).collect()
}

#[tokio::test]
async fn a_task_that_wants_credentials_says_so_and_goes_on_with_the_next_message_on_each_binding() {
    let agent = counting();
    let server = serve(&agent, "").await;
    for binding in ALL {
        let first = say(&server, binding, TestMessage { text: "log in", ..TestMessage::default() }).await;
        let TestAnswer::Task(id, paused) = first else { panic!("{binding:?}: no task") };
        assert_eq!(paused, "TASK_STATE_AUTH_REQUIRED", "{binding:?}");
        let read = server.call("GetTask", json!({"id": id}).to_string()).send().await.expect("a task");
        assert_eq!(read.body["result"]["status"]["message"]["parts"][0]["text"], "Log in first.");
        let subscriber = subscribe(&server, &id).await;
        let second = say(&server, binding, TestMessage { text: "work", task: &id, ..TestMessage::default() }).await;
        assert_eq!(second, TestAnswer::Task(id, "TASK_STATE_COMPLETED".to_owned()), "{binding:?}");
        let events = subscriber.rest().await.expect("events");
        assert_eq!(kinds(&events), ["AUTH_REQUIRED", "WORKING", "artifactUpdate", "COMPLETED"], "{binding:?}");
    }
}

#[tokio::test]
async fn receivers_hear_that_credentials_are_wanted_and_of_the_next_turn() {
    let agent = counting();
    let server = serve(&agent, "[push]\nallow = [\"127.0.0.0/8\"]").await;
    let (url, mut received) = receiver().await;
    let params = json!({
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "log in"}]},
        "configuration": {"taskPushNotificationConfig": {"url": url}}
    });
    let paused = server.call("SendMessage", params.to_string()).send().await.expect("a reply");
    let (_, event) = received.recv().await.expect("an event");
    assert_eq!(state(&event["statusUpdate"]), "TASK_STATE_AUTH_REQUIRED");
    server.say("work").field("taskId", &id_of(&paused)).send().await.expect("a reply");
    let mut states = Vec::new();
    while states.last().is_none_or(|last| last != "TASK_STATE_COMPLETED") {
        let (_, event) = received.recv().await.expect("an event");
        states.extend(event["statusUpdate"]["status"]["state"].as_str().map(ToOwned::to_owned));
    }
    assert_eq!(states, ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]);
}
