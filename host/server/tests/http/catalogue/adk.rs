//! The integration extension of Google's ADK.

use serde_json::{Value, json};

use crate::catalogue::catalogue;

const URI: &str = "https://google.github.io/adk-docs/a2a/a2a-extension/";

#[tokio::test]
async fn the_task_has_the_mark_that_clients_of_adk_look_for() {
    let server = catalogue().await;
    let stream = server.say("hello").extensions(URI).streaming().open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    let statuses: Vec<&Value> =
        events.iter().map(|event| &event["result"]["statusUpdate"]).filter(|status| status.is_object()).collect();
    let mark = json!({"adk_agent_executor_v2": true});
    assert_eq!(statuses.first().map(|status| &status["metadata"][URI]), Some(&mark), "{events:?}");
    let reply = server.say("hello").extensions(URI).send().await.expect("a reply");
    assert_eq!(reply.task()["metadata"][URI], mark, "{}", reply.text);
    let other = server.say("hello").send().await.expect("a reply");
    assert!(other.task()["metadata"].get(URI).is_none(), "{}", other.text);
}
