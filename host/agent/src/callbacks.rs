//! The callbacks of a program that embeds the template agent, around its steps. The moments and their meaning are
//! ADK's.

use annex_protocol::{ContextId, Json, TaskId};
use async_trait::async_trait;

use crate::executor::AgentError;
use crate::model::{Prompt, ToolCall};
use crate::state_access::StateAccess;

/// A callback's knowledge of its turn, and the state that it may change.
pub struct CallbackContext {
    /// The task that the turn works on.
    pub task_id: TaskId,
    /// The conversation it belongs to.
    pub context_id: ContextId,
    /// The state. Changes of it are stored with the event that the callback belongs to.
    pub state: StateAccess,
}

/// The whole answer of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelAnswer {
    /// The words of the answer.
    pub text: String,
    /// The tools that it wants to be called; none in the last answer of a turn.
    pub calls: Vec<ToolCall>,
}

/// Called around the steps of a template agent. Each does nothing unless it is written.
///
/// An error fails the turn, and the callback's changes of the state are not stored.
#[async_trait]
pub trait Callbacks: Send + Sync {
    /// Before the instruction is rendered, once per turn. A text is the answer, and no model is asked.
    async fn before_agent(&self, _context: &mut CallbackContext) -> Result<Option<String>, AgentError> {
        Ok(None)
    }

    /// After the answer, once per turn that has one. A text takes its place for the client and under the output key; in
    /// the session it follows the answer. State without a text is stored as an event of its own.
    async fn after_agent(&self, _context: &mut CallbackContext) -> Result<Option<String>, AgentError> {
        Ok(None)
    }

    /// Before each time that the model is asked; the prompt may be changed. A text is the model's answer, and it is not
    /// asked. State is stored with the answer.
    async fn before_model(
        &self,
        _context: &mut CallbackContext,
        _prompt: &mut Prompt,
    ) -> Result<Option<String>, AgentError> {
        Ok(None)
    }

    /// After each answer of the model, which may be changed. Pieces of it that the client has are replaced then.
    async fn after_model(&self, _context: &mut CallbackContext, _answer: &mut ModelAnswer) -> Result<(), AgentError> {
        Ok(())
    }

    /// Before each call of a tool; its arguments may be changed. A value is the result, and the tool is not called. State
    /// is stored with the results.
    async fn before_tool(
        &self,
        _context: &mut CallbackContext,
        _call: &mut ToolCall,
    ) -> Result<Option<Json>, AgentError> {
        Ok(None)
    }

    /// After each call of a tool, also one that failed. A value takes the place of the result.
    async fn after_tool(
        &self,
        _context: &mut CallbackContext,
        _call: &ToolCall,
        _result: &Json,
    ) -> Result<Option<Json>, AgentError> {
        Ok(None)
    }
}
