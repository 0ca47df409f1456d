//! Records the calls of one extension in a turn, so that the turn can be stored, replayed with another version, and
//! compared.
//!
//! A recorded turn is a list of steps. A step is one request of the host: the hooks of the way in, the beginning, a
//! change of state, an event, a read of tasks or of the extended card, or a method call. A step has the input as the
//! extension sees it, the guest's calls whose answers depend on more than this input, the checked result, and the time
//! per hook.
//!
//! The field names are the file format, whose version is [`FORMAT_VERSION`]. No enum here is internally tagged: serde
//! cannot deserialize [`Json`] from the buffer that such enums need.

use annex_keyvalue::Scope;
use annex_protocol::{
    AgentExtension, ContextId, ExtensionUri, Json, JsonObject, Message, Metadata, Part, StreamResponse, TaskId,
    TaskState, TaskStatusUpdateEvent, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::caller::VisibleCaller;
use crate::chain::entry_decision::EntryDecision;
use crate::chain::steering::{MadeToolCall, PlannedModelCall, PlannedToolCall, Remark, SteeringVerdict};
use crate::chain::task_to_show::{ShowDecision, TaskToShow};
use crate::contract::Events;
use crate::turn_view::TurnIds;

pub(crate) mod answers;
pub(crate) mod comparison;
pub(crate) mod observer_slot;
pub(crate) mod recorder;
pub(crate) mod recording_view;
pub(crate) mod redaction;
mod results;

/// Version of the recording format.
pub const FORMAT_VERSION: u32 = 1;

/// Receives the turns of an extension.
pub trait TurnObserver: Send + Sync {
    /// True if the observer wants the turn that begins. [`TurnObserver::ended`] or [`TurnObserver::left_out`] is
    /// called for each such turn.
    fn wants(&self) -> bool;

    /// The events and data that another version of the extension receives, if that version will replay the turn. They
    /// are recorded too, even if the extension itself does not receive them. `None` if no other version will replay the
    /// turn.
    fn beside(&self) -> Option<&Attention> {
        None
    }

    /// True if steps without a call of one of the extension's hooks are recorded too. With these steps, the recordings
    /// of two versions with different hooks have the same steps and can be compared.
    fn wants_all_steps(&self) -> bool {
        false
    }

    /// Called with each recorded turn when the turn has ended.
    fn ended(&self, turn: RecordedTurn);

    /// Called for a turn that the observer wanted and that was not recorded. The turn was too large, or was cancelled
    /// before a step ended.
    fn left_out(&self) {}
}

/// The events and data that an extension receives in turns.
#[derive(Clone, Debug, Default)]
pub struct Attention {
    /// Metadata keys that the extension owns.
    pub metadata_keys: Vec<String>,
    /// True if the extension receives the parts of messages.
    pub message: bool,
    /// True if the extension receives changes of the task's state.
    pub transition: bool,
    /// True if the extension may answer in place of the agent.
    pub reply: bool,
    /// True if the extension steers the calls of the model and of tools.
    pub steering: bool,
    /// The kinds of outgoing events whose content the extension may revise.
    pub output: Events,
    /// The kinds of outgoing events that the extension receives.
    pub events: Events,
    /// True if outgoing events include their content.
    pub payload: bool,
}

/// A line of a recording: a head, then turns, and an end unless the recording was interrupted.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingLine {
    /// The first line: the recorded extension.
    Recording(RecordingHead),
    /// A recorded turn.
    Turn(RecordedTurn),
    /// The last line: why the recording ended.
    End(RecordingEnd),
}

/// The first line of a recording: the component, and the start of the recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordingHead {
    /// [`FORMAT_VERSION`] of the writer.
    pub version: u32,
    /// URI of the extension.
    pub uri: ExtensionUri,
    /// Name in the descriptor.
    pub name: String,
    /// Version in the descriptor.
    pub component_version: String,
    /// SHA-256 of the component, with the prefix `sha256:`.
    pub digest: String,
    /// Start of the recording.
    pub at: Timestamp,
    /// The extension's `[[extension]]` table without `component`. Secrets appear without their values.
    pub settings: Json,
}

/// The last line of a recording: the number of turns, and the reason of the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingEnd {
    /// Number of recorded turns.
    pub turns: u64,
    /// Number of turns that were not recorded: they were too large, were cancelled, or too many ran or ended at once.
    pub left_out: u64,
    /// Why the recording ended: `turns`, `bytes` or `time` for a limit, `replaced` for a new version, or `shutdown`.
    pub reason: String,
}

/// One turn of one extension.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedTurn {
    /// Start of the turn.
    pub at: Timestamp,
    /// The A2A operation, or the method of the extension.
    pub operation: String,
    /// Ids of the turn. If the turn created its task or its conversation, these are the ids of the new task or
    /// conversation.
    #[serde(default)]
    pub ids: TurnIds,
    /// The conversation that the client named in its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<ContextId>,
    /// The task that the client named in its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// Extension URIs that the client requested.
    pub requested: Vec<ExtensionUri>,
    /// True if the message was accepted in an earlier turn, and its task is resumed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub resumed: bool,
    /// The caller, as far as the extension sees it. Absent without the grant `caller`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<VisibleCaller>,
    /// The keys that the extension used, with their values before the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KnownKey>,
    /// The steps in order. A cancelled step is not included.
    pub steps: Vec<RecordedStep>,
    /// Scopes of the keys, for a replay in the same process.
    #[serde(skip)]
    pub(crate) scopes: Vec<Scope>,
}

/// One step of a turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordedStep {
    /// The host's request.
    pub input: StepInput,
    /// Session state that the extension may read. Absent if unchanged since the previous step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<JsonObject>,
    /// The task, if the extension may read it. Absent if unchanged since the previous step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Json>,
    /// The agent's steps, if the extension may read them. Absent if unchanged since the previous step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_steps: Option<Json>,
    /// The calls of the guest that only the recording can answer in a replay, such as reads of the clock. They are in
    /// the order of the calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<HostCall>,
    /// The result after the host's checks.
    pub result: StepResult,
    /// Thread time of each hook that ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<HookTime>,
}

/// The host's request to an extension in one step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case")]
pub enum StepInput {
    /// The hooks of the way in: `activation`, `message`, `state`.
    Request {
        /// The message, without parts if the extension does not see them.
        message: Message,
        /// `metadata` of the request.
        metadata: Metadata,
    },
    /// A call of `transition.begin`.
    Begin {
        /// The task of the turn.
        task_id: TaskId,
        /// The conversation.
        context_id: ContextId,
        /// The state in which the task waited. `None` if the task did not wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waits_in: Option<TaskState>,
    },
    /// A call of `transition.change`.
    Change {
        /// The present state of the task.
        current: TaskState,
        /// The change.
        update: TaskStatusUpdateEvent,
    },
    /// A call of `reply.before-agent`.
    Reply {
        /// The message as it is stored.
        message: Message,
    },
    /// A call of `steering.before-model`.
    Model(PlannedModelCall),
    /// A call of `steering.before-tool`.
    Tool(PlannedToolCall),
    /// A call of `steering.after-tool`.
    ToolResult(MadeToolCall),
    /// A call of `output.revise`: the event with the parts that the extensions before this one have left. Parts that
    /// this extension has held back are in the earlier steps.
    Output(StreamResponse),
    /// A call of `response.respond`. The event has no parts if the extension does not see them.
    Event(StreamResponse),
    /// A call of `reads.show`.
    Read {
        /// The tasks that are not left out by the extensions before this one.
        tasks: Vec<TaskToShow>,
    },
    /// A call of `extended-card.show-entry`, with the entry on the extended card.
    ExtendedCard(AgentExtension),
    /// A call of `method.call`.
    Call {
        /// The parameters.
        params: Json,
    },
    /// A call of `method.next`.
    #[default]
    Next,
}

/// The extension's answer in one step, or its failure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case")]
pub enum StepResult {
    /// The extension is inactive for the request.
    Inactive,
    /// The extension accepts the request.
    Active {
        /// The keys of session state that the extension sets, with their new values.
        #[serde(default)]
        delta: JsonObject,
        /// The parts of the message, if the extension rewrote them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parts: Option<Vec<Part>>,
    },
    /// The extension refuses the request.
    Refused {
        /// Error code for the client.
        code: i32,
        /// Error message for the client.
        message: String,
        /// Data for the client: the violations, or data that the extension chose.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Json>,
    },
    /// The extension failed or exceeded a limit.
    Failed {
        /// The name of the outcome in the metrics, such as `trap` or `cpu_limit`.
        kind: String,
        /// The text of the failure.
        reason: String,
    },
    /// The extension agrees with the beginning or the change, lets the agent answer, or leaves the content unchanged.
    Agrees {
        /// Metadata that the extension added to the change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata>,
    },
    /// The extension makes the task wait.
    Interrupts {
        /// The state in which the task waits.
        state: TaskState,
        /// Text for the client.
        text: String,
        /// Metadata of the status message.
        #[serde(default)]
        metadata: Metadata,
    },
    /// The extension vetoes the beginning of the turn, or the change of state.
    Vetoes {
        /// The reason that the client is told.
        reason: String,
    },
    /// The extension answers in place of the agent.
    Answers {
        /// The state of the task after the answer.
        state: TaskState,
        /// The parts of the answer.
        parts: Vec<Part>,
        /// The name of the artifact. Absent if the parts are the message of the status.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        artifact: Option<String>,
        /// Metadata of the artifact or the message.
        #[serde(default)]
        metadata: Metadata,
    },
    /// The extension decides about a step of the agent.
    Steers {
        /// The verdict.
        verdict: SteeringVerdict,
        /// The remark about the step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remark: Option<Remark>,
    },
    /// The extension revises the content of an event.
    Revises {
        /// The parts that it leaves. Parts that it has held back before are among them.
        parts: Vec<Part>,
    },
    /// The extension holds the chunk back.
    Holds,
    /// The extension refuses the content, and the task fails.
    RefusesContent {
        /// The reason for the client.
        reason: String,
    },
    /// Metadata that the extension added to the event.
    Adds(Metadata),
    /// The decisions of the extension about the tasks of a read, one per task.
    Shows(Vec<ShowDecision>),
    /// The decision of the extension about its entry on the extended card.
    ShowsEntry(EntryDecision),
    /// The result of a method, or one result of a stream.
    Value(Json),
    /// The method streams its results.
    Streams,
    /// The stream has ended.
    #[default]
    Ends,
}

/// A recorded call of the guest. Its answer depends on more than the input of the step, or it changes something outside
/// of the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case")]
pub enum HostCall {
    /// Reads the time since 1970.
    Time {
        /// Whole seconds.
        seconds: u64,
        /// Nanoseconds of the second.
        nanoseconds: u32,
    },
    /// Reads the monotonic clock.
    Monotonic {
        /// Nanoseconds since an arbitrary moment.
        nanoseconds: u64,
    },
    /// Reads random bytes.
    Random(Octets),
    /// Reads a key.
    Get {
        /// Name of the bucket: empty for the lasting bucket, or `context`, or `task`.
        bucket: String,
        /// The name of the key.
        key: String,
        /// The value; absent if the key does not exist.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Octets>,
    },
    /// Sets a key.
    Set {
        /// Name of the bucket: empty for the lasting bucket, or `context`, or `task`.
        bucket: String,
        /// The name of the key.
        key: String,
        /// The new value.
        value: Octets,
    },
    /// Deletes a key.
    Delete {
        /// Name of the bucket: empty for the lasting bucket, or `context`, or `task`.
        bucket: String,
        /// The name of the key.
        key: String,
    },
    /// Increments a counter.
    Increment {
        /// Name of the bucket: empty for the lasting bucket, or `context`, or `task`.
        bucket: String,
        /// The name of the key.
        key: String,
        /// The increment.
        by: u64,
        /// The new value.
        value: u64,
    },
    /// Lists keys.
    Keys {
        /// Name of the bucket: empty for the lasting bucket, or `context`, or `task`.
        bucket: String,
        /// Number of skipped keys.
        skip: u64,
        /// The page of keys.
        keys: Vec<String>,
    },
    /// Lists tasks.
    Tasks {
        /// A ListTasksRequest as JSON.
        request: String,
        /// A ListTasksResponse; absent on error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<Json>,
        /// The error message for the extension.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Resumes a task.
    Resume {
        /// The id of the task to resume.
        task_id: String,
        /// Why the task cannot be resumed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Sets an entry of the task's metadata.
    TaskMetadata {
        /// The name of the entry.
        key: String,
        /// The value, as the extension wrote it.
        value: String,
        /// The error message for the extension.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Sends an HTTP request. Its header fields are not recorded, because they may contain data derived from a
    /// secret.
    Http {
        /// Method and URL.
        request: String,
        /// The body that the guest sent.
        body: Octets,
        /// The answer; absent if there was none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<HttpAnswer>,
    },
}

/// The answer to an HTTP request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// Recorded header fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The body that the guest received.
    pub body: Octets,
}

/// A key with its value before the turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownKey {
    /// Name of the bucket: empty for the lasting bucket, or `context`, or `task`.
    pub bucket: String,
    /// The name of the key.
    pub key: String,
    /// The value; absent if the key did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Octets>,
}

/// Bytes, stored as text if they are UTF-8, and in hexadecimal otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Octets {
    /// UTF-8 text.
    Text(String),
    /// Two hexadecimal digits per byte.
    Hex(String),
}

/// The thread time of one hook.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HookTime {
    /// The name of the hook.
    pub hook: String,
    /// Thread time in microseconds.
    pub micros: u64,
}

impl Octets {
    /// The bytes. Empty if the text is not valid hexadecimal.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Hex(digits) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let byte = |pair: &[u8]| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?);
                digits.as_bytes().chunks(2).map(byte).collect::<Option<_>>().unwrap_or_default()
            }
        }
    }
}

impl From<&[u8]> for Octets {
    fn from(bytes: &[u8]) -> Self {
        match str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }
}

impl RecordedTurn {
    /// A turn without steps.
    pub(crate) fn at(at: Timestamp, ids: TurnIds) -> Self {
        Self {
            at,
            ids,
            operation: String::new(),
            context_id: None,
            task_id: None,
            requested: Vec::new(),
            resumed: false,
            caller: None,
            keys: Vec::new(),
            steps: Vec::new(),
            scopes: Vec::new(),
        }
    }

    /// The guest's calls in all steps.
    fn calls(&self) -> impl Iterator<Item = &HostCall> {
        self.steps.iter().flat_map(|step| &step.calls)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(value: &bool) -> bool {
    !value
}
