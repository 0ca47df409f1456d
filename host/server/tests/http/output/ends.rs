//! The ends of turns whose content an extension holds back, or whose last status an extension replaces.

use std::sync::Arc;

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use annex_protocol::{Artifact, Message, Part};
use annex_test_support::{TEST_EXTENSION, TestConfig};
use async_trait::async_trait;

use super::{session, state, steering, steering_as, unsteered, words};
use crate::test_extension;
use crate::upstream::mirror;

/// A scripted agent that sends a chunk and then a state without completing its artifact.
const SCRIPT: &str = r#"
    [[agent.rule]]
    message_id = "canceled"
    steps = [
      { artifact = { id = "a", parts = [{ text = "secret chunk" }] } },
      { status = { state = "canceled", text = "secret end" } },
    ]
    [[agent.rule]]
    message_id = "rejected"
    steps = [
      { artifact = { id = "a", parts = [{ text = "secret chunk" }] } },
      { status = { state = "rejected", text = "secret end" } },
    ]
    [[agent.rule]]
    message_id = "completed"
    steps = [
      { artifact = { id = "a", parts = [{ text = "secret chunk" }] } },
      { status = { state = "completed", text = "secret end" } },
    ]
"#;

#[tokio::test]
async fn a_refused_held_chunk_does_not_change_a_state_that_no_extension_can_prevent() {
    // The last extension of the config holds the chunk back. The first one refuses the chunk when it is released.
    let refusing = steering_as("urn:refuse", r#"revise = "refuse""#, "");
    let both = format!("{refusing}{}", steering(r#"revise = "hold""#));
    let server = TestConfig::script(SCRIPT).with(&both).start().await.expect("a server");
    for (rule, expected) in
        [("canceled", "TASK_STATE_CANCELED"), ("rejected", "TASK_STATE_REJECTED"), ("completed", "TASK_STATE_FAILED")]
    {
        let reply = server.say("x").field("messageId", &format!("{rule}-1")).send().await.expect("a reply");
        assert_eq!((state(reply.task()), words(reply.task())), (expected, "revise was told to refuse"), "{rule}");
        assert!(!reply.text.contains("secret"), "{rule}: {}", reply.text);
    }
}

/// An agent that sends a chunk of an artifact and then a message, which is too late.
struct LateAnswer;

#[async_trait]
impl AgentExecutor for LateAnswer {
    fn name(&self) -> &str {
        "late"
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        let artifact =
            Artifact { artifact_id: "a".into(), parts: vec![Part::text("chunk")].into(), ..Artifact::default() };
        events.send(AgentEvent::Artifact { artifact, append: false, last_chunk: false }).await?;
        let message = Message::agent(turn.context_id.clone(), None, vec![Part::text("answer")]);
        events.send(AgentEvent::Message(message)).await
    }
}

#[tokio::test]
async fn a_message_after_a_held_chunk_is_not_taken_as_the_whole_answer() {
    for command in ["ok", "hold"] {
        let config = TestConfig::without_agent().with(&steering(&format!("revise = \"{command}\"")));
        let server = config.start_with(Arc::new(LateAnswer)).await.expect("a server");
        let reply = server.say("x").send().await.expect("a reply");
        assert_eq!(state(reply.task()), "TASK_STATE_FAILED", "{command}: {}", reply.text);
        assert!(words(reply.task()).contains("a message after its task had begun"), "{command}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_text_of_an_upstream_that_a_veto_has_replaced_is_not_in_the_session() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = mirror("").await;
    let guard = unsteered(&steering(r#"revise = "ok""#), folder.path());
    let config = TestConfig::upstream(upstream.url()).with(&test_extension("")).with(&guard);
    let front = config.set("tasks.data_dir", folder.path().join("data")).start().await.expect("the front starts");
    let request = front.say("ask").context("c").extensions(TEST_EXTENSION);
    let request = request.metadata("test/command", r#"{"change":"always-veto"}"#);
    let reply = request.send().await.expect("a reply");
    assert_eq!(words(reply.task()), "change was told to veto", "{}", reply.text);
    let events = format!("{:?}", session(folder.path(), "front").await);
    assert!(events.contains("change was told to veto") && !events.contains("Which one?"), "{events}");
}
