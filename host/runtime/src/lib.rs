//! Loads, checks, isolates and calls WebAssembly components that implement A2A extensions.
//!
//! [`Runtime::load`] turns the bytes of a component into an [`Extension`]. [`Installed`] is a set of extensions that
//! fit together. A [`Chain`] runs the active extensions in one turn. This crate uses the data types of A2A. It contains
//! no server, and stores neither sessions nor tasks.
//!
//! Every call into a guest has an instance without data of other turns, a memory limit, CPU and wall-clock limits, a
//! limit on host calls, and limits on the data that guest and host exchange ([`Limits`]).

mod advisories;
mod bindings;
mod caller;
mod card_slot;
mod chain;
mod config;
mod confinement;
mod contract;
mod digest;
mod error;
mod extension;
mod hook;
mod installed;
mod live_card;
mod load;
mod observation;
mod overrides;
mod recording;
mod turn_view;

pub use advisories::{Advisory, ENGINE_VERSION, EngineVersion, advisories};
pub use annex_keyvalue::{
    KEYS_PER_PAGE, KeyValueError, KeyValueStore, MAX_KEY_BYTES, MemoryKeyValueStore, Quota, SCOPES_PER_PAGE, Scope,
    ScopeKind, Space, Usage, incremented,
};
pub use annex_manifest::{MANIFEST_SECTION, MAX_MANIFEST_BYTES, ManifestGrants, ManifestParameters, ManifestSection};
pub use caller::{Caller, Presence, VisibleCaller};
pub use card_slot::{LastDeclaration, LiveEntry};
pub use chain::card_read::{ShownEntries, show_entries};
pub use chain::client_call::{Addition, ClientCall, ClientCallRequest};
pub use chain::entry_decision::EntryDecision;
pub use chain::interruption::Interruption;
pub use chain::method_call::{MethodAnswer, MethodCall};
pub use chain::model_parameters::ModelParameters;
pub use chain::outgoing::apply_patch;
pub use chain::output::OutputOutcome;
pub use chain::participation::{PartInTurn, Participation};
pub use chain::read_call::{ShownTasks, show_tasks};
pub use chain::replay::{ReplayResult, replay};
pub use chain::reply::ReadyAnswer;
pub use chain::steering::{
    MadeToolCall, ModelOutcome, PlannedModelCall, PlannedToolCall, Remark, Steered, SteeringVerdict, ToolOutcome,
};
pub use chain::task_to_show::{ShowDecision, TaskToShow};
pub use chain::transition::{BeginOutcome, ChangeOutcome};
pub use chain::{Chain, RequestOutcome, TurnRequest};
pub use config::RuntimeConfig;
pub use confinement::breaker::Health;
pub use confinement::engine::{MEMORY_CEILING, TABLE_CEILING, TICK};
pub use confinement::grants::{
    CallerGrant, GrantNeeded, Grants, HostPattern, HttpGrant, HttpRule, HttpScheme, InvalidHost, LiveCardGrant,
    SessionStateGrant, StateScope,
};
pub use confinement::limits::{LimitReached, Limits};
pub use contract::Events;
pub use digest::Digest;
pub use error::{Fault, HookError, LoadError, RuntimeError};
pub use extension::Extension;
pub use hook::Hook;
pub use installed::Installed;
pub use load::Runtime;
pub use load::compile::{COMPILE_ARGUMENT, Compilation, CompilerProcess, compilations, compile_if_asked};
pub use load::descriptor::Descriptor;
pub use load::inspect::{Access, Import, Inspection, InspectionResult, MAX_COMPONENT_BYTES};
pub use load::installation::{Installation, Instances, OnFailure};
pub use load::method::Method;
pub use load::selection::{Activate, AllowedCaller, AllowedCallers, Readers, Selection};
pub use load::source::Source;
pub use observation::log_tail::LogLine;
pub use observation::metrics::{BusyTime, CallOutcome, ExtensionMetrics, HookMetrics, HookTotals, LastFailure};
pub use overrides::{Clock, HttpClient, HttpListener, Random, ServiceOverrides, Unreachable};
pub use recording::comparison::{Comparison, Difference, Example, HookCost};
pub use recording::host_call::{HostCall, HttpAnswer, Octets};
pub use recording::redaction::Hide;
pub use recording::step::{HookTime, RecordedStep, StepInput, StepResult};
pub use recording::{
    Attention, FORMAT_VERSION, KnownKey, RecordedTurn, RecordingEnd, RecordingHead, RecordingLine, TurnObserver,
};
pub use turn_view::{NoTurn, TurnIds, TurnView};
