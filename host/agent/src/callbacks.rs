//! Callbacks that run before and after the steps of the template agent, for programs that embed the agent. ADK has the same
//! callbacks, called at the same moments.

use annex_protocol::{ContextId, Json, TaskId};
use async_trait::async_trait;

use crate::executor::AgentError;
use crate::model::{Prompt, ToolCall};
use crate::state_access::StateAccess;

/// A callback's access to its turn and to the session's state.
pub struct CallbackContext {
    /// The task that the turn works on.
    pub task_id: TaskId,
    /// The conversation of the task.
    pub context_id: ContextId,
    /// The state. Changes are stored together with the event that the callback is called for.
    pub state: StateAccess,
}

/// The whole answer of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelAnswer {
    /// The text of the answer.
    pub text: String,
    /// The tool calls that the model requests; empty in the last answer of a turn.
    pub calls: Vec<ToolCall>,
}

/// Callbacks around the steps of a template agent. The default implementations do nothing.
///
/// An error fails the turn, and the callback's changes of the state are not stored.
#[async_trait]
pub trait Callbacks: Send + Sync {
    /// Called once per turn, before the instruction is rendered. A returned text becomes the answer, and the model is
    /// not called.
    async fn before_agent(&self, _context: &mut CallbackContext) -> Result<Option<String>, AgentError> {
        Ok(None)
    }

    /// Called once per turn, after the answer. A returned text replaces the answer, both for the client and in the
    /// state under the output key. The session then has both texts: first the answer, then the returned text. If no
    /// text is returned, the changes of the state are stored as a separate event.
    async fn after_agent(&self, _context: &mut CallbackContext) -> Result<Option<String>, AgentError> {
        Ok(None)
    }

    /// Called before each call of the model. May change the prompt. A returned text is used as the model's answer, and the
    /// model is not called. Changes of the state are stored with the answer.
    async fn before_model(
        &self,
        _context: &mut CallbackContext,
        _prompt: &mut Prompt,
    ) -> Result<Option<String>, AgentError> {
        Ok(None)
    }

    /// Called after each answer of the model. May change the answer. If the text changes, it replaces the pieces that
    /// the client has already received.
    async fn after_model(&self, _context: &mut CallbackContext, _answer: &mut ModelAnswer) -> Result<(), AgentError> {
        Ok(())
    }

    /// Called before each call of a tool. May change the arguments. A returned value is used as the result, and the tool is not
    /// called. Changes of the state are stored with the tool results.
    async fn before_tool(
        &self,
        _context: &mut CallbackContext,
        _call: &mut ToolCall,
    ) -> Result<Option<Json>, AgentError> {
        Ok(None)
    }

    /// Called after each call of a tool, even if the call failed. A returned value replaces the tool's result.
    async fn after_tool(
        &self,
        _context: &mut CallbackContext,
        _call: &ToolCall,
        _result: &Json,
    ) -> Result<Option<Json>, AgentError> {
        Ok(None)
    }
}
