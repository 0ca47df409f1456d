//! The steps of an agent about which the server asks the extensions.

use annex_protocol::{ExtensionUri, Json, Metadata, TaskState};

use crate::model::ToolCall;

/// A call of the model that is about to be made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelPlan {
    /// How many rounds of tools there were in this turn.
    pub round: u32,
    /// The name of the model under which the operator lends it.
    pub model: String,
    /// The names of the models that may be called instead.
    pub lent: Vec<String>,
    /// The parts of the instruction.
    pub instruction: Vec<String>,
    /// The parameters of the call.
    pub parameters: ModelParameters,
    /// The names of the tools.
    pub tools: Vec<String>,
}

/// The parameters of a call of the model. The provider chooses those that are not set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelParameters {
    /// How random the answer is.
    pub temperature: Option<f64>,
    /// The share of likely words among which the model chooses.
    pub top_p: Option<f64>,
    /// The maximum number of tokens of the answer.
    pub max_tokens: Option<u32>,
    /// Texts that end the answer.
    pub stop: Option<Vec<String>>,
    /// The number that makes answers repeatable.
    pub seed: Option<i32>,
}

/// A call of a tool that the model asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolPlan {
    /// The call.
    pub call: ToolCall,
    /// The name of the server that offers the tool; empty if no server does.
    pub origin: String,
    /// The extensions that want the task to wait before the call, and that must allow the call. Empty if the task does
    /// not wait.
    pub held_by: Vec<ExtensionUri>,
    /// Those of `held_by` whose waits the client knows of.
    pub waited_for: Vec<ExtensionUri>,
}

/// The decision about a call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolDecision {
    /// The call is made with these arguments.
    Make(Json),
    /// The call is not made. The model gets this text as the result.
    Deny(String),
    /// The task waits before the call is made.
    Wait {
        /// The arguments that the extension has seen.
        arguments: Json,
        /// The wait.
        pause: Box<Pause>,
    },
}

/// An extension's demand: the task has to wait before a call is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Pause {
    /// The extension.
    pub by: ExtensionUri,
    /// The waiting state: for input, or for authorization.
    pub state: TaskState,
    /// The text for the client.
    pub text: String,
    /// Metadata of the status message.
    pub metadata: Metadata,
}

/// A call of a tool that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeCall {
    /// The call.
    pub call: ToolCall,
    /// The result.
    pub output: Json,
    /// True if the tool reported an error.
    pub failed: bool,
}
