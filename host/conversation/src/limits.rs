//! Limits on one conversation and on one task. They are the same in all stores.

use annex_protocol::{Json, Message, StreamResponse, Task};

use crate::entry::{Entry, Event};
use crate::error::AppendError;
use crate::excess::{Excess, Measure};
use crate::key::{InvalidName, MAX_KEY_BYTES, check_key};
use crate::size;
use crate::state::{STORED, Scope, StateDelta};

/// Limits on one conversation. An append that would exceed `events`, `artifacts` or `artifact_bytes` drops the oldest
/// content. An append that would exceed another limit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The limit on one scope, in bytes of keys and JSON values. Default: 256 KiB.
    pub state_bytes: usize,
    /// The limit on the keys of one scope. Default: 1,000.
    pub state_keys: usize,
    /// The maximum depth to which arrays and objects nest in one value. It must not exceed [`Limits::MAX_STATE_DEPTH`], which
    /// is the default.
    pub state_depth: usize,
    /// The limit on the events of the history. Older events are dropped, and their state stays. Default: 1,000.
    pub events: usize,
    /// The limit on the artifacts of the conversation. The artifact with the oldest version is dropped. Default: 100.
    pub artifacts: usize,
    /// The approximate limit on the bytes of all artifacts. The artifact with the oldest version is dropped. An artifact
    /// above the limit is refused. Default: 8 MiB.
    pub artifact_bytes: usize,
    /// True if `null` in a delta removes its key. Default: false, `null` is a value.
    pub null_removes: bool,
}

/// Limits on one task. The turn checks the limits before each append. The stores do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLimits {
    /// The limit on the memory of the task, in bytes: its texts, and the structures that hold the texts.
    pub bytes: usize,
    /// The limit on the messages of the task, including the message of its status.
    pub messages: usize,
    /// The limit on the number of artifacts.
    pub artifacts: usize,
}

/// The size of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskSize {
    /// The memory of the task, in bytes: its texts, and the structures that hold the texts.
    pub bytes: usize,
    /// The number of messages, including the message of the status.
    pub messages: usize,
    /// The number of artifacts.
    pub artifacts: usize,
    /// The bytes of all entries since the task was read. If an entry replaced content of the task, this number grows more than
    /// the task.
    pub logged: usize,
}

/// The size of one scope of state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScopeSize {
    /// The bytes of names and values.
    pub(crate) bytes: usize,
    pub(crate) keys: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            state_bytes: 256 << 10,
            state_keys: 1_000,
            state_depth: Self::MAX_STATE_DEPTH,
            events: 1_000,
            artifacts: 100,
            artifact_bytes: 8 << 20,
            null_removes: false,
        }
    }
}

impl Limits {
    /// The largest value of [`state_depth`](Self::state_depth). JSON may nest [`Json::MAX_DEPTH`] levels in total, and an
    /// extension that answers with the state puts up to five levels around a value.
    pub const MAX_STATE_DEPTH: usize = Json::MAX_DEPTH - 5;

    /// Checks an event by itself. Limits that depend on the rest of the conversation are not checked.
    pub(crate) fn check_event(&self, event: &Event) -> Result<(), AppendError> {
        for (name, parts) in &event.artifacts {
            check_escaped("name of an artifact", name)?;
            let bytes = size::of_parts(parts);
            let limit = self.artifact_bytes;
            if bytes > limit {
                return Err(Excess::Artifact { name: name.clone(), bytes, limit }.into());
            }
        }
        self.check_delta(&event.state_delta)
    }

    /// Checks a delta by itself. Limits that depend on the stored state are not checked.
    ///
    /// # Errors
    /// The reason for which an append would be refused.
    pub fn check_delta(&self, delta: &StateDelta) -> Result<(), AppendError> {
        for scope in STORED {
            let set = delta.within(scope).filter(|(_, value)| !self.removes(value));
            let (keys, bytes) =
                set.fold((0, 0), |(keys, bytes), (key, value)| (keys + 1, bytes + key.len() + value.get().len()));
            self.check_scope(scope, ScopeSize { bytes, keys })?;
        }
        let most = self.state_depth.min(Self::MAX_STATE_DEPTH);
        for (key, value) in delta.iter() {
            check_escaped("state key", key)?;
            check_seen("state key", key)?;
            if value.nests_deeper_than(most) {
                return Err(Excess::StateDepth { key: key.to_owned(), limit: most }.into());
            }
        }
        Ok(())
    }

    /// True if this value in a delta removes its key.
    pub(crate) fn removes(&self, value: &Json) -> bool {
        self.null_removes && value.is_null()
    }

    /// Checks the size of one scope after a change. A change that shrinks the scope always passes, because the limit may
    /// have been lowered.
    pub(crate) fn check_change(&self, scope: Scope, before: ScopeSize, after: ScopeSize) -> Result<(), Excess> {
        let is_smaller = after.bytes < before.bytes && after.keys <= before.keys;
        if is_smaller { Ok(()) } else { self.check_scope(scope, after) }
    }

    fn check_scope(&self, scope: Scope, ScopeSize { bytes, keys }: ScopeSize) -> Result<(), Excess> {
        if keys > self.state_keys {
            return Err(Excess::StateKeys { scope, keys, limit: self.state_keys });
        }
        if bytes > self.state_bytes {
            return Err(Excess::StateBytes { scope, bytes, limit: self.state_bytes });
        }
        Ok(())
    }
}

/// Checks a state key or the name of an artifact. Both are stored as JSON, which has an escape for NUL.
fn check_escaped(field: &'static str, text: &str) -> Result<(), InvalidName> {
    // An escape is six bytes at most.
    if text.len().saturating_mul(6) < MAX_KEY_BYTES { Ok(()) } else { check_key(field, Json::string(text).get()) }
}

/// Checks that a state key contains no invisible or misleading characters, because people and models read state keys.
/// Extensions and clients can choose state keys without a grant.
fn check_seen(field: &'static str, text: &str) -> Result<(), InvalidName> {
    if text.contains(annex_text::steers) { Err(InvalidName::Unseen { field, text: text.to_owned() }) } else { Ok(()) }
}

/// The factor for the limit on all entries of a task together: this many times [`TaskLimits::bytes`].
const LOG_FACTOR: usize = 4;
/// The divisor for the room that a message of the client leaves to the answer: one sixteenth of each limit.
const ANSWER_PART: usize = 16;

impl TaskLimits {
    /// Checks the size of a task after a change by its agent.
    pub(crate) fn check(&self, size: &TaskSize) -> Result<(), Excess> {
        first_excess([
            (Measure::Bytes, size.bytes, self.bytes),
            (Measure::Messages, size.messages, self.messages),
            (Measure::Artifacts, size.artifacts, self.artifacts),
            // Replaced artifacts stay in the log: an agent could fill the store with a task that itself stays small.
            (Measure::Logged, size.logged, self.bytes.saturating_mul(LOG_FACTOR)),
        ])
    }

    /// Checks the size that a task would have with a message of its client. The message must leave room for the agent's answer.
    ///
    /// # Errors
    /// [`Excess::Task`].
    pub fn check_message(&self, size: &TaskSize, message: &Message) -> Result<(), Excess> {
        let added = size::of_message(message);
        // Even a small limit keeps at least 1 for the answer.
        let for_clients = |limit: usize| limit.saturating_sub((limit / ANSWER_PART).max(1));
        // A message of a client brings no artifacts, so their number is not checked.
        first_excess([
            (Measure::Bytes, size.bytes.saturating_add(added), for_clients(self.bytes)),
            // If the limit is one message, the message that begins the task is accepted nevertheless.
            (Measure::Messages, size.messages.saturating_add(1), for_clients(self.messages).max(1)),
            (Measure::Logged, size.logged.saturating_add(added), for_clients(self.bytes.saturating_mul(LOG_FACTOR))),
        ])
    }
}

fn first_excess<const N: usize>(measured: [(Measure, usize, usize); N]) -> Result<(), Excess> {
    let beyond = measured.into_iter().find(|(_, found, limit)| found > limit);
    beyond.map_or(Ok(()), |(measure, found, limit)| Err(Excess::Task { measure, found, limit }))
}

impl TaskSize {
    /// The size of `task`. `logged` is the size of its entries, in bytes.
    pub(crate) fn of(task: &Task, logged: usize) -> Self {
        let messages = task.history.len() + usize::from(task.status.message.is_some());
        Self { bytes: size::of_task(task), messages, artifacts: task.artifacts.len(), logged }
    }

    /// The size with one more entry. An artifact update counts as an addition, although the update may replace an artifact.
    pub(crate) fn with(self, entry: &Entry) -> Self {
        let messages = match entry {
            Entry::Message(_) => 1,
            Entry::Update(update) => match update.as_ref() {
                StreamResponse::StatusUpdate(update) => usize::from(update.status.message.is_some()),
                StreamResponse::ArtifactUpdate(_) => 0,
                // These change no task, see `TaskSnapshot::with`.
                StreamResponse::Task(_) | StreamResponse::Message(_) => return self,
            },
            // Events and notes belong to the conversation and not to the task.
            Entry::Event(_) | Entry::Note(_) => return self,
        };
        let bytes = size::of_entry(entry);
        Self {
            bytes: self.bytes.saturating_add(bytes),
            messages: self.messages + messages,
            artifacts: self.artifacts,
            logged: self.logged.saturating_add(bytes),
        }
    }
}
