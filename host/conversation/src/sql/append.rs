//! Makes the statements of an append. The steps store the conversation, the task, the entries, the change of state and
//! the claim of the message.

use std::collections::BTreeSet;
use std::ops::RangeFrom;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use annex_database::{Change, Database, Rows, Step, Value};
use annex_protocol::{Json, Timestamp};

use super::artifacts::{EncodedArtifact, artifacts_of};
use super::leased::Leased;
use super::scopes::ScopeChange;
use super::values::{member, named};
use super::{artifacts, statements};
use crate::claim::MessageKey;
use crate::encoding::{EncodedEntry, encoded_name};
use crate::entry::{Entry, Note, combined};
use crate::error::{AppendError, StoreError};
use crate::fence::Fence;
use crate::key::ConversationKey;
use crate::limits::Limits;
use crate::state::{STORED, Scope, StateDelta};
use crate::store::{Append, Outcome, Position};

/// The maximum number of entries, of keys and of artifacts in an append that takes one round trip.
const FEW: usize = 8;
/// The number of positions that are reserved for the keys of one append. As many are reserved for its artifacts.
const FEW_POSITIONS: i64 = 8;

/// Returns positions that are greater than the positions of all earlier appends to the conversation.
fn positions() -> RangeFrom<i64> {
    // Many appends have the same millisecond, and no two of one conversation have the same microsecond.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    i64::try_from(now).unwrap_or_default().saturating_mul(FEW_POSITIONS)..
}

/// An append in the form in which a database stores it.
pub(super) struct Write {
    pub(super) key: ConversationKey,
    pub(super) at: Position,
    limits: Limits,
    /// The fence of the writing turn, and the turn in the form in which the column of the queue contains it.
    pub(super) by: Option<(Fence, String)>,
    pub(super) ends: bool,
    /// The statement that locks the row of the conversation. It differs between databases.
    pub(super) lock: &'static str,
    advance: &'static str,
    task: Option<EncodedTask>,
    pub(super) entries: Vec<EncodedEntry>,
    /// The number of events among the entries.
    events: u64,
    updated_at: Option<i64>,
    delta: StateDelta,
    artifacts: Vec<EncodedArtifact>,
    upstream: Option<Arc<str>>,
    receipt: Option<Arc<str>>,
    message: Option<MessageKey>,
    resume: Option<Arc<str>>,
    answer: Option<String>,
    /// True if the agent has refused the message. The task and the claim of the message are then deleted.
    is_refused: bool,
    /// True once an attempt has failed in such a way that it may still have stored the append.
    pub(super) is_doubtful: AtomicBool,
}

/// The columns of a task.
struct EncodedTask {
    id: String,
    state: &'static str,
    status_at: i64,
    finished_at: Option<i64>,
    /// The JSON of the task. Empty for a large task, which is read from its entries.
    json: Arc<str>,
    pins: Option<Arc<str>>,
    upstream: Option<Arc<str>>,
}

impl Write {
    pub(super) fn new<D: Leased>(
        key: &ConversationKey,
        at: &Position,
        append: &Append<'_>,
        limits: &Limits,
    ) -> Result<Self, AppendError> {
        let events: Vec<_> = append.entries.iter().filter_map(Entry::event).collect();
        for event in &events {
            limits.check_event(event)?;
        }
        let mut delta = combined(append.entries.iter()).into_owned();
        delta.take_temp();
        let entries = append.entries.iter().map(EncodedEntry::new).collect::<Result<_, _>>();
        let note = |of: fn(&Note) -> Option<&Arc<str>>| {
            let notes = append.entries.iter().rev().filter_map(|entry| match entry {
                Entry::Note(note) => of(note),
                Entry::Message(_) | Entry::Event(_) | Entry::Update(_) => None,
            });
            notes.into_iter().next().cloned()
        };
        let task = match (&at.task, append.task) {
            (Some(id), Some(task)) => Some(EncodedTask {
                id: id.to_string(),
                state: task.state().name(),
                status_at: task.status_at().map_or(i64::MIN, Timestamp::as_millis),
                finished_at: task
                    .state()
                    .is_terminal()
                    .then(|| task.status_at().unwrap_or_else(Timestamp::now).as_millis()),
                json: if task.is_large() { "".into() } else { task.stored_json().map_err(StoreError::from)? },
                pins: note(|note| if let Note::Pins(text) = note { Some(text) } else { None }),
                upstream: note(|note| if let Note::UpstreamTask(text) = note { Some(text) } else { None }),
            }),
            (Some(_), None) => return Err(AppendError::Missing),
            (None, _) => None,
        };
        let statements = D::STATEMENTS;
        Ok(Self {
            key: key.clone(),
            at: at.clone(),
            limits: *limits,
            by: append.by.map(|fence| (fence.clone(), member(fence))),
            ends: append.ends,
            lock: statements.lock,
            advance: if append.ends { statements.advance_and_end } else { statements.advance },
            task,
            entries: entries.map_err(StoreError::from)?,
            events: events.len() as u64,
            updated_at: events.last().map(|event| event.timestamp.as_millis()),
            delta,
            artifacts: artifacts_of(&events).map_err(StoreError::from)?,
            upstream: note(|note| if let Note::UpstreamContext(text) = note { Some(text) } else { None }),
            receipt: note(|note| if let Note::Receipt(text) = note { Some(text) } else { None }),
            message: append
                .submission
                .filter(|_| append.outcome != Outcome::Refusal)
                .and_then(|submission| submission.message.clone()),
            resume: append.submission.and_then(|submission| submission.resume.clone()),
            answer: match append.outcome {
                Outcome::Answer(answer) => Some(serde_json::to_string(answer).map_err(StoreError::from)?),
                Outcome::Task | Outcome::Refusal => None,
            },
            is_refused: append.outcome == Outcome::Refusal,
            is_doubtful: AtomicBool::new(false),
        })
    }

    /// The number of the last entry after the append: of the task, or of the conversation if the position has no task.
    fn last(&self, conversation: u64) -> u64 {
        match &self.at.task {
            Some(_) => self.at.number.saturating_add(self.entries.len() as u64),
            None => conversation,
        }
    }

    pub(super) fn deletes_task(&self) -> bool {
        self.answer.is_some() || self.is_refused
    }

    pub(super) fn says(&self) -> bool {
        self.events > 0
    }

    fn rows<'a, const N: usize>(
        &'a self,
        rows: &'static Rows,
        values: impl IntoIterator<Item = [Value<'a>; N]>,
    ) -> Step<'a> {
        let values = values.into_iter().flat_map(|row| named(&self.key).into_iter().chain(row));
        Step::rows(rows, values.collect::<Vec<_>>())
    }

    /// The steps that store the task, the entries and the accepted message.
    fn common_steps(&self) -> Vec<Step<'_>> {
        let mut steps = Vec::new();
        let owner = self.key.owner();
        let turn = self.by.as_ref().filter(|_| !self.ends);
        if let Some(task) = self.task.as_ref().filter(|_| !self.deletes_task()) {
            let is_worked_on = i64::from(turn.is_some());
            let row = [
                Value::Text(&task.id),
                Value::Text(&owner.tenant),
                Value::Text(&owner.principal),
                Value::Text(self.key.context.as_str()),
                Value::Text(task.state),
                Value::Int(task.status_at),
                Value::MaybeInt(task.finished_at),
                Value::count(self.last(0)),
                Value::Text(&task.json),
                Value::MaybeText(task.pins.as_deref()),
                Value::MaybeText(task.upstream.as_deref()),
                Value::MaybeText(turn.map(|(fence, _)| fence.replica.id())),
                Value::MaybeInt(turn.map(|(fence, _)| i64::try_from(fence.epoch).unwrap_or(i64::MAX))),
                Value::MaybeText(self.resume.as_deref().filter(|_| turn.is_some())),
                Value::Int(is_worked_on),
                Value::Int(is_worked_on),
                Value::Int(is_worked_on),
            ];
            steps.push(self.rows(&statements::PUT_TASK, [row]));
        }
        let task = self.at.task.as_ref().map(|task| task.as_str());
        let entries = self.entries.iter().zip(self.at.number.saturating_add(1)..).map(|(entry, number)| {
            let number = Value::MaybeInt(task.map(|_| i64::try_from(number).unwrap_or(i64::MAX)));
            [Value::MaybeText(task), number, Value::Text(entry.kind.name()), Value::Text(&entry.json)]
        });
        let entries: Vec<_> = entries.collect();
        if !entries.is_empty() {
            steps.push(self.rows(&statements::INSERT_ENTRIES, entries));
        }
        if let (Some(message), Some(task)) = (&self.message, task) {
            let row = [
                Value::Text(&owner.tenant),
                Value::Text(&owner.principal),
                Value::Text(message.context.as_str()),
                Value::Text(message.message.as_str()),
                Value::Bytes(&message.digest),
                Value::Text(task),
                Value::Int(Timestamp::now().as_millis()),
                Value::MaybeText(self.answer.as_deref()),
            ];
            steps.push(self.rows(&statements::ACCEPT_MESSAGE, [row]));
        }
        steps
    }

    /// The step that stores the artifacts. `None` if the append has no artifacts.
    fn put_artifacts(&self) -> Option<Step<'_>> {
        if self.artifacts.is_empty() {
            return None;
        }
        let rows = self.artifacts.iter().zip(positions()).map(|(artifact, position)| {
            let size = Value::count(artifact.size);
            [Value::Text(&artifact.name), Value::Text(&artifact.json), size, Value::Int(position)]
        });
        Some(self.rows(&statements::PUT_ARTIFACTS, rows.collect::<Vec<_>>()))
    }

    /// The step that stores the keys of the conversation. `None` if the append changes no keys.
    fn put_keys<'a>(&'a self, own: Vec<(&'a str, &'a Json)>) -> Option<Step<'a>> {
        if own.is_empty() {
            return None;
        }
        let rows = own.into_iter().zip(positions()).map(|((name, value), position)| {
            let size = Value::count(name.len() + value.get().len());
            [Value::Text(name), Value::Text(value.get()), size, Value::Int(position)]
        });
        Some(self.rows(&statements::PUT_KEYS, rows.collect::<Vec<_>>()))
    }
}

impl Change for Write {
    type Answer = u64;
    type Error = AppendError;

    /// The append as steps for one round trip. `None` if the append does not fit: it has no turn or no task, deletes
    /// its task, changes shared keys or removes keys, or has many entries, keys or artifacts.
    fn steps(&self) -> Option<(Vec<Step<'_>>, u64)> {
        let (fence, member) = self.by.as_ref()?;
        let own: Vec<_> = self.delta.within(Scope::Conversation).collect();
        let artifacts: BTreeSet<_> = self.artifacts.iter().map(|artifact| &artifact.name).collect();
        let is_plain = self.task.is_some()
            && !self.deletes_task()
            && self.artifacts.len() <= FEW
            && self.artifacts.len() == artifacts.len()
            && self.entries.len() <= FEW
            && own.len() <= FEW
            && self.delta.iter().count() == own.len()
            && !own.iter().any(|(_, value)| self.limits.removes(value));
        if !is_plain {
            return None;
        }
        let task = self.at.task.as_ref()?.as_str();
        let of_artifacts: usize = self.artifacts.iter().map(|artifact| artifact.size).sum();
        let bytes: usize = own.iter().map(|(name, value)| name.len() + value.get().len()).sum();
        let [tenant, app, user, context] = named(&self.key);
        let member = Value::Text(member);
        // A turn that says nothing may write although its conversation was deleted.
        let orphan = if self.says() { member } else { Value::Text("-") };
        let values = [
            Value::count(self.events),
            Value::MaybeInt(self.updated_at),
            Value::Int(Timestamp::now().as_millis()),
            Value::MaybeText(self.upstream.as_deref()),
            Value::MaybeText(self.receipt.as_deref()),
            member,
            tenant,
            app,
            user,
            context,
            member,
            member,
            orphan,
            Value::Text(fence.replica.id()),
            Value::count((self.limits.events as u64).checked_sub(self.events)?),
            Value::Text(task),
            Value::count(self.at.number),
            Value::Text(task),
            Value::count(self.limits.state_bytes.checked_sub(bytes)?),
            Value::count(self.limits.state_keys.checked_sub(own.len())?),
            Value::count(self.artifacts.len()),
            Value::count(self.limits.artifact_bytes.checked_sub(of_artifacts)?),
            Value::count(self.limits.artifacts.checked_sub(self.artifacts.len())?),
        ];
        let mut steps = vec![Step::new(self.advance, values)];
        steps.extend(self.common_steps());
        // Names of few bytes need no escape in most cases, and those that do take the other way.
        if own.iter().any(|(name, _)| encoded_name(name) != **name) {
            return None;
        }
        steps.extend(self.put_artifacts());
        steps.extend(self.put_keys(own));
        Some((steps, self.last(0)))
    }

    async fn apply<D: Database>(&self, transaction: &mut D::Transaction) -> Result<u64, AppendError> {
        let locked = self.lock::<D>(transaction).await?;
        if self.is_doubtful.load(Ordering::Relaxed) && self.is_stored::<D>(transaction, &locked).await? {
            return Ok(self.last(locked.number));
        }
        self.check_writer::<D>(transaction, &locked).await?;
        self.check_position::<D>(transaction, &locked).await?;
        // All scopes are checked before one is written: a refused change shares its transaction with others.
        let mut scopes = Vec::new();
        for scope in STORED.into_iter().filter(|scope| self.delta.touches(*scope)) {
            let owner = (&self.key, locked.id);
            scopes.push(ScopeChange::plan::<D>(transaction, (scope, &self.delta), owner, &self.limits).await?);
        }
        let number = locked.number.saturating_add(self.events);
        let member = self.by.as_ref().filter(|_| self.ends).map_or("", |(_, member)| member);
        let values = [
            Value::Int(locked.id),
            Value::count(number),
            Value::MaybeInt(self.updated_at),
            Value::Int(Timestamp::now().as_millis()),
            Value::MaybeText(self.upstream.as_deref().filter(|_| number > 0)),
            Value::Text(member),
            Value::MaybeText(self.receipt.as_deref().filter(|_| number > 0)),
        ];
        D::execute(transaction, statements::CHANGE_CONVERSATION, &values).await?;
        if let Some(task) = self.task.as_ref().filter(|_| self.deletes_task()) {
            let id = [Value::Text(&task.id)];
            D::execute(transaction, statements::DELETE_TASK, &id).await?;
            if self.is_refused {
                D::execute(transaction, statements::FORGET_CLAIMS_OF_TASK, &id).await?;
            }
        }
        for step in self.common_steps() {
            D::execute_all(transaction, std::slice::from_ref(&step)).await?;
        }
        for scope in scopes {
            scope.write::<D>(transaction, &self.key, locked.id).await?;
        }
        for artifact in &self.artifacts {
            artifacts::put::<D>(transaction, locked.id, artifact, &self.limits).await?;
        }
        if number > self.limits.events as u64 {
            let values = [Value::Int(locked.id), Value::count(self.limits.events)];
            D::execute(transaction, statements::TRIM_HISTORY, &values).await?;
            D::execute(transaction, statements::DELETE_CLEARED, &[Value::Int(locked.id)]).await?;
        }
        Ok(self.last(number))
    }

    fn failure(error: &AppendError) -> Option<&sqlx::Error> {
        match error {
            AppendError::Store(StoreError::Database(error)) => Some(error),
            _ => None,
        }
    }

    fn doubt(&self) {
        self.is_doubtful.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
