//! The tools of an agent, which a model can call.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use annex_protocol::{ContextId, Json, Part, TaskId};
use async_trait::async_trait;

use crate::model::ToolDeclaration;
use crate::state_access::StateAccess;

/// A function that a model can call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// The description for the model. Called once, when the agent is created.
    fn declaration(&self) -> ToolDeclaration;

    /// The origin of the tool, for messages to the operator.
    fn origin(&self) -> &str;

    /// The name of the server that offers the tool, for extensions. `None` for a tool of the program itself.
    fn server(&self) -> Option<&str> {
        None
    }

    /// Tells whether the client sends the results later. This value only informs clients. A call waits for the client
    /// if its output is [`ToolOutput::Pending`].
    fn is_long_running(&self) -> bool {
        false
    }

    /// Makes one call. The calls of one answer run at the same time.
    ///
    /// # Errors
    /// The model gets the message and continues. The tool's changes in `context` are dropped.
    async fn call(&self, context: &mut ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError>;
}

/// The answer of a tool.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolOutput {
    /// The tool has finished, with this result.
    Done(Json),
    /// The tool gives only a preliminary answer. The task waits for input until the client sends the result.
    Pending(Json),
}

/// The error of a tool that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The text for the model, which may repeat it to the user.
    pub message: String,
}

/// A tool's access to its call, and to the state and files of the session.
pub struct ToolContext {
    /// The task that the turn works on.
    pub task_id: TaskId,
    /// The conversation of the task.
    pub context_id: ContextId,
    /// The id of the call, which its result repeats.
    pub call_id: String,
    /// The state. If calls that run at the same time set one key, the value of the last call stays.
    pub state: StateAccess,
    /// Files for the session, by name. A new file replaces an older one of the same name.
    pub artifacts: Vec<(String, Vec<Part>)>,
}

/// The tools of an agent, with unique names.
#[derive(Clone)]
pub struct Tools {
    by_name: Arc<HashMap<String, Arc<dyn Tool>>>,
    declarations: Arc<[ToolDeclaration]>,
}

/// The error for two tools with the same name.
#[derive(Debug, thiserror::Error)]
#[error("tool `{name}` is offered by {first} and by {second}; leave it out of the `tools` of one of them")]
pub struct ToolClash {
    name: String,
    first: String,
    second: String,
}

impl Tools {
    /// Collects tools.
    ///
    /// # Errors
    /// When two tools have the same name.
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Result<Self, ToolClash> {
        let declarations: Arc<[ToolDeclaration]> = tools.iter().map(|tool| tool.declaration()).collect();
        let mut by_name: HashMap<String, Arc<dyn Tool>> = HashMap::new();
        for (tool, declaration) in tools.into_iter().zip(declarations.iter()) {
            let second = tool.origin().to_owned();
            // A model calls tools by name, so that two tools with one name would be ambiguous.
            if let Some(first) = by_name.insert(declaration.name.clone(), tool) {
                return Err(ToolClash { name: declaration.name.clone(), first: first.origin().to_owned(), second });
            }
        }
        Ok(Self { by_name: Arc::new(by_name), declarations })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.by_name.get(name)
    }

    pub(crate) fn declarations(&self) -> Arc<[ToolDeclaration]> {
        Arc::clone(&self.declarations)
    }
}

/// Creates an empty collection.
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
