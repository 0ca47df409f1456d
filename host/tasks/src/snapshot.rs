//! A task at one moment.
//!
//! A small task is kept as values. A growing task is kept as an earlier snapshot and the events since, so that a
//! further event costs only its own size. The values are computed on first access.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use annex_protocol::{ArtifactId, ContextId, Message, StreamResponse, Task, TaskId, TaskState, Timestamp};
use serde_json::Error as JsonError;

use crate::limits::{Excess, TaskLimits, TaskSize};
use crate::{TaskEvent, record::Standing};

/// The largest task, in bytes, that is copied and stored as a whole with each of its events.
pub(crate) const SMALL: usize = 8 << 10;

/// Bytes of an event that may end any task.
const SHORT: usize = 16 << 10;

/// A task at one moment. Clones share the content.
///
/// Once a store has kept a finished task, its clones share the JSON too, so that a binding need not encode the task
/// again. An unfinished task has many snapshots, and none keeps JSON as well.
///
/// Access to the task itself can cost a copy of the task; [`id`](Self::id), [`context_id`](Self::context_id),
/// [`state`](Self::state) and [`size`](Self::size) cost nothing.
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

/// A task that has grown by events since an earlier snapshot.
#[derive(Debug)]
struct Grown {
    id: TaskId,
    context_id: ContextId,
    state: TaskState,
    status_at: Option<Timestamp>,
    size: TaskSize,
    /// The whole task, computed on first access.
    whole: OnceLock<(Task, TaskSize)>,
    /// The earlier snapshot and the events, until the first access.
    parts: Mutex<Option<Parts>>,
}

/// An earlier snapshot and the events since.
#[derive(Clone, Debug)]
struct Parts {
    /// A snapshot whose values are in memory.
    base: TaskSnapshot,
    /// The events since, and maybe some that came after this moment.
    log: Arc<Mutex<Vec<TaskEvent>>>,
    /// The number of events that belong to this moment.
    length: usize,
    /// The ids of all artifacts.
    artifacts: Arc<BTreeSet<ArtifactId>>,
}

impl TaskSnapshot {
    /// The task's id.
    pub fn id(&self) -> &TaskId {
        match &self.inner.form {
            Form::Whole(task, _) => &task.id,
            Form::Grown(grown) => &grown.id,
        }
    }

    /// The conversation of the task.
    pub fn context_id(&self) -> &ContextId {
        match &self.inner.form {
            Form::Whole(task, _) => &task.context_id,
            Form::Grown(grown) => &grown.context_id,
        }
    }

    /// The state of the task.
    pub fn state(&self) -> TaskState {
        match &self.inner.form {
            Form::Whole(task, _) => task.status.state,
            Form::Grown(grown) => grown.state,
        }
    }

    /// The time when the task entered its state, if known.
    pub fn status_at(&self) -> Option<Timestamp> {
        match &self.inner.form {
            Form::Whole(task, _) => task.status.timestamp,
            Form::Grown(grown) => grown.status_at,
        }
    }

    /// The size of the task. The size of a grown task is an upper bound, because events may have replaced content.
    pub fn size(&self) -> TaskSize {
        match &self.inner.form {
            Form::Whole(_, size) => *size,
            Form::Grown(grown) => grown.whole.get().map_or(grown.size, |(_, size)| *size),
        }
    }

    /// True if the task has an artifact with this id. Does not compute the whole task.
    pub fn has_artifact(&self, id: &ArtifactId) -> bool {
        if let Form::Grown(grown) = &self.inner.form
            && let Some(parts) = grown.lock().as_ref()
        {
            return parts.artifacts.contains(id);
        }
        self.task().artifacts.iter().any(|artifact| artifact.artifact_id == *id)
    }

    /// True if it is to be stored as a whole with each event.
    pub(crate) fn is_small(&self) -> bool {
        matches!(self.inner.form, Form::Whole(..)) && (self.size().bytes <= SMALL || self.state().is_terminal())
    }

    /// True if stores keep it as its events.
    pub fn is_large(&self) -> bool {
        !self.is_small()
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing::new(self.state(), self.status_at())
    }

    /// Checks the task after its agent's events; `before` is the task without them. A short event that ends the task
    /// always passes, at any size of the task.
    ///
    /// # Errors
    /// The limit that the task exceeds.
    pub fn check(&self, before: &Self, limits: &TaskLimits) -> Result<(), Excess> {
        let added = self.size().logged.saturating_sub(before.size().logged);
        if self.state().is_terminal() && added <= SHORT {
            return Ok(());
        }
        // Only what seems to be too large is looked at.
        limits.check(&self.size()).or_else(|_| limits.check(&self.exact_size()))
    }

    /// Checks if the task has room for a message of its client.
    ///
    /// # Errors
    /// The limit that the task would exceed.
    pub fn check_message(&self, limits: &TaskLimits, message: &Message) -> Result<(), Excess> {
        limits.check_message(&self.size(), message).or_else(|_| limits.check_message(&self.exact_size(), message))
    }

    fn exact_size(&self) -> TaskSize {
        // Whoever looks at the task makes its values, whose size is exact.
        let _ = self.task();
        self.size()
    }

    /// The task with further events. Events that do not change a task are ignored.
    #[must_use]
    pub fn with(&self, events: &[TaskEvent]) -> Self {
        let (state, status_at) = events.iter().rev().find_map(status).unwrap_or((self.state(), self.status_at()));
        let size = events.iter().fold(self.size(), TaskSize::with);
        // A small task costs little to copy. One that is finished grows no more, and is stored as one JSON.
        if size.bytes <= SMALL || state.is_terminal() {
            return Self::read(self.assembled(events), size.logged);
        }
        let mut parts = self.parts();
        parts.push(events);
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
    /// When it cannot be encoded.
    pub fn json(&self) -> Result<Cow<'_, str>, JsonError> {
        match self.inner.json.get() {
            Some(json) => Ok(Cow::Borrowed(json)),
            None => self.encoded().map(Cow::Owned),
        }
    }

    /// Like [`json`](Self::json), for a store: the snapshot keeps the JSON.
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

    /// Returns the task by value, for changes.
    pub fn into_task(self) -> Task {
        match Arc::try_unwrap(self.inner) {
            Ok(Inner { form: Form::Whole(task, _), .. }) => task,
            Ok(Inner { form: Form::Grown(grown), .. }) => grown.into_task(),
            // Somebody else holds this snapshot, so its values are copied.
            Err(inner) => Self { inner }.assembled(&[]),
        }
    }

    /// The task whose events were measured to be `logged` bytes.
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

    /// A copy of the task with further events.
    fn assembled(&self, events: &[TaskEvent]) -> Task {
        let parts = match &self.inner.form {
            Form::Whole(..) => None,
            Form::Grown(grown) => grown.lock().clone(),
        };
        let mut task = parts.map_or_else(|| self.task().clone(), |parts| parts.assembled());
        events.iter().for_each(|event| apply(&mut task, event));
        task
    }

    /// The parts for a snapshot after this one.
    fn parts(&self) -> Parts {
        let parts = match &self.inner.form {
            Form::Whole(..) => None,
            Form::Grown(grown) => grown.lock().clone(),
        };
        parts.unwrap_or_else(|| {
            let artifacts = self.task().artifacts.iter().map(|artifact| artifact.artifact_id.clone()).collect();
            Parts { base: self.clone(), log: Arc::default(), length: 0, artifacts: Arc::new(artifacts) }
        })
    }
}

impl Grown {
    fn task(&self) -> &Task {
        // `get_or_init` lets one thread assemble the task while others wait, so that each does not make a copy.
        let (task, _) = self.whole.get_or_init(|| {
            // Without parts there is a whole one.
            let task = self.lock().as_ref().map(Parts::assembled).unwrap_or_default();
            let size = TaskSize::of(&task, self.size.logged);
            (task, size)
        });
        // Two copies of one task are one too many.
        self.lock().take();
        task
    }

    fn into_task(self) -> Task {
        let whole = self.whole.into_inner().map(|(task, _)| task);
        let parts = self.parts.into_inner().unwrap_or_else(PoisonError::into_inner);
        whole.or_else(|| parts.as_ref().map(Parts::assembled)).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Parts>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    fn assembled(&self) -> Task {
        let mut task = self.base.task().clone();
        self.log().iter().take(self.length).for_each(|event| apply(&mut task, event));
        task
    }

    fn push(&mut self, events: &[TaskEvent]) {
        for id in events.iter().filter_map(artifact) {
            // Clones share the set, and `make_mut` copies it. Most events are further chunks of artifacts that are
            // known.
            if !self.artifacts.contains(id) {
                Arc::make_mut(&mut self.artifacts).insert(id.clone());
            }
        }
        let mut log = self.log();
        // Older snapshots share the log and look at their first `length` events only, so it may grow at its end.
        let branch = if log.len() == self.length {
            log.extend_from_slice(events);
            None
        } else {
            // What somebody else appended after this moment, or could not store, is no part of it.
            Some(log.iter().take(self.length).chain(events).cloned().collect())
        };
        // The guard borrows `self.log`, which is replaced next.
        drop(log);
        if let Some(branch) = branch {
            self.log = Arc::new(Mutex::new(branch));
        }
        self.length += events.len();
    }

    fn log(&self) -> MutexGuard<'_, Vec<TaskEvent>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The state that an event brings its task into.
fn status(event: &TaskEvent) -> Option<(TaskState, Option<Timestamp>)> {
    match event {
        TaskEvent::Stream(event) => match event.as_ref() {
            StreamResponse::StatusUpdate(update) => Some((update.status.state, update.status.timestamp)),
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Task(_) | StreamResponse::Message(_) => None,
        },
        TaskEvent::Message(_) => None,
    }
}

/// The artifact that an event brings.
fn artifact(event: &TaskEvent) -> Option<&ArtifactId> {
    match event {
        TaskEvent::Stream(event) => match event.as_ref() {
            StreamResponse::ArtifactUpdate(update) => Some(&update.artifact.artifact_id),
            StreamResponse::StatusUpdate(_) | StreamResponse::Task(_) | StreamResponse::Message(_) => None,
        },
        TaskEvent::Message(_) => None,
    }
}

/// Applies an event to its task. An event with the task itself, or an answer without a task, changes nothing.
pub(crate) fn apply(task: &mut Task, event: &TaskEvent) {
    match event {
        TaskEvent::Message(message) => task.apply_message(Message::clone(message)),
        TaskEvent::Stream(event) => match event.as_ref() {
            StreamResponse::StatusUpdate(update) => task.apply_status(update),
            StreamResponse::ArtifactUpdate(update) => task.apply_artifact(update),
            StreamResponse::Task(_) | StreamResponse::Message(_) => {}
        },
    }
}

#[cfg(test)]
mod tests;
