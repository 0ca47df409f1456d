//! The tools of an agent, which a model can call.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use annex_protocol::{ContextId, Json, Part, TaskId};
use async_trait::async_trait;

use crate::model::ToolDeclaration;
use crate::state_access::StateAccess;

/// Something that a model can call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// The description for the model. Asked once, when the agent is put together.
    fn declaration(&self) -> ToolDeclaration;

    /// The place that it comes from, for messages to the operator.
    fn origin(&self) -> &str;

    /// Tells whether its results come later, from the client. It is for clients to know; [`ToolOutput::Pending`]
    /// decides.
    fn is_long_running(&self) -> bool {
        false
    }

    /// Makes one call. Several calls of one model answer run at the same time.
    ///
    /// # Errors
    /// The model is told the message and goes on; nothing that the tool changed through `context` is kept.
    async fn call(&self, context: &mut ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError>;
}

/// The answer of a tool.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolOutput {
    /// The result.
    Done(Json),
    /// There is no result yet, and this is the answer until then. The task waits for input, until the client sends the
    /// result.
    Pending(Json),
}

/// A tool failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The text for the model, which may tell the user.
    pub message: String,
}

/// A tool's knowledge of its call, and the state and files that it may change.
pub struct ToolContext {
    /// The task that the turn works on.
    pub task_id: TaskId,
    /// The conversation it belongs to.
    pub context_id: ContextId,
    /// The call.
    pub call_id: String,
    /// The state. When calls that run at the same time set one key, the last call's value stays.
    pub state: StateAccess,
    /// Files to keep in the session, by name. A new one replaces an older one of the same name.
    pub artifacts: Vec<(String, Vec<Part>)>,
}

/// The tools of an agent, each with a name of its own.
#[derive(Clone)]
pub struct Tools {
    by_name: Arc<HashMap<String, Arc<dyn Tool>>>,
    declarations: Arc<[ToolDeclaration]>,
}

/// Two tools have one name.
#[derive(Debug, thiserror::Error)]
#[error("tool `{name}` is offered by {first} and by {second}; leave it out of the `tools` of one of them")]
pub struct ToolClash {
    name: String,
    first: String,
    second: String,
}

impl Tools {
    /// # Errors
    /// When two have the same name.
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Result<Self, ToolClash> {
        let declarations: Arc<[ToolDeclaration]> = tools.iter().map(|tool| tool.declaration()).collect();
        let mut by_name: HashMap<String, Arc<dyn Tool>> = HashMap::new();
        for (tool, declaration) in tools.into_iter().zip(declarations.iter()) {
            let second = tool.origin().to_owned();
            // A model calls by name, so of two tools with one name nobody could say which one it meant.
            if let Some(first) = by_name.insert(declaration.name.clone(), tool) {
                return Err(ToolClash { name: declaration.name.clone(), first: first.origin().to_owned(), second });
            }
        }
        Ok(Self { by_name: Arc::new(by_name), declarations })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.by_name.get(name)
    }

    pub(crate) fn declarations(&self) -> Arc<[ToolDeclaration]> {
        Arc::clone(&self.declarations)
    }
}

/// No tools.
impl Default for Tools {
    fn default() -> Self {
        Self { by_name: Arc::default(), declarations: Arc::from([]) }
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.declarations.iter().map(|declaration| &declaration.name)).finish()
    }
}
