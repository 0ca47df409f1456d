//! The agent that ships: an instruction with variables from the session state, and a model.

use std::sync::Arc;

use annex_protocol::{Artifact, ArtifactId, Json, Metadata, Part, PartContent, TaskState};
use annex_session::{Event, SessionError, StateDelta, TurnSession};
use async_trait::async_trait;
use futures::StreamExt;

use crate::executor::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use crate::model::{Model, ModelError, ModelEvent, ModelStream, Prompt, Speaker, Turn};
use crate::steps::{OpenStep, StepKind};
use crate::template::render;

/// The name of the one artifact that a turn produces.
const ARTIFACT_NAME: &str = "result";
/// The most events of a conversation that the model is told of, the latest ones.
const HISTORY: usize = 1_000;

/// Renders its instruction from the state of the session and lets a model answer the conversation.
///
/// Each turn produces one artifact, `result`, in as many pieces as the model answers in. The answer is in the session
/// before the last piece is sent, so whoever sees that piece sees the state that belongs to it.
#[derive(Clone)]
pub struct TemplateAgent {
    /// The agent's name.
    pub name: String,
    /// The template of the system prompt, see [`render`].
    pub instruction: String,
    /// The state key under which the answer is stored, with its scope prefix if any.
    pub output_key: Option<String>,
    /// What answers.
    pub model: Arc<dyn Model>,
}

#[async_trait]
impl AgentExecutor for TemplateAgent {
    fn name(&self) -> &str {
        &self.name
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        let prompt = self.prompt(&turn).await?;
        events.send(status(TaskState::Working)).await?;
        let answered = turn.cancel.run_until_cancelled(self.answer(prompt, &turn, &events)).await;
        match answered {
            Some(result) => result,
            None => events.send(status(TaskState::Canceled)).await,
        }
    }
}

impl TemplateAgent {
    async fn prompt(&self, turn: &TurnContext) -> Result<Prompt, AgentError> {
        let instruction = render(&self.instruction, |key| turn.session.value(key)).map_err(|error| {
            AgentError::Failed { message: format!("{error} The instruction of this agent needs it.") }
        })?;
        if readable(&turn.message.parts).is_empty() {
            let message = "The message has nothing that this agent can read. Send a text or a data part.".to_owned();
            return Err(AgentError::Failed { message });
        }
        Ok(Prompt { instruction, turns: conversation(&turn.session).await? })
    }

    /// Asks the model and passes its answer on. One piece is held back, so that the last one is known as the last.
    async fn answer(&self, prompt: Prompt, turn: &TurnContext, events: &EventSender) -> Result<(), AgentError> {
        let step = turn.steps.begin(StepKind::Model, self.model.name());
        let mut chunks: ModelStream = self.model.stream(prompt).await.map_err(|error| gave_up(&step, error))?;
        let artifact_id = ArtifactId::generate();
        let mut answer = String::new();
        let mut held: Option<String> = None;
        let mut append = false;
        while let Some(chunk) = chunks.next().await {
            let chunk = match chunk.map_err(|error| gave_up(&step, error))? {
                ModelEvent::Text(chunk) if !chunk.is_empty() => chunk,
                ModelEvent::Text(_) => continue,
                ModelEvent::Tokens(tokens) => {
                    step.count(tokens);
                    continue;
                }
            };
            answer.push_str(&chunk);
            if let Some(previous) = held.replace(chunk) {
                events.send(artifact(&artifact_id, previous, append, false)).await?;
                append = true;
            }
        }
        drop(step);
        self.remember(turn, answer).await?;
        events.send(artifact(&artifact_id, held.unwrap_or_default(), append, true)).await
    }

    async fn remember(&self, turn: &TurnContext, answer: String) -> Result<(), AgentError> {
        let mut delta = StateDelta::new();
        if let Some(key) = &self.output_key {
            delta.insert(key.clone(), Json::string(&answer));
        }
        let event = Event::new(&self.name, turn.task_id.as_str(), vec![Part::text(answer)], delta);
        turn.session.append(event).await.map_err(|error| match error {
            SessionError::StateTooLarge { .. } | SessionError::TooManyStateKeys { .. } => {
                AgentError::Failed { message: format!("The answer was lost: {error}.") }
            }
            other => AgentError::internal(other),
        })
    }
}

/// Without the cause, which may tell of addresses and keys.
fn gave_up(step: &OpenStep, error: ModelError) -> AgentError {
    step.fail(&error.to_string());
    AgentError::internal(error)
}

/// What was said so far, as text. Events without any, which only change state, are left out.
async fn conversation(session: &TurnSession) -> Result<Vec<Turn>, AgentError> {
    let turn_of = |event: &Arc<Event>| {
        let speaker = if event.is_from_user() { Speaker::User } else { Speaker::Agent };
        Turn { speaker, text: readable(&event.parts) }
    };
    let history = session.history(HISTORY).await.map_err(AgentError::internal)?;
    Ok(history.iter().map(turn_of).filter(|turn| !turn.text.is_empty()).collect())
}

/// Text parts as they are and data parts as JSON, a line break between them. Files are not for a text model.
fn readable(parts: &[Part]) -> String {
    let texts: Vec<&str> = parts
        .iter()
        .filter_map(|part| match &part.content {
            PartContent::Text(text) => Some(text.as_str()),
            PartContent::Data(json) => Some(json.get()),
            PartContent::Raw(_) | PartContent::Url(_) => None,
        })
        .collect();
    texts.join("\n")
}

fn status(state: TaskState) -> AgentEvent {
    AgentEvent::Status { state, message: None }
}

fn artifact(id: &ArtifactId, text: String, append: bool, last_chunk: bool) -> AgentEvent {
    let artifact = Artifact {
        artifact_id: id.clone(),
        name: Some(ARTIFACT_NAME.to_owned()),
        description: None,
        parts: vec![Part::text(text)],
        metadata: Metadata::new(),
        extensions: Vec::new(),
    };
    AgentEvent::Artifact { artifact, append, last_chunk }
}
