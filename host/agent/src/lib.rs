//! What answers a message: the agent, and the model behind it.
//!
//! The server calls an [`AgentExecutor`] once per turn and turns the [`AgentEvent`]s that it sends into A2A events.
//! [`TemplateAgent`] is the one for use: an instruction with variables from the session state, given to a [`Model`].
//! [`ScriptAgent`] is the one for tests of clients: it plays events.
//! This crate knows no HTTP binding, no task store and no extension.

#![warn(missing_docs)]

mod executor;
mod generative;
mod model;
mod remote;
mod script_agent;
mod scripted;
mod steps;
mod template;
mod template_agent;

pub use executor::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
pub use generative::{Adapter, GenerativeConfig, GenerativeError, GenerativeModel};
pub use model::{Model, ModelError, ModelEvent, ModelStream, Prompt, Speaker, Turn};
pub use remote::{Notes, NotesError, RemoteCall};
pub use script_agent::ScriptAgent;
pub use script_agent::script::EventScript;
pub use scripted::{RuleConfig, ScriptConfig, ScriptError, ScriptedModel};
pub use steps::{OpenStep, StepKind, Steps, Tokens};
pub use template::{TemplateError, render};
pub use template_agent::TemplateAgent;
