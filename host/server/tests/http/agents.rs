//! Agents written in Rust, instead of the one that ships: their abilities, and the effects of their faults.

use std::sync::Arc;

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use annex_protocol::{Artifact, ArtifactId, Message, Part, TaskState};
use annex_test_support::{TestConfig, TestServer};
use async_trait::async_trait;

/// An agent that obeys the text of the message.
struct Obedient;

#[async_trait]
impl AgentExecutor for Obedient {
    fn name(&self) -> &str {
        "obedient"
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        let message = || Message::agent(turn.context_id.clone(), None, vec![Part::text("hello")]);
        let status = |state| AgentEvent::Status { state, message: Some(message()) };
        match turn.message.text().as_str() {
            "answer" => events.send(AgentEvent::Message(message())).await,
            "ask" => events.send(status(TaskState::InputRequired)).await,
            "reject" => events.send(status(TaskState::Rejected)).await,
            "answer late" => {
                events.send(status(TaskState::Working)).await?;
                events.send(AgentEvent::Message(message())).await
            }
            "artifact" => {
                let artifact = Artifact {
                    artifact_id: ArtifactId::generate(),
                    parts: vec![Part::text("x")].into(),
                    ..Artifact::default()
                };
                events.send(AgentEvent::Artifact { artifact, append: false, last_chunk: true }).await
            }
            "complete and stay" => {
                events.send(status(TaskState::Completed)).await?;
                std::future::pending().await
            }
            "stay" => std::future::pending().await,
            "fail" => Err(AgentError::internal("the database password is hunter2")),
            "panic at once" => panic!("at once"),
            "panic later" => {
                events.send(status(TaskState::Working)).await?;
                tokio::task::yield_now().await;
                panic!("later")
            }
            _ => Ok(()),
        }
    }
}

async fn obedient() -> TestServer {
    let config = TestConfig::without_agent().set("server.max_turn_seconds", 1);
    config.start_with(Arc::new(Obedient)).await.expect("a server")
}

#[tokio::test]
async fn an_agent_may_answer_with_a_message_and_then_there_is_no_task() {
    let server = obedient().await;
    let reply = server.say("answer").context("c").send().await.expect("a reply");
    assert_eq!(reply.body["result"]["message"]["parts"][0]["text"], "hello");
    assert!(reply.body["result"]["message"]["contextId"].is_string());
    let events = server.say("answer").streaming().open().await.expect("a stream").rest().await.expect("events");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["result"]["message"]["role"], "ROLE_AGENT");
    assert_eq!(
        server.call("ListTasks", r#"{"contextId":"c"}"#).send().await.expect("a list").body["result"]["totalSize"],
        0
    );
}

#[tokio::test]
async fn a_paused_task_goes_on_with_a_message_that_names_only_the_task() {
    let server = obedient().await;
    let paused = server.say("ask").send().await.expect("a reply");
    assert_eq!(paused.task()["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let id = paused.task()["id"].as_str().expect("an id").to_owned();
    let subscriber = server.call("SubscribeToTask", format!(r#"{{"id":"{id}"}}"#)).open().await.expect("a stream");
    let resumed = server.say("artifact").field("taskId", &id).send().await.expect("a reply");
    assert_eq!((resumed.task()["id"].as_str(), resumed.context()), (Some(id.as_str()), paused.context()));
    assert_eq!(resumed.task()["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(resumed.task()["history"].as_array().map(Vec::len), Some(3), "{}", resumed.text);
    // The subscriber stayed across the pause.
    let events = subscriber.rest().await.expect("events");
    assert_eq!(events.len(), 3);
}

#[tokio::test]
async fn a_stream_ends_when_the_task_waits_for_input_and_a_paused_task_can_be_cancelled() {
    let server = obedient().await;
    let events = server.say("ask").streaming().open().await.expect("a stream").rest().await.expect("events");
    assert_eq!(
        events.last().expect("an event")["result"]["statusUpdate"]["status"]["state"],
        "TASK_STATE_INPUT_REQUIRED"
    );
    let id = &events[0]["result"]["task"]["id"];
    let canceled = server.call("CancelTask", format!(r#"{{"id":{id}}}"#)).send().await.expect("a reply");
    assert_eq!(canceled.body["result"]["status"]["state"], "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn what_an_agent_does_wrong_fails_its_task_and_tells_nothing_internal() {
    let server = obedient().await;
    for (text, expected) in
        [("fail", "TASK_STATE_FAILED"), ("answer late", "TASK_STATE_FAILED"), ("reject", "TASK_STATE_REJECTED")]
    {
        let reply = server.say(text).send().await.expect("a reply");
        assert_eq!(reply.task()["status"]["state"], expected, "{text}: {}", reply.text);
        assert!(!reply.text.contains("hunter2"), "{}", reply.text);
        let says_where = reply.text.contains("; the server's log has the details under ");
        assert!(says_where || text != "fail", "{}", reply.text);
    }
    assert_eq!(server.say("nothing").send().await.expect("a reply").task()["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn an_agent_that_does_not_return_holds_nobody_up() {
    let server = obedient().await;
    let reply = server.say("complete and stay").context("c").send().await.expect("a reply");
    assert_eq!(reply.task()["status"]["state"], "TASK_STATE_COMPLETED");
    let reply = server.say("stay").context("c").send().await.expect("a reply");
    assert_eq!(reply.task()["status"]["message"]["parts"][0]["text"], "The agent took too long.");
}

#[tokio::test]
async fn an_agent_that_panics_leaves_nobody_waiting() {
    let server = obedient().await;
    let reply = server.say("panic at once").context("c").send().await.expect("a reply");
    assert_eq!(reply.code(), -32_603, "{}", reply.text);
    let events = server.say("panic later").context("c").streaming().open().await.expect("a stream");
    let events = events.rest().await.expect("events");
    assert_eq!(events.last().expect("an event")["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_FAILED");
    // The context is free again.
    assert_eq!(server.say("artifact").context("c").send().await.expect("a reply").code(), 0);
}
