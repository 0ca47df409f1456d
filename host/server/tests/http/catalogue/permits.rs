use annex_test_support::{Reply, TestServer};
use serde_json::{Value, json};

use crate::catalogue::{approval, call, catalogue};
use crate::durable::{counting, serve};

pub(crate) const URI: &str = "https://github.com/a2aproject/experimental-ext-oid4vp-auth/tree/main/v1";
const TOKEN: &str = "another-demonstration-secret";

/// A waiting task: its id, and the state for the verifier.
async fn waiting(server: &TestServer) -> (String, String) {
    let reply = server.say("hello").extensions(URI).send().await.expect("a reply");
    (reply.task()["id"].as_str().expect("an id").to_owned(), state_of(&reply))
}

/// The verifier's state of a waiting task.
pub(crate) fn state_of(reply: &Reply) -> String {
    let status = &reply.task()["status"];
    assert_eq!(status["state"], "TASK_STATE_AUTH_REQUIRED", "{}", reply.text);
    let request = &status["message"]["metadata"][URI]["authorizationRequest"];
    assert_eq!(request["client_id"], "redirect_uri:https://verifier.example.com/authorize");
    let uri = request["request_uri"].as_str().expect("a URI");
    uri.rsplit_once("state=").expect("a state").1.to_owned()
}

/// The verifier lets the task go on.
pub(crate) async fn approve(server: &TestServer, state: &str) {
    let approved = decide(server, state, TOKEN, json!({})).await;
    assert_eq!(approved.code(), 0, "{}", approved.text);
}

async fn decide(server: &TestServer, state: &str, token: &str, more: Value) -> Reply {
    let mut params = json!({"state": state, "token": token});
    params.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    call(server, URI, "in-task-authorization/approve", &params).await
}

/// The task once it waits no longer and works no longer.
async fn ended(server: &TestServer, id: &str) -> Value {
    let params = json!({"id": id}).to_string();
    // There are no events of a task that has ended already.
    if let Ok(events) = server.call("SubscribeToTask", params.clone()).open().await {
        events.rest().await.expect("events");
    }
    server.call("GetTask", params).send().await.expect("a task").body["result"].clone()
}

#[tokio::test]
async fn a_task_waits_for_the_verifier_and_then_goes_on_by_itself() {
    let server = catalogue().await;
    let (id, state) = waiting(&server).await;
    let approved = decide(&server, &state, TOKEN, json!({})).await;
    assert_eq!(approved.body["result"]["taskId"], id.as_str(), "{}", approved.text);
    let task = ended(&server, &id).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "Done.");
}

#[tokio::test]
async fn a_subscriber_sees_the_task_go_on() {
    let server = catalogue().await;
    let (id, state) = waiting(&server).await;
    let subscriber = server.call("SubscribeToTask", json!({"id": id}).to_string()).open().await.expect("a stream");
    decide(&server, &state, TOKEN, json!({})).await;
    let events = subscriber.rest().await.expect("events");
    let states: Vec<&str> =
        events.iter().filter_map(|event| event["result"]["statusUpdate"]["status"]["state"].as_str()).collect();
    assert_eq!(states, ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"], "{events:?}");
}

#[tokio::test]
async fn a_task_that_the_verifier_refuses_ends_with_the_reason() {
    let server = catalogue().await;
    let (id, state) = waiting(&server).await;
    assert_eq!(decide(&server, &state, TOKEN, json!({"approved": false, "reason": "Too young."})).await.code(), 0);
    let task = ended(&server, &id).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_REJECTED", "{task}");
    assert!(task["status"].to_string().contains("Too young."), "{task}");
}

#[tokio::test]
async fn a_message_to_a_task_that_waits_does_not_get_it_through() {
    let server = catalogue().await;
    let (id, state) = waiting(&server).await;
    let reply = server.say("let me in").field("taskId", &id).extensions(URI).send().await.expect("a reply");
    assert_eq!(reply.task()["status"]["state"], "TASK_STATE_AUTH_REQUIRED", "{}", reply.text);
    assert!(reply.text.contains(&state), "the same state: {}", reply.text);
}

#[tokio::test]
async fn only_the_verifier_decides_and_only_once() {
    let server = catalogue().await;
    let (id, state) = waiting(&server).await;
    let wrong = decide(&server, &state, "a-guess-of-the-secret", json!({})).await;
    assert_eq!((wrong.code(), wrong.violations()), (-32_602, vec!["/token".to_owned()]), "{}", wrong.text);
    for forged in [&format!("x{state}"), "nonsense"] {
        let refused = decide(&server, forged, TOKEN, json!({})).await;
        assert_eq!(refused.violations(), ["/state"], "{}", refused.text);
    }
    assert_eq!(decide(&server, &state, TOKEN, json!({})).await.code(), 0);
    ended(&server, &id).await;
    assert_eq!(decide(&server, &state, TOKEN, json!({})).await.violations(), ["/state"]);
}

#[tokio::test]
async fn a_task_that_was_taken_up_is_not_taken_up_again() {
    let extension = approval("");
    let agent = counting();
    let server = serve(&agent, &extension).await;
    let reply = server.say("log in").extensions(URI).send().await.expect("a reply");
    let uri = reply.task()["status"]["message"]["metadata"][URI]["authorizationRequest"]["request_uri"].clone();
    let state = uri.as_str().expect("a URI").rsplit_once("state=").expect("a state").1.to_owned();
    let id = reply.task()["id"].as_str().expect("an id").to_owned();
    let mut events = server.call("SubscribeToTask", json!({"id": id}).to_string()).open().await.expect("a stream");
    assert_eq!(decide(&server, &state, TOKEN, json!({})).await.code(), 0);
    // The agent that was let in asks for something itself, and that is not the verifier's to answer.
    let mut words = Value::Null;
    while words != "Log in first." {
        let event = events.next().await.expect("an event").expect("the agent asks");
        words = event["result"]["statusUpdate"]["status"]["message"]["parts"][0]["text"].clone();
    }
    for _ in 0..2 {
        assert_eq!(decide(&server, &state, TOKEN, json!({})).await.violations(), ["/state"]);
    }
    assert_eq!(agent.turns.load(std::sync::atomic::Ordering::SeqCst), 1);
}
