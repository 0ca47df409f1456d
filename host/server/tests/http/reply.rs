//! The hook `reply`: turns in which an extension answers in place of the agent.

use annex_test_support::{Reply, TestConfig, TestServer};
use serde_json::json;

use crate::installation::Installation;
use crate::output::{STEERING, said, session, state, steering, steering_as, words};
use crate::scoped_keys::capable;
use crate::three_ways::{ALL, TestAnswer, TestMessage, say};

/// An agent whose answer is its instruction, with an extension that executes `command` before the agent runs.
async fn server(command: &str) -> TestServer {
    serve(&steering(&format!("before-agent = \"{command}\""))).await
}

async fn serve(extensions: &str) -> TestServer {
    let config = TestConfig::template("The agent. last={last_answer?}").set("agent.output_key", "last_answer");
    config.with(extensions).start().await.expect("the agent starts")
}

async fn prompt(server: &TestServer) -> Reply {
    server.say("prompt").context("c").send().await.expect("a reply")
}

#[tokio::test]
async fn the_agent_does_not_run_when_an_extension_answers() {
    let reply = prompt(&server("answer").await).await;
    assert_eq!((state(reply.task()), reply.answer()), ("TASK_STATE_COMPLETED", "answered"), "{}", reply.text);
    let artifacts = reply.task()["artifacts"].as_array().expect("artifacts");
    assert_eq!((artifacts.len(), &artifacts[0]["extensions"][0]), (1, &json!(STEERING)));
    assert!(!reply.text.contains("The agent."), "{}", reply.text);
    let ran = prompt(&server("ok").await).await;
    assert_eq!(ran.answer(), "The agent. last=");
    for (command, expected) in
        [("message", "TASK_STATE_COMPLETED"), ("fail", "TASK_STATE_FAILED"), ("reject", "TASK_STATE_REJECTED")]
    {
        let reply = prompt(&server(command).await).await;
        assert_eq!((state(reply.task()), words(reply.task())), (expected, "answered"), "{}", reply.text);
        assert_eq!(reply.task()["status"]["message"]["extensions"][0], STEERING, "{command}");
    }
}

#[tokio::test]
async fn an_answer_of_an_extension_is_stored_streamed_and_in_the_session_like_the_agents() {
    let server = server("answer").await;
    let stream = server.say("prompt").context("c").streaming().open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    let kinds: Vec<&str> = events
        .iter()
        .filter_map(|event| event["result"].as_object()?.keys().next().map(String::as_str))
        .filter(|kind| *kind != "task")
        .collect();
    assert_eq!(kinds, ["artifactUpdate", "statusUpdate"], "{events:?}");
    let task = events[0]["result"]["task"]["id"].as_str().expect("an id");
    let read = server.call("GetTask", json!({"id": task}).to_string()).send().await.expect("a reply");
    assert_eq!(read.body["result"]["artifacts"][0]["parts"][0]["text"], "answered");

    // The session has the answer, so the model sees it in the next turn.
    let folder = tempfile::tempdir().expect("a folder");
    let config = TestConfig::template("I").with(&steering(r#"before-agent = "answer""#));
    let server = config.set("tasks.data_dir", folder.path().join("data")).start().await.expect("a server");
    prompt(&server).await;
    let texts = said(&session(folder.path(), "test_agent").await);
    assert_eq!(texts, [r#"{"text":"answered"}"#]);
}

#[tokio::test]
async fn an_answer_passes_the_output_and_response_of_others() {
    let upper = steering_as("urn:upper", r#"revise = "upper""#, "");
    let answering = steering(r#"before-agent = "answer", respond = "payload""#);
    let server = serve(&format!("{upper}{answering}")).await;
    let reply = prompt(&server).await;
    assert_eq!(reply.answer(), "ANSWERED", "{}", reply.text);
    let artifact = &reply.task()["artifacts"][0];
    assert!(artifact["metadata"].get("steering/result").is_some(), "{artifact}");
    assert_eq!(artifact["extensions"].as_array().map(Vec::len), Some(2), "{artifact}");
    // A guard stops the answer of another extension as it stops the agent's.
    let refusing = steering_as("urn:refuse", r#"revise = "refuse""#, "");
    let server = serve(&format!("{refusing}{}", steering(r#"before-agent = "answer""#))).await;
    let reply = prompt(&server).await;
    assert_eq!((state(reply.task()), words(reply.task())), ("TASK_STATE_FAILED", "revise was told to refuse"));
}

#[tokio::test]
async fn an_answer_that_waits_is_continued_by_a_message() {
    let server = server("first").await;
    let waiting = prompt(&server).await;
    assert_eq!((state(waiting.task()), words(waiting.task())), ("TASK_STATE_INPUT_REQUIRED", "Go on?"));
    let task = waiting.task()["id"].as_str().expect("an id");
    let done = server.say("prompt").field("taskId", task).send().await.expect("a reply");
    assert_eq!((state(done.task()), done.task()["id"].as_str()), ("TASK_STATE_COMPLETED", Some(task)), "{}", done.text);
    assert_eq!(done.answer(), "The agent. last=");
    let history = done.task()["history"].as_array().expect("a history");
    assert!(history.iter().any(|message| message["parts"][0]["text"] == "Go on?"), "{history:?}");
}

/// Another version of the extension has the method that resumes the task. The task keeps the version with which it waits.
#[tokio::test]
async fn a_task_that_an_answer_made_wait_is_resumed_by_its_extension() {
    let installation = Installation::new();
    let without_watching = "[runtime]\nwatch = false\n";
    installation.config(&format!("{without_watching}{}", steering(r#"before-agent = "first""#)));
    let server = installation.serve().await;
    let waiting = server.say("hi").extensions(STEERING).send().await.expect("a reply");
    let status = (state(waiting.task()), words(waiting.task()));
    assert_eq!(status, ("TASK_STATE_INPUT_REQUIRED", "Go on?"), "{}", waiting.text);
    let id = json!({"id": waiting.task()["id"]}).to_string();
    let events = server.call("SubscribeToTask", id.clone()).open().await.expect("a stream");

    let methods = "[extension.parameters]\nmethods = [\"test/run\"]";
    let other = capable(STEERING, "", "").replace("[extension.parameters]", methods);
    installation.config(&format!("{without_watching}{other}"));
    assert!(server.installer().reload().await.expect("a reload").extensions_changed);
    let resume = json!({"commands": [{"resume": "another"}, {"resume": waiting.task()["id"]}]}).to_string();
    let called = server.call("test/run", resume).extensions(STEERING).send().await.expect("a reply");
    let expected = json!(["error: no task another waits for this extension", "ok"]);
    assert_eq!(called.body["result"], expected, "{}", called.text);
    events.rest().await.expect("the end of the task");
    let task = server.call("GetTask", id).send().await.expect("a reply");
    let task = &task.body["result"];
    assert_eq!((state(task), &task["artifacts"][0]["parts"]), ("TASK_STATE_COMPLETED", &json!([{"text": "piece"}])));
}

#[tokio::test]
async fn a_repeated_message_gets_the_same_answer() {
    let server = server("answer").await;
    let send = || async {
        let request = server.say("prompt").context("c").field("messageId", "m-1");
        request.send().await.expect("a reply").task().clone()
    };
    let first = send().await;
    let again = send().await;
    assert_eq!((&first["id"], &first["artifacts"]), (&again["id"], &again["artifacts"]));
}

#[tokio::test]
async fn an_extension_answers_on_each_binding_alike() {
    let server = server("wait").await;
    for binding in ALL {
        let said = TestMessage { text: "prompt", ..Default::default() };
        match say(&server, binding, said).await {
            TestAnswer::Task(_, state) => assert_eq!(state, "TASK_STATE_INPUT_REQUIRED", "{binding:?}"),
            other => unreachable!("{binding:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_fault_in_reply_refuses_the_request_and_leaves_nothing_behind() {
    for command in ["trap", "error", "no-parts", "wait-with-artifact", "foreign-key", "odd-name"] {
        let server = server(command).await;
        let reply = prompt(&server).await;
        assert_eq!(reply.code(), -32_603, "{command}: {}", reply.text);
        let tasks = server.call("ListTasks", r#"{"contextId":"c"}"#).send().await.expect("a reply");
        assert_eq!(tasks.body["result"]["totalSize"], 0, "{command}");
    }
}
