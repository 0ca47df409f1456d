//! What a language model is to an agent: a prompt in, pieces of text and what they cost out.

use std::error::Error;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::steps::Tokens;

/// The answer of a model, piece by piece, in order.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// What comes from a model while it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelEvent {
    /// A piece of the answer.
    Text(String),
    /// How many tokens it counted.
    Tokens(Tokens),
}

/// A language model.
#[async_trait]
pub trait Model: Send + Sync {
    /// The name of the model, as its provider spells it.
    fn name(&self) -> &str;

    /// Starts to answer. Dropping the stream abandons the answer.
    ///
    /// # Errors
    /// The model could not be asked; the stream itself fails when the answer breaks off.
    async fn stream(&self, prompt: Prompt) -> Result<ModelStream, ModelError>;
}

/// All that a model is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// How to behave; the system prompt.
    pub instruction: String,
    /// The conversation, oldest first, ending with what the user said last.
    pub turns: Vec<Turn>,
}

impl Prompt {
    /// What the user said last, or nothing.
    pub fn last_user_text(&self) -> &str {
        self.turns.iter().rev().find(|turn| turn.speaker == Speaker::User).map_or("", |turn| &turn.text)
    }
}

/// One contribution to the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Who said it.
    pub speaker: Speaker,
    /// What was said.
    pub text: String,
}

/// The two sides of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The user.
    User,
    /// The agent, which is what the model speaks for.
    Agent,
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
