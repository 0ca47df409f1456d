//! Messages to a conversation that is busy.

use annex_test_support::{Reply, TestServer};
use serde_json::{Value, json};

use crate::durable::{counting, serve, serve_with};
use crate::three_ways::{ALL, TestMessage, say};

/// A task whose turn goes on until the agent may go.
async fn working_task(server: &TestServer, context: &str) -> (String, annex_test_support::Events) {
    let mut stream = server.say("wait").context(context).streaming().open().await.expect("a stream");
    loop {
        let event = stream.next().await.expect("an event").expect("one more")["result"].clone();
        if event["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING" {
            return (event["statusUpdate"]["taskId"].as_str().expect("an id").to_owned(), stream);
        }
    }
}

#[tokio::test]
async fn a_message_to_a_task_that_is_worked_on_is_refused_at_once_on_each_binding() {
    let agent = counting();
    let server = serve_with(&agent, "a2a_0_3 = true", "").await;
    let (task, stream) = working_task(&server, "c").await;
    for binding in ALL {
        let heard = say(&server, binding, TestMessage { text: "more", task: &task, ..TestMessage::default() }).await;
        assert_eq!(heard.error().0, "UNSUPPORTED_OPERATION", "{binding:?}");
    }
    let message = json!({"kind": "message", "messageId": "m", "role": "user", "taskId": task, "parts": [{"kind": "text", "text": "x"}]});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}});
    let older =
        server.client().post(format!("{}/a2a/jsonrpc", server.url())).json(&body).send().await.expect("an answer");
    let older: Value = older.json().await.expect("JSON");
    assert_eq!(older["error"]["code"], -32_004, "{older}");
    let streamed: Reply = server.say("more").field("taskId", &task).streaming().send().await.expect("a reply");
    assert!(streamed.text.contains("takes no message before it waits for one"), "{}", streamed.text);
    agent.go.add_permits(1);
    stream.rest().await.expect("events");
    assert_eq!(agent.turns.load(std::sync::atomic::Ordering::SeqCst), 1, "no other turn was begun");
}

#[tokio::test]
async fn the_stream_of_a_message_that_waits_for_the_turn_before_it_is_opened_at_once() {
    let agent = counting();
    let server = serve(&agent, "").await;
    let (_, stream) = working_task(&server, "c").await;
    // It is opened while the turn before it goes on: the agent has not been let go.
    let waiting = server.say("hello").context("c").streaming().open().await.expect("a stream");
    agent.go.add_permits(1);
    stream.rest().await.expect("events");
    let events = waiting.rest().await.expect("events");
    assert_eq!(events[0]["result"]["task"]["contextId"], "c");
    let last = &events.last().expect("events")["result"]["statusUpdate"];
    assert_eq!(last["status"]["state"], "TASK_STATE_COMPLETED", "{events:?}");
}
