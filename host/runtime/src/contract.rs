//! The data types of the contract between host and extensions: arguments and results of hooks, and data of imports.
//! They are independent of contract versions. The module `bindings` converts them from and to the types of each
//! version. The files in `wit/` define the meaning.

use annex_protocol::TaskState;
use annex_schema::Violation;

/// Metadata entries: keys with JSON text.
pub(crate) type Entries = Vec<(String, String)>;

/// Kinds of outgoing events that an extension subscribes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// True if the extension gets a Message that is the agent's answer.
    pub message: bool,
    /// True if the extension gets changes of the task's state.
    pub status: bool,
    /// True if the extension gets new artifacts, and further pieces of an artifact.
    pub artifact: bool,
}

impl Events {
    /// The kinds that are in either of the two.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            message: self.message || other.message,
            status: self.status || other.status,
            artifact: self.artifact || other.artifact,
        }
    }
}

/// A component's descriptor, before it is checked.
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

/// A component's changes to its entry on the card.
pub(crate) struct CardEntry {
    pub(crate) description: Option<String>,
    /// The parameters of the entry: a JSON object as text.
    pub(crate) params: Option<String>,
}

/// A component's changes to its entry on the card, and the time for which they hold.
pub(crate) struct LiveCardEntry {
    pub(crate) entry: CardEntry,
    /// For how many seconds the entry holds. 0 means until the next load.
    pub(crate) seconds: u32,
}

/// The request that a hook runs for.
pub(crate) struct Request {
    pub(crate) operation: String,
    pub(crate) context_id: Option<String>,
    pub(crate) task_id: Option<String>,
    pub(crate) requested: Vec<String>,
}

/// An extension's decision whether to be active for a request.
pub(crate) enum Decision {
    Active,
    Inactive,
}

/// An error of an extension, before its code is checked.
pub(crate) struct ExtensionError {
    pub(crate) code: i32,
    pub(crate) message: String,
    /// The data of the error as JSON text.
    pub(crate) data: Option<String>,
}

/// Why a hook refuses a request.
pub(crate) enum Rejection {
    Violations(Vec<Violation>),
    Error(ExtensionError),
}

/// The metadata that an entry belongs to: that of the message, or that of the request.
#[derive(Clone, Copy)]
pub(crate) enum Location {
    Message,
    Request,
}

/// A metadata entry of a request.
pub(crate) struct MetadataEntry {
    pub(crate) location: Location,
    pub(crate) key: String,
    /// The value of the entry as JSON text.
    pub(crate) value: String,
}

/// The replacement of one part of a message.
pub(crate) struct Rewrite {
    /// Index of the part, from 0.
    pub(crate) part: u32,
    /// The parts that replace the part at this index, each as JSON text.
    pub(crate) replacement: Vec<String>,
}

/// The beginning of a turn.
pub(crate) struct Beginning {
    pub(crate) task_id: String,
    pub(crate) context_id: String,
    /// Name of the state in which the task waits; `None` if it does not wait.
    pub(crate) waits_in: Option<String>,
    pub(crate) resumed: bool,
}

/// An imminent change of the task's state.
pub(crate) struct StateChange {
    pub(crate) task_id: String,
    pub(crate) context_id: String,
    pub(crate) current: String,
    pub(crate) next: String,
    /// Message of the new status as JSON text.
    pub(crate) message: Option<String>,
}

/// An extension's demand: the task has to wait for input or authorization from the client.
pub(crate) struct Wait {
    /// The waiting state: `TASK_STATE_INPUT_REQUIRED` or `TASK_STATE_AUTH_REQUIRED`.
    pub(crate) state: TaskState,
    pub(crate) text: String,
    pub(crate) metadata: Entries,
}

/// The ruling on the beginning of a turn.
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

/// The content of an outgoing event, for the hook `output`.
pub(crate) struct OutputContent {
    pub(crate) task_id: Option<String>,
    pub(crate) context_id: String,
    pub(crate) place: OutputPlace,
    /// The parts as the text of a JSON array.
    pub(crate) parts: String,
    /// How many chunks of the artifact the extension has held back. Their parts are in `parts`.
    pub(crate) held: u32,
}

/// The message, status or artifact that content belongs to.
pub(crate) enum OutputPlace {
    Message,
    /// The message of a status. The text is the name of the state.
    Status(String),
    Artifact(OutputChunk),
}

/// A chunk of an artifact.
pub(crate) struct OutputChunk {
    pub(crate) artifact_id: String,
    /// True if the chunk begins the artifact, or replaces the artifact from its beginning.
    pub(crate) first: bool,
    /// True for the last chunk of the artifact.
    pub(crate) last: bool,
}

/// The replacement of one part of outgoing content.
pub(crate) struct Replacement {
    /// Index of the part, from 0. The number of parts stands for the end.
    pub(crate) part: u32,
    /// The parts that replace the part at this index, each as JSON text.
    pub(crate) parts: Vec<String>,
    /// Why the new parts lack metadata of others that is on the old part.
    pub(crate) dropped: Option<String>,
}

/// The verdict of the hook `output` on content.
pub(crate) enum OutputVerdict {
    Leave,
    Replace(Vec<Replacement>),
    Hold,
    Refuse(String),
}

/// An answer of the hook `reply`, before it is checked.
pub(crate) struct ReplyAnswer {
    /// The state of the task after the answer: one of the five states of the enum `outcome` in the WIT.
    pub(crate) state: TaskState,
    /// The parts, each as JSON text.
    pub(crate) parts: Vec<String>,
    /// The name of the artifact. `None` if the parts are the message of the status.
    pub(crate) artifact: Option<String>,
    pub(crate) metadata: Entries,
}

/// A remark of the hook `steering`: a message about a step, before it is checked.
pub(crate) struct RemarkDraft {
    /// The parts, each as JSON text.
    pub(crate) parts: Vec<String>,
    pub(crate) metadata: Entries,
}

/// A result of the hook `steering`, with the remark about the step.
pub(crate) type Remarked<T> = (T, Option<RemarkDraft>);

/// A call of the model that is about to be made.
pub(crate) struct ModelCall {
    /// How many rounds of tools there were in the turn.
    pub(crate) round: u32,
    pub(crate) model: String,
    /// The models that may be called instead.
    pub(crate) lent: Vec<String>,
    /// The parts of the instruction.
    pub(crate) instruction: Vec<String>,
    /// The parameters as the text of a JSON object.
    pub(crate) parameters: String,
    /// The names of the tools.
    pub(crate) tools: Vec<String>,
}

/// Changes of a call of the model, before they are checked.
pub(crate) struct ModelChange {
    pub(crate) model: Option<String>,
    pub(crate) instruction: Option<Vec<String>>,
    /// The parameters as the text of a JSON object.
    pub(crate) parameters: Option<String>,
}

/// The verdict of the hook `steering` on a call of the model.
pub(crate) enum ModelVerdict {
    Pass,
    Change(ModelChange),
    Refuse(String),
}

/// A call of a tool that the model asks for.
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The name of the server that offers the tool.
    pub(crate) origin: String,
    /// The arguments as the text of a JSON object.
    pub(crate) arguments: String,
    /// True if the extension has made the call wait before.
    pub(crate) has_waited: bool,
}

/// The verdict of the hook `steering` on a call of a tool.
pub(crate) enum ToolVerdict {
    Pass,
    /// Other arguments, as JSON text.
    Change(String),
    Deny(String),
    Wait(Wait),
}

/// A call of a tool that was made.
pub(crate) struct ToolResult {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The arguments as the text of a JSON object.
    pub(crate) arguments: String,
    /// The result as JSON text.
    pub(crate) output: String,
    /// True if the tool reported an error.
    pub(crate) failed: bool,
}

/// The kind of an outgoing event.
pub(crate) enum EventKind {
    Message,
    Status,
    Artifact,
}

/// An outgoing event, before it is stored and sent.
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) task_id: Option<String>,
    pub(crate) context_id: String,
    pub(crate) task_state: Option<String>,
    pub(crate) has_message: bool,
    pub(crate) last_chunk: bool,
    /// The extension's keys that the metadata of the event already contains.
    pub(crate) present: Vec<String>,
    /// The event as the JSON text of a StreamResponse.
    pub(crate) payload: Option<String>,
}

/// A task that a reader is about to see, for the hook `reads`.
pub(crate) struct ShownTask {
    pub(crate) id: String,
    pub(crate) context_id: String,
    /// Name of the state of the task.
    pub(crate) state: String,
    /// Entries of the task's metadata under the extension's own keys.
    pub(crate) metadata: Entries,
}

/// What the hook `reads` decides about a task.
pub(crate) enum TaskVisibility {
    Unchanged,
    /// Entries for the metadata of the task in this answer alone.
    Add(Entries),
    /// The reader does not see the task. The text is the reason.
    LeaveOut(String),
}

/// The entry of an extension on the extended card, for the hook `extended-card`.
pub(crate) struct ShownEntry {
    pub(crate) description: String,
    /// The parameters as the text of a JSON object.
    pub(crate) params: Option<String>,
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
    /// The only result, as JSON text.
    Value(String),
    /// A stream, which the host reads one result at a time.
    Results,
}

/// A call that a client is about to make.
pub(crate) struct ClientRequest {
    pub(crate) operation: String,
    pub(crate) agent: String,
    /// The extension's entry on the card, as the JSON text of an AgentExtension.
    pub(crate) declaration: Option<String>,
    /// The program's input for the extension, as JSON text.
    pub(crate) input: Option<String>,
    /// The message as JSON text.
    pub(crate) message: Option<String>,
}

/// A component's addition to a client's call.
pub(crate) struct ClientAddition {
    pub(crate) activate: bool,
    pub(crate) metadata: Vec<MetadataEntry>,
}

/// An event of the answer to a client.
pub(crate) struct ClientEvent {
    pub(crate) active: bool,
    /// The event as the JSON text of a StreamResponse.
    pub(crate) event: String,
    pub(crate) metadata: Entries,
}

/// Level of a guest's log line.
#[derive(Clone, Copy)]
pub(crate) enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// Why a bucket refuses a call or fails.
pub(crate) enum BucketError {
    NoSuchStore,
    AccessDenied,
    Other(String),
}

/// A page of a bucket's keys.
pub(crate) struct KeyPage {
    pub(crate) keys: Vec<String>,
    /// Start of the next page; `None` on the last page.
    pub(crate) cursor: Option<u64>,
}
