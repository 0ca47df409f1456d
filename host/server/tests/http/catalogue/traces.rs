use serde_json::Value;

use crate::catalogue::catalogue;

const URI: &str = "https://github.com/a2aproject/a2a-samples/extensions/traceability/v1";
const KEY: &str = "github.com/a2aproject/a2a-samples/extensions/traceability/v1/traceability";

#[tokio::test]
async fn a_stream_shows_it_on_the_last_chunk() {
    let server = catalogue().await;
    let events = server.say("hello").extensions(URI).streaming().open().await.expect("a stream");
    let events = events.rest().await.expect("events");
    let artifacts: Vec<&Value> =
        events.iter().map(|event| &event["result"]["artifactUpdate"]).filter(|update| update.is_object()).collect();
    let traced = |update: &&&Value| update["artifact"]["metadata"].get(KEY).is_some();
    assert!(artifacts.iter().all(|update| traced(&update) == (update["lastChunk"] == true)), "{artifacts:?}");
    assert_eq!(artifacts.iter().filter(traced).count(), 1);
}

#[tokio::test]
async fn nobody_else_gets_a_trace() {
    let server = catalogue().await;
    let reply = server.say("hello").send().await.expect("a reply");
    assert!(!reply.text.contains("trace_id"), "{}", reply.text);
}
