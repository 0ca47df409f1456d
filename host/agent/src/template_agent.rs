//! The standard agent: an instruction with variables from the session state, a model, and tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use annex_protocol::TaskState;
use async_trait::async_trait;

use crate::callbacks::Callbacks;
use crate::executor::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use crate::mcp::McpServers;
use crate::model::Model;
use crate::tool::Tools;

mod calls;
mod pieces;
mod run;

use run::Run;

/// The default name of the artifact that a turn produces.
const ARTIFACT: &str = "result";
/// The name under which extensions see [`TemplateAgent::model`].
pub(crate) const DEFAULT_MODEL: &str = "default";
/// The default limit on rounds of tool calls in one turn.
const MAX_TOOL_ROUNDS: u32 = 8;
/// The maximum number of tool calls in one answer of the model.
pub(crate) const MAX_CALLS: usize = 64;
/// The maximum number of tool calls of one turn.
const MAX_CALLS_OF_TURN: usize = 256;
/// The maximum number of events of the conversation in a prompt. Older events are omitted.
const HISTORY: usize = 1_000;

/// Renders its instruction from the session's state and lets a model answer the conversation with the help of tools.
///
/// Each turn produces one artifact, in as many pieces as the model's answer. The artifact's id equals its name. Text
/// before a tool call is visible while the tools run, and the answer then replaces the text. The answer is stored in
/// the session, as an event and as an artifact, before the last piece is sent. A client that has the last piece can
/// therefore read the new state.
#[derive(Clone)]
pub struct TemplateAgent {
    /// The agent's name.
    pub name: Arc<str>,
    /// The template of the system prompt, see [`render`](crate::render). Rendered before each call of the model.
    pub instruction: String,
    /// The state key under which the answer is stored, with its scope prefix if any.
    pub output_key: Option<String>,
    /// The name of the artifact that a turn produces. Default: `result`.
    pub artifact: String,
    /// The model that answers.
    pub model: Arc<dyn Model>,
    /// Models that extensions may choose instead, by the names under which the operator lends them. The name `default`
    /// is that of [`model`](Self::model).
    pub lent: BTreeMap<String, Arc<dyn Model>>,
    /// The tools that the model may call.
    pub tools: Tools,
    /// The maximum number of rounds of tool calls in one turn. One round has at most 64 calls, and all rounds of a turn
    /// together have at most 256. Default: 8.
    pub max_tool_rounds: u32,
    /// The callbacks of the embedding program.
    pub callbacks: Option<Arc<dyn Callbacks>>,
    /// The servers that tools come from; stopped with the agent.
    pub servers: McpServers,
}

impl TemplateAgent {
    /// Creates an agent without tools that stores its answers in the session only.
    pub fn new(name: impl Into<Arc<str>>, instruction: impl Into<String>, model: Arc<dyn Model>) -> Self {
        Self {
            name: name.into(),
            instruction: instruction.into(),
            output_key: None,
            artifact: ARTIFACT.to_owned(),
            model,
            lent: BTreeMap::new(),
            tools: Tools::default(),
            max_tool_rounds: MAX_TOOL_ROUNDS,
            callbacks: None,
            servers: McpServers::default(),
        }
    }
}

#[async_trait]
impl AgentExecutor for TemplateAgent {
    fn name(&self) -> &str {
        &self.name
    }

    fn reads_history(&self) -> usize {
        HISTORY
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        // The future of a run is large. Boxed, it does not make the future around it large.
        let run = Box::pin(Run::new(self, &turn, &events).run());
        match turn.cancel.run_until_cancelled(run).await {
            Some(result) => result,
            None => events.send(AgentEvent::Status { state: TaskState::Canceled, message: None }).await,
        }
    }

    async fn close(&self) {
        self.servers.close().await;
    }
}
