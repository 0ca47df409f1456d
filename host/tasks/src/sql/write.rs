//! Changes of tasks, encoded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{iter, slice};

use annex_database::{Change, Database, Row, Step, Value, from_sql};
use annex_leases::Replica;
use annex_protocol::{ContextId, Owner, TaskId};

use super::statements;
use crate::event::Kind;
use crate::record::{Standing, is_worked_on};
use crate::{Place, StoreError, TaskEvent, TaskSnapshot};

/// The most events of a change that is made in one trip; most turns have no more.
const FEW: usize = 8;
/// The most events that go in one statement, whose parameters are bounded.
const ROWS: usize = 1_000;

/// A change of one task, encoded.
pub(super) struct Write {
    id: TaskId,
    position: Position,
    standing: Standing,
    /// True if a turn works on the task with this change.
    is_worked_on: bool,
    /// The replica that works on the task with this change.
    runner: Option<Replica>,
    /// The epoch of the task with this change.
    epoch: u64,
    /// The text with which another process can continue the turn, if a turn begins.
    turn: Option<Arc<str>>,
    /// The first attempt at a turn, where one begins.
    attempt: Option<i64>,
    /// The task as a whole; `None` where its events tell it.
    json: Option<Arc<str>>,
    /// The kind of each event and its JSON.
    events: Vec<(Kind, String)>,
    /// True once an attempt has failed that may have stored it.
    is_doubtful: AtomicBool,
}

enum Position {
    New {
        owner: Owner,
        context: ContextId,
        /// The replica that the turn began as one of; `None` where one process has the store.
        creator: Option<Replica>,
    },
    After(Place),
}

impl Change for Write {
    type Answer = Place;
    type Error = StoreError;

    fn steps(&self) -> Option<(Vec<Step<'_>>, Place)> {
        (self.events.len() <= FEW).then(|| (self.all_steps(), self.place()))
    }

    async fn apply<D: Database>(&self, transaction: &mut D::Transaction) -> Result<Place, StoreError> {
        for step in self.all_steps() {
            let changed = D::execute_all(transaction, slice::from_ref(&step)).await?;
            if changed != [step.changes] {
                // The first one: its row stays locked until the end, so that a second writer waits there and then finds
                // another number.
                if self.is_doubtful.load(Ordering::Relaxed) && self.is_stored::<D>(transaction).await? {
                    return Ok(self.place());
                }
                return Err(self.refusal::<D>(transaction).await?);
            }
        }
        Ok(self.place())
    }

    fn failure(error: &StoreError) -> Option<&sqlx::Error> {
        if let StoreError::Database(error) = error { Some(error) } else { None }
    }

    fn doubt(&self) {
        self.is_doubtful.store(true, Ordering::Relaxed);
    }
}

impl Write {
    /// A new task with its first events.
    pub(super) fn create(owner: &Owner, events: &[TaskEvent], task: &TaskSnapshot) -> Result<Self, StoreError> {
        let position = Position::New { owner: owner.clone(), context: task.context_id().clone(), creator: None };
        Self::encode(position, events, task)
    }

    /// Events after a place.
    pub(super) fn append(at: &Place, events: &[TaskEvent], task: &TaskSnapshot) -> Result<Self, StoreError> {
        Self::encode(Position::After(at.clone()), events, task)
    }

    /// Adds the text with which another process can continue the turn.
    pub(super) fn with_turn(mut self, turn: Option<&str>) -> Self {
        self.turn = turn.map(Into::into);
        self
    }

    /// The change as one of this replica, which works on the task from now on unless the task waits or is finished, or unless
    /// the turn began as one of another replica, which this process was. The message of a client begins a turn, and an epoch,
    /// while the lease of the turn's replica holds.
    pub(super) fn by(mut self, replica: Option<Replica>) -> Self {
        if replica.is_none() {
            return self;
        }
        let mut runner = replica;
        match &mut self.position {
            Position::New { creator, .. } => creator.clone_from(&runner),
            Position::After(at) => {
                runner = at.runner.clone().or(runner);
                at.runner.clone_from(&runner);
                if self.events.iter().any(|(kind, _)| *kind == Kind::Message) {
                    self.epoch = at.epoch.saturating_add(1);
                    // That of the turn before is not this one's.
                    self.turn = Some(at.turn.clone().unwrap_or_default());
                    self.attempt = Some(1);
                }
            }
        }
        self.runner = runner.filter(|_| self.is_worked_on);
        self
    }

    fn encode(position: Position, events: &[TaskEvent], task: &TaskSnapshot) -> Result<Self, StoreError> {
        // What tells neither of a state nor of a message comes from a turn that runs.
        let is_worked_on = is_worked_on(true, events, task.state());
        let events = events.iter().map(|event| Ok((event.kind(), event.encode()?)));
        let events = events.collect::<Result<_, StoreError>>()?;
        let id = task.id().clone();
        let standing = task.standing();
        // The others would be written again with each of their events.
        let json = if task.is_small() { Some(task.stored_json()?) } else { None };
        let epoch = if let Position::After(at) = &position { at.epoch } else { 0 };
        let is_doubtful = AtomicBool::new(false);
        let (turn, attempt) = (None, None);
        Ok(Self { id, position, standing, is_worked_on, runner: None, epoch, turn, attempt, json, events, is_doubtful })
    }

    pub(super) fn id(&self) -> &TaskId {
        &self.id
    }

    /// The number of the last event before the change.
    fn before(&self) -> u64 {
        match &self.position {
            Position::New { .. } => 0,
            Position::After(at) => at.seq,
        }
    }

    /// The number of the last event after the write.
    fn last(&self) -> u64 {
        self.before().saturating_add(self.events.len() as u64)
    }

    /// The place of the writer after the change.
    fn place(&self) -> Place {
        Place { seq: self.last(), epoch: self.epoch, runner: self.runner.clone(), turn: None }
    }

    /// The task's row, then its events.
    fn all_steps(&self) -> Vec<Step<'_>> {
        let id = Value::Text(self.id.as_str());
        let rows = self.events.iter().zip(1..).map(|((kind, json), number)| {
            let number = self.before().saturating_add(number);
            [id, Value::count(number), Value::Text(kind.name()), Value::Text(json)]
        });
        let rows: Vec<_> = rows.collect();
        let events = rows.chunks(ROWS).map(|rows| Step::rows(&statements::INSERT_EVENTS, rows.as_flattened()));
        // The row goes first: it shows a stale writer before anything is inserted, and events refer to it by foreign
        // key.
        iter::once(self.task_step()).chain(events).collect()
    }

    fn task_step(&self) -> Step<'_> {
        let id = Value::Text(self.id.as_str());
        let last = Value::count(self.last());
        let state = Value::Text(self.standing.state.name());
        let status_at = Value::Int(self.standing.status_at);
        let finished_at = Value::MaybeInt(self.standing.finished_at);
        let runner = Value::MaybeText(self.runner.as_ref().map(Replica::id));
        let turn = Value::MaybeText(self.turn.as_deref());
        let json = self.json.as_deref().map(Value::Text);
        match &self.position {
            Position::New { owner, context, creator } => {
                let tenant = Value::Text(&owner.tenant);
                let principal = Value::Text(&owner.principal);
                let context = Value::Text(context.as_str());
                // Without a JSON the task is told by its events, from the first one on.
                let json_seq = Value::MaybeInt(if json.is_some() { None } else { Some(0) });
                let json = json.unwrap_or(Value::Text(""));
                let row = [id, tenant, principal, context, state, status_at, finished_at, last, json, json_seq, runner];
                match creator {
                    None => Step::rows(&statements::INSERT_TASK, row),
                    Some(creator) => {
                        let values = [&row[..], &[turn, Value::Text(creator.id())]].concat();
                        Step::new(statements::INSERT_TASK_AMONG_OTHERS, values)
                    }
                }
            }
            Position::After(at) => {
                let epoch = Value::count(self.epoch);
                let seq_before = Value::count(at.seq);
                let epoch_before = Value::count(at.epoch);
                let statement = match (json.is_some(), self.attempt.is_some()) {
                    (true, false) => statements::UPDATE_TASK,
                    (false, false) => statements::ADVANCE_TASK,
                    (true, true) => statements::UPDATE_TASK_AMONG_OTHERS,
                    (false, true) => statements::ADVANCE_TASK_AMONG_OTHERS,
                };
                let change = [last, state, status_at, finished_at, runner].into_iter().chain(json);
                let attempt = Value::MaybeInt(self.attempt);
                let change = change.chain([epoch, turn, attempt, id, seq_before, epoch_before]);
                // With this change the task may have no runner any more, because it waits or is finished.
                let alive = Value::MaybeText(at.runner.as_ref().map(Replica::id));
                let alive = self.attempt.is_some().then_some(alive);
                Step::new(statement, change.chain(alive).collect::<Vec<_>>())
            }
        }
    }

    /// True if the log continues with exactly these events, in the epoch of this change.
    async fn is_stored<D: Database>(&self, transaction: &mut D::Transaction) -> sqlx::Result<bool> {
        let id = Value::Text(self.id.as_str());
        let values = [id, Value::count(self.before()), Value::count(self.epoch), Value::count(self.events.len())];
        let rows = D::query(transaction, statements::SELECT_WRITTEN, &values).await?;
        if rows.len() != self.events.len() {
            return Ok(false);
        }
        for (row, (kind, json)) in rows.iter().zip(&self.events) {
            if row.text(0)? != kind.name() || row.text(1)? != *json {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The reason why no row was changed.
    async fn refusal<D: Database>(&self, transaction: &mut D::Transaction) -> sqlx::Result<StoreError> {
        let task = self.id.clone();
        let rows = D::query(transaction, statements::SELECT_PLACE, &[Value::Text(task.as_str())]).await?;
        let Position::After(at) = &self.position else {
            let is_there = !rows.is_empty();
            return Ok(if is_there { StoreError::AlreadyExists { task } } else { StoreError::Fenced { task } });
        };
        Ok(match rows.first() {
            Some(row) if from_sql::<u64>(row.int(1)?) != at.epoch => StoreError::Fenced { task },
            Some(row) => match from_sql(row.int(0)?) {
                // Nothing else keeps it from being written.
                found if found == at.seq => StoreError::Fenced { task },
                found => StoreError::Stale { expected: at.seq, found },
            },
            None => StoreError::NotFound { task },
        })
    }
}
