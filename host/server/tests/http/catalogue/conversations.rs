use serde_json::json;

use crate::catalogue::{catalogue, send};

const URI: &str = "https://annex.example/session-sharing/v1";

#[tokio::test]
async fn the_agent_answers_from_what_it_was_told_of_the_conversation() {
    let server = catalogue().await;
    let event = json!({"seq": 1, "author": "planner", "role": "agent", "parts": [{"text": "Ada goes to Rome."}]});
    let shared = json!({"version": 1, "mode": "delta", "peer": "travel/ada/7", "upTo": 2, "events": [event]});
    let metadata = json!({"annex.example/session-sharing/v1/shared": shared});
    let reply = send(&server, URI, json!([{"text": "Is there a flight?"}]), metadata).await;
    assert_eq!(reply.answer(), "A flight to Rome leaves at nine.");
    assert_eq!(reply.task()["metadata"]["annex.example/session-sharing/v1/received"]["received"], 2, "{}", reply.text);
}
