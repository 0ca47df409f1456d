//! What a language model is to an agent: a prompt in, pieces of text, calls of tools and what they cost out.

use std::error::Error;
use std::sync::Arc;

use annex_protocol::Json;
use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::steps::Tokens;

/// The answer of a model, piece by piece, in order.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// What comes from a model while it answers.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// A piece of the answer.
    Text(String),
    /// A piece of what it thinks on the way to the answer. It is no part of the answer, and nobody is shown it.
    Thought(String),
    /// It wants a tool to be called before it goes on. With calls, the text is what it says meanwhile.
    Call(ToolCall),
    /// How many tokens it counted.
    Tokens(Tokens),
}

/// A language model.
#[async_trait]
pub trait Model: Send + Sync {
    /// The name of the model, as its provider spells it.
    fn name(&self) -> &str;

    /// Whether it is asked somewhere else than in this process.
    fn is_remote(&self) -> bool {
        true
    }

    /// Starts to answer. Dropping the stream abandons the answer.
    ///
    /// # Errors
    /// The model could not be asked; the stream itself fails when the answer breaks off.
    async fn stream(&self, prompt: Prompt) -> Result<ModelStream, ModelError>;
}

/// All that a model is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// How to behave; the system prompt.
    pub instruction: String,
    /// The conversation, oldest first, ending with what the user said last or with the results of tools.
    pub turns: Vec<Turn>,
    /// The tools that it may call.
    pub tools: Arc<[ToolDeclaration]>,
}

impl Prompt {
    /// What the user said last, or nothing.
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
    /// What the user said.
    User(String),
    /// What the agent said, which is what the model speaks for.
    Agent {
        /// The text; may be empty when there are calls.
        text: String,
        /// The tools that it wanted to be called. Their results come next.
        calls: Vec<ToolCall>,
    },
    /// The results of the calls before it, one for each.
    Tools(Vec<ToolResult>),
}

/// What a model is told of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDeclaration {
    /// The name that it calls the tool by.
    pub name: String,
    /// What the tool does, in words for the model.
    pub description: String,
    /// A JSON Schema of the arguments, which are an object.
    pub parameters: Json,
}

/// A model wants a tool to be called.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Tells the call from all others of the conversation.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments, an object if the model keeps to the declaration.
    pub arguments: Json,
    /// What the provider wants to see again with the call, such as signatures of thoughts.
    pub signatures: Vec<String>,
}

/// What a tool answered, or that it failed.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The call that it belongs to.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The answer; an object with `error` when the tool failed.
    pub response: Json,
}

/// A model did not answer, or not to the end.
#[derive(Debug, thiserror::Error)]
#[error("model {model} gave no answer")]
pub struct ModelError {
    /// The model that was asked.
    pub model: String,
    /// Why.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}
