//! The interface of a language model: a prompt in; pieces of text, tool calls and token counts out.

use std::error::Error;
use std::sync::Arc;

use annex_protocol::Json;
use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::steering::ModelParameters;
use crate::steps::Tokens;

/// A model's answer: its events, in order.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// An event of a model's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// A piece of the answer.
    Text(String),
    /// A piece of the model's reasoning. It is not a part of the answer and is never shown.
    Thought(String),
    /// A tool call that the model requests before it continues. The text of an answer with calls is shown only until
    /// the results are known.
    Call(ToolCall),
    /// The token counts of the model.
    Tokens(Tokens),
}

/// A language model.
#[async_trait]
pub trait Model: Send + Sync {
    /// The name of the model, as its provider spells it.
    fn name(&self) -> &str;

    /// The provider of the model in traces, as OpenTelemetry names it. `None` for a model without a provider.
    fn provider(&self) -> Option<&'static str> {
        None
    }

    /// Begins an answer. Dropping the stream abandons the answer.
    ///
    /// # Errors
    /// The model could not be called. A failure in the middle of the answer is an item of the stream.
    async fn stream(&self, prompt: Prompt) -> Result<ModelStream, ModelError>;
}

/// The whole input of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// The rules of behaviour: the system prompt.
    pub instruction: String,
    /// The conversation, oldest first. Ends with the user's last message or with tool results.
    pub turns: Vec<Turn>,
    /// The tools that the model may call.
    pub tools: Arc<[ToolDeclaration]>,
    /// The parameters of the call.
    pub parameters: ModelParameters,
}

impl Prompt {
    /// The size of the prompt's texts and tools, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let of_turn = |turn: &Turn| match turn {
            Turn::User(text) => text.len(),
            Turn::Agent { text, calls } => {
                text.len() + calls.iter().map(|call| call.arguments.get().len()).sum::<usize>()
            }
            Turn::Tools(results) => results.iter().map(|result| result.response.get().len()).sum(),
        };
        let of_tool = |tool: &ToolDeclaration| tool.name.len() + tool.description.len() + tool.parameters.get().len();
        let tools = self.tools.iter().map(of_tool).sum::<usize>();
        self.instruction.len() + self.turns.iter().map(of_turn).sum::<usize>() + tools
    }

    /// The text of the user's last message; empty if none.
    pub fn last_user_text(&self) -> &str {
        let said = |turn: &Turn| matches!(turn, Turn::User(_));
        match self.turns.iter().rfind(|turn| said(turn)) {
            Some(Turn::User(text)) => text,
            Some(Turn::Agent { .. } | Turn::Tools(_)) | None => "",
        }
    }
}

/// One contribution to the conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// A message of the user.
    User(String),
    /// An answer of the agent, written by the model.
    Agent {
        /// The text; may be empty when there are calls.
        text: String,
        /// The requested tool calls. Their results are the next turn.
        calls: Vec<ToolCall>,
    },
    /// The results of the previous turn's calls, one for each.
    Tools(Vec<ToolResult>),
}

/// The description of a tool for a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDeclaration {
    /// The name under which the model calls the tool.
    pub name: String,
    /// The purpose of the tool, for the model.
    pub description: String,
    /// A JSON Schema of the arguments, which are an object.
    pub parameters: Json,
}

/// A tool call that a model requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The call's id, unique within the conversation.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments: an object, if the model keeps to the declaration.
    pub arguments: Json,
    /// Texts that the provider needs back with the call, such as signatures of thoughts.
    pub signatures: Vec<String>,
}

/// The answer of a tool, or its failure.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The id of the call.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The answer; an object with `error` when the tool failed.
    pub response: Json,
}

/// The error for a missing or incomplete answer of a model.
#[derive(Debug, thiserror::Error)]
#[error("model {model} gave no answer")]
pub struct ModelError {
    /// The name of the model.
    pub model: String,
    /// The cause.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

/// The cause of a [`ModelError`] for a prompt that is too long, which the user can shorten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The message is too long for the rules of this agent. Send a shorter one.")]
pub(crate) struct PromptTooLong;
