//! The agent that answers a message, and the model behind it.
//!
//! The server calls an [`AgentExecutor`] once per turn and converts its [`AgentEvent`]s to A2A events.
//! [`TemplateAgent`] is the agent for production: an instruction with variables from the session state, given to a
//! [`Model`] that may call [`Tool`]s. [`ScriptAgent`] plays scripted events, for tests of clients. This crate knows no
//! HTTP binding, no store and no extension.

#![warn(missing_docs)]

mod call_part;
mod call_times;
mod callbacks;
mod conversation;
mod executor;
mod generative;
mod mcp;
mod model;
mod remote;
mod script_agent;
mod scripted;
mod state_access;
mod steering;
mod steps;
mod template;
mod template_agent;
mod tool;
mod toolbox;
mod work;

pub use call_part::is_note;
pub use call_times::{CallEnd, CallTimes};
pub use callbacks::{CallbackContext, Callbacks, ModelAnswer};
pub use conversation::readable;
pub use executor::{AgentError, AgentEvent, AgentExecutor, EventSender, Question, TurnContext};
pub use generative::{Adapter, GenerativeConfig, GenerativeError, GenerativeModel};
pub use mcp::{McpConfig, McpError, McpScope, McpServers, ServersAndTools, end_programs, kill_programs};
pub use model::{Model, ModelError, ModelEvent, ModelStream, Prompt, ToolCall, ToolDeclaration, ToolResult, Turn};
pub use remote::{CallerToken, TurnStart, UpstreamContext, UpstreamIds, UpstreamIdsError};
pub use script_agent::ScriptAgent;
pub use script_agent::script::EventScript;
pub use scripted::{CallConfig, RuleConfig, ScriptConfig, ScriptError, ScriptedModel};
pub use state_access::StateAccess;
pub use steering::{MadeCall, ModelParameters, ModelPlan, Pause, ToolDecision, ToolPlan};
pub use steps::{OpenStep, StepKind, Steps, TokenCount, Tokens};
pub use template::{TemplateError, check_template, render, unclosed_placeholder};
pub use template_agent::TemplateAgent;
pub use tool::{Tool, ToolClash, ToolContext, ToolError, ToolOutput, Tools};
pub use work::{CpuTime, counted};
