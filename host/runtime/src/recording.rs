//! One extension in one turn: what it is given and does, noted while the turn runs, kept in a file, played again to another
//! version of the extension and compared.
//!
//! A turn is a list of steps. Each is what the host wants of the extension at once: the hooks of the way in, the
//! beginning, a change of state, an event, a call of a method. A step has its input, narrowed to what the extension is
//! shown, the calls of the guest whose answers come from outside of the turn, the result that the host has checked, and
//! the time of each hook.
//!
//! The names of the fields are the format of a recording, so its version is in [`FORMAT_VERSION`]. No enum here is tagged
//! from within: serde cannot read a [`Json`] from the buffer that takes.

use annex_keyvalue::Scope;
use annex_protocol::{
    ContextId, ExtensionUri, Json, JsonObject, Message, Metadata, Part, StreamResponse, TaskId, TaskState,
    TaskStatusUpdateEvent, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::contract::Events;
use crate::turn_view::TurnIds;

pub(crate) mod answers;
pub(crate) mod comparison;
pub(crate) mod hiding;
mod results;
pub(crate) mod slot;
pub(crate) mod tape;
pub(crate) mod taps;

/// The version of the form in which turns are written.
pub const FORMAT_VERSION: u32 = 1;

/// Is told what an extension does in turns.
pub trait TurnObserver: Send + Sync {
    /// True when it wants to be told of the turn that begins. [`TurnObserver::ended`] or [`TurnObserver::left_out`]
    /// follows then.
    fn wants(&self) -> bool;

    /// Another version that is to be shown the turn. What only that one is asked and shown is noted too.
    fn beside(&self) -> Option<&Attention> {
        None
    }

    /// True when it wants the steps, too, in which nobody is asked, so that turns of different versions have the same ones.
    fn wants_all_steps(&self) -> bool {
        false
    }

    /// The turn is over.
    fn ended(&self, turn: RecordedTurn);

    /// The turn has more bytes than are noted, or was given up before a step ended.
    fn left_out(&self) {}
}

/// The questions that an extension is asked in turns, and the data that it is shown.
#[derive(Clone, Debug, Default)]
pub struct Attention {
    /// The metadata keys that it owns.
    pub metadata_keys: Vec<String>,
    /// The parts of messages.
    pub message: bool,
    /// The states of the task.
    pub transition: bool,
    /// Outgoing events.
    pub events: Events,
    /// Those events whole.
    pub payload: bool,
}

/// One line of a recording: first the head, then the turns, and the end where it was not broken off.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingLine {
    /// The head: the extension that is recorded.
    Recording(RecordingHead),
    /// One turn.
    Turn(RecordedTurn),
    /// Why there are no more turns.
    End(RecordingEnd),
}

/// The head: the extension that is recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordingHead {
    /// [`FORMAT_VERSION`] of the writer.
    pub version: u32,
    /// The extension.
    pub uri: ExtensionUri,
    /// The name that it gives itself.
    pub name: String,
    /// The version that it gives itself.
    pub component_version: String,
    /// SHA-256 of the component, with `sha256:`.
    pub digest: String,
    /// The time at which the recording began.
    pub at: Timestamp,
    /// The keys of its `[[extension]]` but for `component`. Secrets are named, and their values are not there.
    pub settings: Json,
}

/// The end of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingEnd {
    /// The turns that are recorded.
    pub turns: u64,
    /// The turns that are not, because they had too many bytes or were given up, or too many ran or ended at once.
    pub left_out: u64,
    /// `turns`, `bytes` or `time`, by the bound that was reached; `replaced` when another version came in force; `shutdown`.
    pub reason: String,
}

/// One turn of one extension.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedTurn {
    /// The time at which it began.
    pub at: Timestamp,
    /// The A2A operation, or the method of the extension.
    pub operation: String,
    /// The ids of the turn. Those of a new task and a new conversation are among them.
    #[serde(default)]
    pub ids: TurnIds,
    /// The conversation that the client names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<ContextId>,
    /// The task that the client names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The URIs that the client asked for.
    pub requested: Vec<ExtensionUri>,
    /// True when the message was taken before, and its task is taken up again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub resumed: bool,
    /// The keys that the extension used, as they were before it changed them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KnownKey>,
    /// The steps in their order. One that was broken off is not among them.
    pub steps: Vec<RecordedStep>,
    /// The buckets of the keys, for a version beside the one that is recorded.
    #[serde(skip)]
    pub(crate) scopes: Vec<Scope>,
}

/// One step of a turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordedStep {
    /// The question to the extension.
    pub input: StepInput,
    /// The session as the grant shows it. Absent where it is as in the step before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<JsonObject>,
    /// The task as the grant shows it. Absent where it is as in the step before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Json>,
    /// The agent's steps as the grant shows them. Absent where they are as in the step before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_steps: Option<Json>,
    /// The calls of the guest whose answers come from outside of the turn, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<HostCall>,
    /// The outcome, after the host's checks.
    pub result: StepResult,
    /// The time of each hook that ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<HookTime>,
}

/// The question to an extension in one step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case")]
pub enum StepInput {
    /// The hooks of the way in: `activation`, `message`, `state`.
    Request {
        /// The message. It has no parts where the extension is shown none.
        message: Message,
        /// `metadata` of the request.
        metadata: Metadata,
    },
    /// `transition.begin`
    Begin {
        /// The task that the turn takes up.
        task_id: TaskId,
        /// Its conversation.
        context_id: ContextId,
        /// The state in which the task waited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waits_in: Option<TaskState>,
    },
    /// `transition.change`
    Change {
        /// The state in which the task is.
        current: TaskState,
        /// The change.
        update: TaskStatusUpdateEvent,
    },
    /// `response.respond`. The event has no parts where the extension is shown none.
    Event(StreamResponse),
    /// `method.call`
    Call {
        /// The parameters.
        params: Json,
    },
    /// `method.next`
    #[default]
    Next,
}

/// The outcome of a step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case")]
pub enum StepResult {
    /// It takes no part in the request.
    Inactive,
    /// It lets the request pass.
    Active {
        /// The session delta.
        #[serde(default)]
        delta: JsonObject,
        /// The message's parts, when it has rewritten them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parts: Option<Vec<Part>>,
    },
    /// It refuses the request.
    Refused {
        /// The code that the client is told.
        code: i32,
        /// The text that the client is told.
        message: String,
        /// The violations, or the extension's own data.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Json>,
    },
    /// It failed, or a limit stopped it.
    Failed {
        /// The kind, as the metrics name it: `trap`, `cpu_limit`.
        kind: String,
        /// The reason.
        reason: String,
    },
    /// It has nothing against the beginning or the change.
    Agrees {
        /// Its entries in the metadata of the change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata>,
    },
    /// The task waits instead.
    Interrupts {
        /// The state in which it waits.
        state: TaskState,
        /// The text for the client.
        text: String,
        /// Its entries in the metadata of the message.
        #[serde(default)]
        metadata: Metadata,
    },
    /// The beginning or the change does not come about.
    Vetoes {
        /// The reason for the client.
        reason: String,
    },
    /// Its entries in the metadata of the event, as far as they are new.
    Adds(Metadata),
    /// The result of a method, or one of several.
    Value(Json),
    /// The results of the method come one by one.
    Streams,
    /// There are no more results.
    #[default]
    Ends,
}

/// A call of the guest that the host answers from outside of the turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case")]
pub enum HostCall {
    /// The time since 1970.
    Time {
        /// Seconds.
        seconds: u64,
        /// Nanoseconds of the second.
        nanoseconds: u32,
    },
    /// The monotonic clock.
    Monotonic {
        /// Nanoseconds since some moment.
        nanoseconds: u64,
    },
    /// Random bytes.
    Random(Octets),
    /// A key was read.
    Get {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// Its value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Octets>,
    },
    /// A key was set.
    Set {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// Its value.
        value: Octets,
    },
    /// A key was removed.
    Delete {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
    },
    /// A counter was changed.
    Increment {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// The addition.
        by: u64,
        /// The counter afterwards.
        value: u64,
    },
    /// Keys were listed.
    Keys {
        /// The bucket.
        bucket: String,
        /// The number of keys that were left out at the beginning.
        skip: u64,
        /// The keys.
        keys: Vec<String>,
    },
    /// Tasks were listed.
    Tasks {
        /// A ListTasksRequest as JSON.
        request: String,
        /// A ListTasksResponse. Absent where there is an error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<Json>,
        /// The error, as the extension is told it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A task is to go on.
    Resume {
        /// The task.
        task_id: String,
        /// The reason why it cannot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A request was sent. Its header fields are left out: they may have what was made of a secret.
    Http {
        /// Method and URL.
        request: String,
        /// The body.
        body: Octets,
        /// The answer; absent where there was none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<HttpAnswer>,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// The header fields that are text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Octets,
}

/// A key before the turn changed it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownKey {
    /// The bucket: empty for the one that lasts, `context`, `task`.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// Its value; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Octets>,
}

/// Bytes: as text where they are UTF-8, and in hexadecimal otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Octets {
    /// UTF-8.
    Text(String),
    /// Two digits for each byte.
    Hex(String),
}

/// The time of one hook.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HookTime {
    /// The hook.
    pub hook: String,
    /// Microseconds in which it ran on a thread.
    pub micros: u64,
}

impl Octets {
    /// The bytes; none where they are not written as this module writes them.
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
            keys: Vec::new(),
            steps: Vec::new(),
            scopes: Vec::new(),
        }
    }

    /// All calls of the guest, over all steps.
    fn calls(&self) -> impl Iterator<Item = &HostCall> {
        self.steps.iter().flat_map(|step| &step.calls)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(value: &bool) -> bool {
    !value
}
