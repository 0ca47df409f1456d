//! Loads, checks, confines and calls WebAssembly components that implement A2A extensions.
//!
//! [`Runtime::load`] turns a component's bytes into an [`Extension`]; [`Installed`] holds those that work together;
//! a [`Chain`] runs the active ones for one turn. The crate knows A2A's data model and nothing of how it is served or
//! how sessions and tasks are kept.
//!
//! Every call into a guest has: a fresh instance per extension and turn, a memory limit, a CPU deadline, an
//! outer deadline, a budget of host calls, and caps on what crosses the boundary ([`Limits`]).

mod advisories;
mod bindings;
mod breaker;
mod cache;
mod chain;
mod client_call;
mod compile;
mod config;
mod contract;
mod descriptor;
mod digest;
mod engine;
mod error;
mod extension;
mod grants;
mod hook;
mod http_sender;
mod imports;
mod inspect;
mod installation;
mod installed;
mod instance;
mod limits;
mod linker;
mod load;
mod log;
mod log_tail;
mod method;
mod method_call;
mod metrics;
mod outgoing;
mod owned_metadata;
mod profile;
mod program;
mod rewriting;
mod self_check;
mod slots;
mod source;
mod store;
mod structure;
mod transition;
mod turn_view;

pub use advisories::{Advisory, ENGINE_VERSION, EngineVersion, advisories};
pub use annex_keyvalue::{
    KEYS_PER_PAGE, KeyValueError, KeyValueStore, MAX_KEY_BYTES, MemoryKeyValueStore, Quota, SCOPES_PER_PAGE, Scope,
    ScopeKind, Space, Usage, incremented,
};
pub use breaker::Health;
pub use chain::{Chain, RequestOutcome, TurnRequest};
pub use client_call::{Addition, ClientCall, OutgoingCall};
pub use compile::{COMPILE_ARGUMENT, CompilerProcess, compile_if_asked};
pub use config::RuntimeConfig;
pub use contract::Events;
pub use descriptor::Descriptor;
pub use digest::Digest;
pub use engine::{MEMORY_CEILING, TABLE_CEILING, TICK};
pub use error::{Fault, HookError, LoadError, RuntimeError};
pub use extension::Extension;
pub use grants::{
    GrantNeeded, Grants, HostPattern, HttpGrant, HttpRule, HttpScheme, InvalidHost, SessionStateGrant, StateScope,
};
pub use hook::Hook;
pub use inspect::{Access, Import, Inspection, MAX_COMPONENT_BYTES};
pub use installation::{Installation, OnFailure};
pub use installed::Installed;
pub use limits::{LimitReached, Limits};
pub use load::Runtime;
pub use log_tail::LogLine;
pub use method::Method;
pub use method_call::{MethodAnswer, MethodCall};
pub use metrics::{CallOutcome, ExtensionMetrics, HookMetrics, LastFailure};
pub use outgoing::apply_patch;
pub use source::Source;
pub use transition::{BeginOutcome, ChangeOutcome, Interruption};
pub use turn_view::{NoTurn, TurnView};
