//! State machines: extensions that watch and steer what becomes of a task.

use annex_test_support::TestServer;
use serde_json::{Value, json};

use crate::three_ways::{ALL, TestAnswer, TestMessage, say};
use crate::{agent, test_extension};

const URI: &str = "https://annex.example/test/v1";

async fn server(more: &str) -> TestServer {
    agent("Be short.", &test_extension(more)).await
}

/// The task after a message that tells the extension what to do.
async fn told(server: &TestServer, command: &str) -> Value {
    let request = server.say("prompt").extensions(URI).metadata("test/command", command);
    request.send().await.expect("a reply").task().clone()
}

fn words(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn each_change_of_state_is_seen_in_order() {
    let server = server("").await;
    let request = server.say("prompt").streaming().extensions(URI);
    let request = request.metadata("test/command", r#"{"change":"annotate","respond":"none"}"#);
    let events = request.open().await.expect("a stream").rest().await.expect("events");
    let seen: Vec<&str> = events
        .iter()
        .filter_map(|event| event["result"]["statusUpdate"]["metadata"]["test/response"].as_str())
        .collect();
    assert_eq!(seen, ["TASK_STATE_SUBMITTED to TASK_STATE_WORKING", "TASK_STATE_WORKING to TASK_STATE_COMPLETED"]);
}

#[tokio::test]
async fn an_extension_lets_a_task_wait_before_the_agent_has_run() {
    let server = server("").await;
    let task = told(&server, r#"{"begin":"authorize","respond":"none"}"#).await;
    assert_eq!((task["status"]["state"].as_str(), words(&task)), (Some("TASK_STATE_AUTH_REQUIRED"), "Go on?"));
    assert_eq!(task["status"]["message"]["metadata"]["test/response"], "authorize");
    assert_eq!(task["status"]["message"]["extensions"][0], URI);
    assert!(task["artifacts"].is_null(), "the agent has not run: {task}");
}

#[tokio::test]
async fn a_task_that_waits_goes_on_with_the_next_message() {
    let server = server("parameters = { behaviour = { begin = \"first\" } }").await;
    let first = server.say("prompt").extensions(URI).send().await.expect("a reply");
    assert_eq!(first.task()["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let id = first.task()["id"].as_str().expect("an id").to_owned();
    let request = server.say("prompt").field("taskId", &id).extensions(URI);
    let second = request.send().await.expect("a reply");
    assert_eq!(second.task()["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(second.task()["id"].as_str(), Some(id.as_str()));
    let roles: Vec<&str> =
        second.task()["history"].as_array().expect("a history").iter().filter_map(|m| m["role"].as_str()).collect();
    assert_eq!(roles.iter().filter(|role| **role == "ROLE_USER").count(), 2, "{roles:?}");
}

#[tokio::test]
async fn an_extension_keeps_a_task_from_ending() {
    let server = server("").await;
    let task = told(&server, r#"{"change":"interrupt","respond":"none"}"#).await;
    assert_eq!((task["status"]["state"].as_str(), words(&task)), (Some("TASK_STATE_INPUT_REQUIRED"), "Go on?"));
    assert!(task["artifacts"].is_array(), "the agent has run: {task}");
}

#[tokio::test]
async fn a_veto_ends_the_task_with_its_reason() {
    let server = server("").await;
    let task = told(&server, r#"{"begin":"veto"}"#).await;
    assert_eq!(
        (task["status"]["state"].as_str(), words(&task)),
        (Some("TASK_STATE_REJECTED"), "begin was told to veto")
    );
    let task = told(&server, r#"{"change":"veto"}"#).await;
    assert_eq!(
        (task["status"]["state"].as_str(), words(&task)),
        (Some("TASK_STATE_FAILED"), "change was told to veto")
    );
}

#[tokio::test]
async fn an_extension_that_is_against_everything_loops_nobody() {
    let server = server("").await;
    for change in ["always-interrupt", "always-veto"] {
        let task = told(&server, &format!(r#"{{"change":"{change}"}}"#)).await;
        let state = task["status"]["state"].as_str().expect("a state");
        assert!(["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_FAILED"].contains(&state), "{change}: {state}");
    }
    let task = told(&server, r#"{"begin":"veto","change":"always-veto"}"#).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "its veto of the rejection is a fault: {task}");
    let reply = server.say("prompt").send().await.expect("a reply");
    assert_eq!(reply.task()["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_fault_on_the_way_fails_the_task_and_tells_nothing() {
    let server = server("").await;
    for command in [r#"{"change":"trap"}"#, r#"{"change":"foreign-key"}"#, r#"{"change":"loop"}"#] {
        let task = told(&server, command).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_FAILED", "{command}: {task}");
        assert!(words(&task).contains("error id"), "{command}: {task}");
        // A good turn in between, so that it is not quarantined.
        assert_eq!(told(&server, r#"{}"#).await["status"]["state"], "TASK_STATE_COMPLETED");
    }
}

#[tokio::test]
async fn a_fault_before_the_agent_runs_leaves_nothing_behind() {
    let server = server("").await;
    for command in [r#"{"begin":"trap"}"#, r#"{"begin":"foreign-key"}"#, r#"{"begin":"error"}"#] {
        let request = server.say("prompt").context("c").extensions(URI).metadata("test/command", command);
        let reply = request.send().await.expect("a reply");
        assert_eq!(reply.code(), -32_603, "{command}: {}", reply.text);
    }
    let tasks = server.call("ListTasks", r#"{"contextId":"c"}"#).send().await.expect("a reply");
    assert_eq!(tasks.body["result"]["totalSize"], 0);
}

#[tokio::test]
async fn what_is_vetoed_is_not_in_the_session_and_what_waits_is() {
    for (begin, stored) in [("veto", "test="), ("interrupt", "test=delta")] {
        let server = agent("test={test?}", &test_extension("")).await;
        let command = format!(r#"{{"begin":"{begin}","validate":"delta"}}"#);
        let request = server.say("remember").context("c").extensions(URI);
        request.metadata("test/command", &command).send().await.expect("a reply");
        let reply = server.say("prompt").context("c").send().await.expect("a reply");
        assert_eq!(reply.answer(), stored, "{begin}");
    }
}

#[tokio::test]
async fn a_task_waits_on_each_binding_alike() {
    let server = server("required = true\nparameters = { behaviour = { begin = \"authorize\" } }").await;
    for binding in ALL {
        let said = TestMessage { text: "prompt", ..Default::default() };
        let heard = say(&server, binding, said).await;
        // Nobody can activate anything this way, so the required extension refuses it; the same on each binding.
        assert!(matches!(&heard, TestAnswer::Error(reason, _) if reason == "EXTENSION_SUPPORT_REQUIRED"), "{heard:?}");
    }
}

/// Cancels a waiting task and returns the result of CancelTask.
async fn canceled(behaviour: &str) -> Value {
    let server = server(&format!("parameters = {{ behaviour = {{ begin = \"first\", {behaviour} }} }}")).await;
    let waiting = server.say("prompt").extensions(URI).send().await.expect("a reply");
    assert_eq!(waiting.task()["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{}", waiting.text);
    let id = json!({"id": waiting.task()["id"]}).to_string();
    let reply = server.call("CancelTask", id).send().await.expect("a reply");
    reply.body["result"].clone()
}

#[tokio::test]
async fn the_cancellation_of_a_task_that_waits_is_seen() {
    let task = canceled("change = \"annotate\", respond = \"none\"").await;
    assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(task["metadata"]["test/response"], "TASK_STATE_INPUT_REQUIRED to TASK_STATE_CANCELED", "{task}");
}

#[tokio::test]
async fn an_extension_keeps_no_task_that_waits_from_being_cancelled() {
    for change in ["always-veto", "always-interrupt", "trap", "loop", "error", "foreign-key"] {
        let change = format!("{change}-canceled");
        let task = canceled(&format!("change = {change:?}")).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED", "{change}: {task}");
    }
}

#[tokio::test]
async fn a_busy_conversation_holds_up_no_cancellation() {
    let server = server("parameters = { behaviour = { begin = \"first\" } }").await;
    let waiting = server.say("prompt").context("c").extensions(URI).send().await.expect("a reply");
    let id = json!({"id": waiting.task()["id"]}).to_string();
    let mut busy = server.say("slow").context("c").streaming().open().await.expect("a stream");
    busy.next().await.expect("an event");
    let reply = server.call("CancelTask", id).send().await.expect("a reply");
    assert_eq!(reply.body["result"]["status"]["state"], "TASK_STATE_CANCELED", "{}", reply.text);
    let events = busy.rest().await.expect("events");
    assert!(events.last().expect("an event").to_string().contains("TASK_STATE_COMPLETED"), "{events:?}");
}
