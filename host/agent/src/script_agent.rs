//! An agent without a model, for tests of A2A clients and for conformance kits. It plays the scripted events for a
//! message, and the same message always gets the same events.

use std::time::Duration;

use annex_protocol::{Artifact, ArtifactId, Message, Metadata, Part, TaskState};
use async_trait::async_trait;

use crate::executor::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use crate::script_agent::script::{ArtifactStep, EventScript, Step, parts};

pub(crate) mod script;

/// Sends the events of the rule that matches the message; see [`EventScript`].
///
/// A script that ends without a final or interrupted status completes the task. A script that waits ends early when the
/// task is cancelled.
#[derive(Clone, Debug)]
pub struct ScriptAgent {
    /// The agent's name.
    pub name: String,
    /// The rules, with the events that each sends.
    pub script: EventScript,
}

#[async_trait]
impl AgentExecutor for ScriptAgent {
    fn name(&self) -> &str {
        &self.name
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        let id = turn.message.message_id.as_str();
        let Some(steps) = self.script.steps_for(id, &turn.message.text()) else {
            let message = format!("The agent's script has no rule for message {id:?} and none for any message.");
            return Err(AgentError::Failed { message });
        };
        match turn.cancel.run_until_cancelled(play(steps, &turn, &events)).await {
            Some(result) => result,
            // The script is dropped where it waits, so that a cancelled task ends at once.
            None => events.send(AgentEvent::Status { state: TaskState::Canceled, message: None }).await,
        }
    }
}

async fn play(steps: &[Step], turn: &TurnContext, events: &EventSender) -> Result<(), AgentError> {
    for step in steps {
        let event = match step {
            Step::WaitMs(wait) => {
                tokio::time::sleep(Duration::from_millis(*wait)).await;
                continue;
            }
            Step::Status(status) => {
                let message = status.text.as_ref().map(|text| message(turn, vec![Part::text(text)]));
                AgentEvent::Status { state: status.state.into(), message }
            }
            Step::Message(answer) => AgentEvent::Message(message(turn, parts(&answer.parts))),
            Step::Artifact(artifact) => artifact_event(artifact),
        };
        events.send(event).await?;
    }
    Ok(())
}

/// A message of the agent. The server adds the task id.
fn message(turn: &TurnContext, parts: Vec<Part>) -> Message {
    Message::agent(turn.context_id.clone(), None, parts)
}

fn artifact_event(step: &ArtifactStep) -> AgentEvent {
    let artifact = Artifact {
        artifact_id: ArtifactId::new(step.id.as_str()),
        name: step.name.clone(),
        description: None,
        parts: parts(&step.parts).into(),
        metadata: Metadata::new(),
        extensions: Vec::new(),
    };
    AgentEvent::Artifact { artifact, append: step.append, last_chunk: step.last_chunk }
}
