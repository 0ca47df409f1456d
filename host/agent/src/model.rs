//! The contract of a language model: a prompt in; pieces of text, calls of tools and token counts out.

use std::error::Error;
use std::sync::Arc;

use annex_protocol::Json;
use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::steps::Tokens;

/// The answer of a model, piece by piece, in order.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// An event of a model while it answers.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// A piece of the answer.
    Text(String),
    /// A piece of its thoughts on the way to the answer. It is no part of the answer, and nobody is shown it.
    Thought(String),
    /// It wants a tool to be called before it goes on. With calls, the text is for the time until their results are
    /// there.
    Call(ToolCall),
    /// The number of tokens that it counted.
    Tokens(Tokens),
}

/// A language model.
#[async_trait]
pub trait Model: Send + Sync {
    /// The name of the model, as its provider spells it.
    fn name(&self) -> &str;

    /// Tells whether it is asked somewhere else than in this process.
    fn is_remote(&self) -> bool {
        true
    }

    /// Starts to answer. Dropping the stream abandons the answer.
    ///
    /// # Errors
    /// The model could not be asked; the stream itself fails when the answer breaks off.
    async fn stream(&self, prompt: Prompt) -> Result<ModelStream, ModelError>;
}

/// The whole input of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// The rules of behaviour; the system prompt.
    pub instruction: String,
    /// The conversation, oldest first, ending with the user's last words or with the results of tools.
    pub turns: Vec<Turn>,
    /// The tools that it may call.
    pub tools: Arc<[ToolDeclaration]>,
}

impl Prompt {
    /// The bytes of its texts, and of its tools.
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

    /// The user's last words, or nothing.
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
    /// The user's words.
    User(String),
    /// The agent's words, which the model wrote.
    Agent {
        /// The text; may be empty when there are calls.
        text: String,
        /// The tools that it wanted to be called. Their results come next.
        calls: Vec<ToolCall>,
    },
    /// The results of the calls before it, one for each.
    Tools(Vec<ToolResult>),
}

/// The description of a tool for a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDeclaration {
    /// The name that it calls the tool by.
    pub name: String,
    /// The purpose of the tool, in words for the model.
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
    /// The texts that the provider wants to see again with the call, such as signatures of thoughts.
    pub signatures: Vec<String>,
}

/// The answer of a tool, or its failure.
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
    /// The cause.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

/// The cause of a [`ModelError`] that the user can do something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The message is too long for the rules of this agent. Send a shorter one.")]
pub(crate) struct PromptTooLong;
