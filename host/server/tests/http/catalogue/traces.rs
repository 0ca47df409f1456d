use annex_test_support::Reply;
use serde_json::Value;

use crate::catalogue::catalogue;

const URI: &str = "https://github.com/a2aproject/a2a-samples/extensions/traceability/v1";
const KEY: &str = "github.com/a2aproject/a2a-samples/extensions/traceability/v1/traceability";

fn trace(reply: &Reply) -> &Value {
    &reply.task()["artifacts"][0]["metadata"][KEY]
}

#[tokio::test]
async fn the_artifact_shows_which_model_made_it() {
    let server = catalogue().await;
    let reply = server.say("hello").extensions(URI).send().await.expect("a reply");
    let trace = trace(&reply);
    assert_eq!(trace["trace_id"], reply.task()["id"], "{}", reply.text);
    let steps = trace["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 1, "{trace}");
    let step = &steps[0];
    assert_eq!((&step["call_type"], &step["trace_id"]), (&Value::from("TOOL"), &trace["trace_id"]));
    assert_eq!(step["additional_attributes"]["kind"], "model");
    assert!(step["step_action"]["tool_invocation"]["tool_name"].is_string(), "{step}");
    assert!(step["start_time"].is_string() && step["latency"].is_u64(), "{step}");
}

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
async fn turns_of_one_conversation_have_steps_with_ids_of_their_own() {
    let server = catalogue().await;
    let first = server.say("hello").extensions(URI).send().await.expect("a reply");
    let second = server.say("hello").context(first.context()).extensions(URI).send().await.expect("a reply");
    let step = |reply: &Reply| {
        let trace = trace(reply);
        (trace["trace_id"].clone(), trace["steps"][0]["step_id"].clone())
    };
    assert_ne!(step(&first), step(&second));
}

#[tokio::test]
async fn nobody_else_gets_a_trace() {
    let server = catalogue().await;
    let reply = server.say("hello").send().await.expect("a reply");
    assert!(!reply.text.contains("trace_id"), "{}", reply.text);
}
