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
use annex_protocol::{ContextId, ExtensionUri, Json, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::caller::VisibleCaller;
use crate::contract::Events;
use crate::turn_view::TurnIds;
use host_call::{HostCall, Octets};
use step::RecordedStep;

pub(crate) mod answers;
pub(crate) mod comparison;
pub(crate) mod host_call;
pub(crate) mod observer_slot;
pub(crate) mod recorder;
pub(crate) mod recording_view;
pub(crate) mod redaction;
mod results;
pub(crate) mod step;

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
