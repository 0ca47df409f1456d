//! The data of the contract between host and extensions, as the host speaks of it: what a hook is given, what it gives
//! back, and what imports carry. No version's generated types; `bindings` converts. The files in `wit/` say what each
//! thing means.

use annex_protocol::TaskState;
use annex_schema::Violation;

/// Metadata: keys, with JSON text under each.
pub(crate) type Entries = Vec<(String, String)>;

/// Kinds of outgoing event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// The agent's answer as a Message.
    pub message: bool,
    /// Changes of the task's state.
    pub status: bool,
    /// Artifacts.
    pub artifact: bool,
}

/// A component's description of itself, before it is checked.
pub(crate) struct Description {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) description: String,
    pub(crate) parameter_schema: Option<String>,
    pub(crate) metadata_keys: Vec<String>,
    pub(crate) depends_on: Vec<String>,
    pub(crate) grants: Vec<String>,
    pub(crate) events: Events,
    pub(crate) payload: bool,
}

/// A component's wishes for its entry on the card.
pub(crate) struct CardEntry {
    pub(crate) description: Option<String>,
    /// A JSON object.
    pub(crate) params: Option<String>,
}

/// The request that a hook runs for.
pub(crate) struct Request {
    pub(crate) operation: String,
    pub(crate) context_id: Option<String>,
    pub(crate) task_id: Option<String>,
    pub(crate) requested: Vec<String>,
}

/// An extension's decision to take part in a request or to stay out.
pub(crate) enum Decision {
    Active,
    Inactive,
}

/// An error of an extension's own. Its code is not checked yet.
pub(crate) struct ExtensionError {
    pub(crate) code: i32,
    pub(crate) message: String,
    /// JSON text.
    pub(crate) data: Option<String>,
}

/// The reason for which a hook refuses a request.
pub(crate) enum Rejection {
    Violations(Vec<Violation>),
    Error(ExtensionError),
}

/// The place of a metadata entry in a request.
#[derive(Clone, Copy)]
pub(crate) enum Location {
    Message,
    Request,
}

/// One metadata entry of a request.
pub(crate) struct MetadataEntry {
    pub(crate) location: Location,
    pub(crate) key: String,
    /// JSON text.
    pub(crate) value: String,
}

/// One part of a message, and what takes its place.
pub(crate) struct Rewrite {
    /// Counted from 0.
    pub(crate) part: u32,
    /// Parts as JSON text.
    pub(crate) replacement: Vec<String>,
}

/// The task that a turn takes up.
pub(crate) struct Beginning {
    pub(crate) task_id: String,
    pub(crate) context_id: String,
    /// The name of the state that a task which waits is in.
    pub(crate) waits_in: Option<String>,
    pub(crate) resumed: bool,
}

/// A change of the task's state that is about to happen.
pub(crate) struct StateChange {
    pub(crate) task_id: String,
    pub(crate) context_id: String,
    pub(crate) current: String,
    pub(crate) next: String,
    /// The message of the new status as JSON text.
    pub(crate) message: Option<String>,
}

/// A task is to wait instead of going on.
pub(crate) struct Wait {
    /// `TASK_STATE_INPUT_REQUIRED` or `TASK_STATE_AUTH_REQUIRED`.
    pub(crate) state: TaskState,
    pub(crate) text: String,
    pub(crate) metadata: Entries,
}

/// The ruling on the beginning of a turn: the agent runs or not.
pub(crate) enum BeginRuling {
    Proceed,
    Interrupt(Wait),
    Veto(String),
}

/// The ruling on a change of state.
pub(crate) enum ChangeRuling {
    Pass,
    Annotate(Entries),
    Interrupt(Wait),
    Veto(String),
}

/// The kind of one outgoing event.
pub(crate) enum EventKind {
    Message,
    Status,
    Artifact,
}

/// One outgoing event, before it is stored and sent.
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) task_id: Option<String>,
    pub(crate) context_id: String,
    pub(crate) task_state: Option<String>,
    pub(crate) has_message: bool,
    pub(crate) last_chunk: bool,
    /// The extension's own keys that are there already.
    pub(crate) present: Vec<String>,
    /// A StreamResponse as JSON text.
    pub(crate) payload: Option<String>,
}

/// A method that a component declares, before it is checked.
pub(crate) struct MethodDeclaration {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) params_schema: Option<String>,
    pub(crate) result_schema: Option<String>,
    pub(crate) streams: bool,
}

/// The answer of a method.
pub(crate) enum MethodReply {
    /// JSON text.
    Value(String),
    /// The host asks for the results one by one.
    Results,
}

/// A call that a client is about to make.
pub(crate) struct ClientRequest {
    pub(crate) operation: String,
    pub(crate) agent: String,
    /// An AgentExtension as JSON text.
    pub(crate) declaration: Option<String>,
    /// JSON text.
    pub(crate) input: Option<String>,
    /// The message as JSON text.
    pub(crate) message: Option<String>,
}

/// A component's addition to a call of a client.
pub(crate) struct ClientAddition {
    pub(crate) activate: bool,
    pub(crate) metadata: Vec<MetadataEntry>,
}

/// Something that came back to a client.
pub(crate) struct ClientEvent {
    pub(crate) active: bool,
    /// A StreamResponse as JSON text.
    pub(crate) event: String,
    pub(crate) metadata: Entries,
}

/// The importance of a line of a guest's log.
#[derive(Clone, Copy)]
pub(crate) enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// The reason for which a bucket of keys refuses or fails.
pub(crate) enum BucketError {
    NoSuchStore,
    AccessDenied,
    Other(String),
}

/// Some of a bucket's keys.
pub(crate) struct KeyPage {
    pub(crate) keys: Vec<String>,
    /// The beginning of the next page; `None` on the last one.
    pub(crate) cursor: Option<u64>,
}
