//! A task at one moment: the projection of its entries.
//!
//! A small task is copied as a whole. A large task is an older copy and the entries since then, so a further entry
//! costs only its own size.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock};

use annex_protocol::{ArtifactId, ContextId, Message, StreamResponse, Task, TaskId, TaskState, TaskStatus, Timestamp};
use serde_json::Error as JsonError;

use crate::entry::Entry;
use crate::excess::Excess;
use crate::limits::{TaskLimits, TaskSize};

mod grown;

use grown::{Grown, GrownParts};

/// The bytes up to which a task counts as small. A small task is copied and stored as a whole with each of its entries.
const SMALL: usize = 8 << 10;

/// The maximum number of bytes of a final update that is accepted even if the task exceeds its limits.
const SHORT: usize = 16 << 10;

/// A task at one moment. Clones share the values.
///
/// Clones of a finished and stored task also share its JSON, so that a binding need not encode the task again. Snapshots of
/// an unfinished task keep no JSON.
///
/// Access to the task itself can cost a copy; [`id`](Self::id), [`context_id`](Self::context_id), [`state`](Self::state)
/// and [`size`](Self::size) cost nothing.
///
/// ```
/// use annex_conversation::{Entry, StateDelta, TaskSnapshot};
/// use annex_protocol::{Message, Timestamp};
///
/// let submitted = TaskSnapshot::submitted("t-1".into(), "c-1".into(), Timestamp::now());
/// let hello = Entry::said_by_user(Message::user_text("Hello"), "t-1", StateDelta::new(), submitted.status_at());
/// assert_eq!(submitted.with(&[hello]).history.len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct TaskSnapshot {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    form: Form,
    json: OnceLock<Arc<str>>,
}

#[derive(Debug)]
enum Form {
    Whole(Task, TaskSize),
    Grown(Grown),
}

impl TaskSnapshot {
    /// A task that is accepted and has no entry yet. The message that opens the task joins the history when the turn
    /// begins.
    #[must_use]
    pub fn submitted(id: TaskId, context_id: ContextId, since: Timestamp) -> Self {
        let status = TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(since) };
        Task { id, context_id, status, ..Task::default() }.into()
    }

    /// The task's id.
    #[must_use]
    pub fn id(&self) -> &TaskId {
        match &self.inner.form {
            Form::Whole(task, _) => &task.id,
            Form::Grown(grown) => &grown.id,
        }
    }

    /// The context of the task.
    #[must_use]
    pub fn context_id(&self) -> &ContextId {
        match &self.inner.form {
            Form::Whole(task, _) => &task.context_id,
            Form::Grown(grown) => &grown.context_id,
        }
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> TaskState {
        match &self.inner.form {
            Form::Whole(task, _) => task.status.state,
            Form::Grown(grown) => grown.state,
        }
    }

    /// The time of the last change of state, if known.
    #[must_use]
    pub fn status_at(&self) -> Option<Timestamp> {
        match &self.inner.form {
            Form::Whole(task, _) => task.status.timestamp,
            Form::Grown(grown) => grown.status_at,
        }
    }

    /// The size of the task. For a task that has grown by entries this is an upper bound, because entries may have
    /// replaced content of the task.
    #[must_use]
    pub fn size(&self) -> TaskSize {
        match &self.inner.form {
            Form::Whole(_, size) => *size,
            Form::Grown(grown) => grown.whole.get().map_or(grown.size, |(_, size)| *size),
        }
    }

    /// True if the task has an artifact of this id. This costs less than access to the whole task.
    #[must_use]
    pub fn has_artifact(&self, id: &ArtifactId) -> bool {
        if let Form::Grown(grown) = &self.inner.form
            && let Some(parts) = grown.lock().as_ref()
        {
            return parts.artifacts.contains(id);
        }
        self.task().artifacts.iter().any(|artifact| artifact.artifact_id == *id)
    }

    /// True for a large task. Databases store a large task as its entries, because its whole JSON would otherwise be written
    /// again with each entry.
    #[must_use]
    pub fn is_large(&self) -> bool {
        let is_whole = matches!(self.inner.form, Form::Whole(..));
        !(is_whole && (self.size().bytes <= SMALL || self.state().is_terminal()))
    }

    /// Checks the task after a change by its agent. A short final update always passes, so that every task can end.
    ///
    /// # Errors
    /// [`Excess::Task`].
    pub fn check(&self, before: &Self, limits: &TaskLimits) -> Result<(), Excess> {
        let added = self.size().logged.saturating_sub(before.size().logged);
        if self.state().is_terminal() && added <= SHORT {
            return Ok(());
        }
        // The exact size is computed only if the estimate exceeds a limit.
        limits.check(&self.size()).or_else(|_| limits.check(&self.exact_size()))
    }

    /// Checks the task before a message of its client.
    ///
    /// # Errors
    /// [`Excess::Task`].
    pub fn check_message(&self, limits: &TaskLimits, message: &Message) -> Result<(), Excess> {
        limits.check_message(&self.size(), message).or_else(|_| limits.check_message(&self.exact_size(), message))
    }

    fn exact_size(&self) -> TaskSize {
        // This call assembles the values of the task. From then on the size is exact.
        let _ = self.task();
        self.size()
    }

    /// The task with `entries` applied. Events and notes change nothing.
    #[must_use]
    pub fn with(&self, entries: &[Entry]) -> Self {
        let (state, status_at) = entries.iter().rev().find_map(status).unwrap_or((self.state(), self.status_at()));
        let size = entries.iter().fold(self.size(), TaskSize::with);
        // Copying a small task costs little. A finished task grows no more, and is stored as one JSON.
        if size.bytes <= SMALL || state.is_terminal() {
            return Self::read(self.assembled(entries), size.logged);
        }
        let mut parts = self.parts();
        parts.push(entries);
        // `TaskSize::with` cannot tell a new artifact from one that takes the place of another. The set of ids can.
        let size = TaskSize { artifacts: parts.artifacts.len(), ..size };
        let id = self.id().clone();
        let context_id = self.context_id().clone();
        let whole = OnceLock::new();
        let parts = Mutex::new(Some(parts));
        Self::of(Form::Grown(Grown { id, context_id, state, status_at, size, whole, parts }))
    }

    /// The task as JSON on one line.
    ///
    /// # Errors
    /// When the task cannot be encoded.
    pub fn json(&self) -> Result<Cow<'_, str>, JsonError> {
        match self.inner.json.get() {
            Some(json) => Ok(Cow::Borrowed(json)),
            None => self.encoded().map(Cow::Owned),
        }
    }

    /// The task as JSON on one line, to be kept by a store. A finished task also keeps the JSON itself.
    pub(crate) fn stored_json(&self) -> Result<Arc<str>, JsonError> {
        if let Some(json) = self.inner.json.get() {
            return Ok(Arc::clone(json));
        }
        let json: Arc<str> = self.encoded()?.into();
        if self.state().is_terminal() {
            return Ok(Arc::clone(self.inner.json.get_or_init(|| json)));
        }
        Ok(json)
    }

    fn encoded(&self) -> Result<String, JsonError> {
        let task = self.task();
        // The size counts the values that hold the texts too, so that there is room for the names of the fields.
        let mut json = Vec::with_capacity(self.size().bytes);
        serde_json::to_writer(&mut json, task)?;
        String::from_utf8(json).map_err(serde::ser::Error::custom)
    }

    /// The task as an owned value. Copies it only if other clones of the snapshot exist.
    #[must_use]
    pub fn into_task(self) -> Task {
        match Arc::try_unwrap(self.inner) {
            Ok(Inner { form: Form::Whole(task, _), .. }) => task,
            Ok(Inner { form: Form::Grown(grown), .. }) => grown.into_task(),
            // Another clone of this snapshot exists, so its values are copied.
            Err(inner) => Self { inner }.assembled(&[]),
        }
    }

    /// A task that was read from a store. `logged` is the size of its entries, in bytes.
    pub(crate) fn read(task: Task, logged: usize) -> Self {
        let size = TaskSize::of(&task, logged);
        Self::of(Form::Whole(task, size))
    }

    fn of(form: Form) -> Self {
        Self { inner: Arc::new(Inner { form, json: OnceLock::new() }) }
    }

    fn task(&self) -> &Task {
        match &self.inner.form {
            Form::Whole(task, _) => task,
            Form::Grown(grown) => grown.task(),
        }
    }

    /// A copy of the task with further entries.
    fn assembled(&self, entries: &[Entry]) -> Task {
        let parts = match &self.inner.form {
            Form::Whole(..) => None,
            Form::Grown(grown) => grown.lock().clone(),
        };
        let mut task = parts.map_or_else(|| self.task().clone(), |parts| parts.assembled());
        entries.iter().for_each(|entry| apply(&mut task, entry));
        task
    }

    /// The older copy and the entries since then, for a further snapshot.
    fn parts(&self) -> GrownParts {
        let parts = match &self.inner.form {
            Form::Whole(..) => None,
            Form::Grown(grown) => grown.lock().clone(),
        };
        parts.unwrap_or_else(|| GrownParts::of(self.clone()))
    }
}

impl From<Task> for TaskSnapshot {
    fn from(task: Task) -> Self {
        Self::read(task, 0)
    }
}

impl Deref for TaskSnapshot {
    type Target = Task;

    fn deref(&self) -> &Task {
        self.task()
    }
}

impl PartialEq for TaskSnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.task() == other.task()
    }
}

/// The state that an entry brings its task into.
fn status(entry: &Entry) -> Option<(TaskState, Option<Timestamp>)> {
    match entry {
        Entry::Update(update) => match update.as_ref() {
            StreamResponse::StatusUpdate(update) => Some((update.status.state, update.status.timestamp)),
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Task(_) | StreamResponse::Message(_) => None,
        },
        Entry::Message(_) | Entry::Event(_) | Entry::Note(_) => None,
    }
}

/// Applies an entry to its task. Events and notes change nothing.
fn apply(task: &mut Task, entry: &Entry) {
    match entry {
        Entry::Message(message) => task.apply_message(message.message.clone()),
        Entry::Update(update) => match update.as_ref() {
            StreamResponse::StatusUpdate(update) => task.apply_status(update),
            StreamResponse::ArtifactUpdate(update) => task.apply_artifact(update),
            StreamResponse::Task(_) | StreamResponse::Message(_) => {}
        },
        Entry::Event(_) | Entry::Note(_) => {}
    }
}

#[cfg(test)]
mod tests;
