//! An agent that is compiled into Annex and repeats the text of each message.

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use annex_protocol::{Artifact, Part, TaskState};

/// The text that makes the agent wait without end.
pub(crate) const WAIT: &str = "wait";

pub(crate) struct Echo;

#[async_trait::async_trait]
impl AgentExecutor for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        let text = turn.message.text();
        let state = if text == WAIT { TaskState::InputRequired } else { TaskState::Working };
        events.send(AgentEvent::Status { state, message: None }).await?;
        let artifact = Artifact {
            artifact_id: "echo".into(),
            name: Some("echo".to_owned()),
            parts: vec![Part::text(text)].into(),
            ..Artifact::default()
        };
        events.send(AgentEvent::Artifact { artifact, append: false, last_chunk: true }).await
    }
}
