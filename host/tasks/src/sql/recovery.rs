//! Recovery of the tasks that a process left behind.

use std::mem;

use annex_database::{Database, Row, Value, from_sql};
use annex_leases::Replica;
use annex_protocol::{Owner, TaskId, TaskState};

use super::{SqlTaskStore, count_changed, since, statements};
use crate::record::end;
use crate::{LostTasks, LostTurn, StoreError, StoredTask, TaskStore};

/// Tasks in memory at once; each may be large.
const BATCH: usize = 16;
/// Messages that are forgotten in one transaction.
const MESSAGES: usize = 1_000;

/// The recovery at start.
pub(super) async fn recover<D: Database>(store: &SqlTaskStore<D>, reason: &str) -> Result<Vec<TaskId>, StoreError> {
    let mut recovered = fail_abandoned(store, reason).await?;
    if store.is_shared() {
        recovered.extend(take_lost(store, reason, false).await?.ended);
        // Messages of a replica that is gone are for whoever is sent them again (`REMEMBER_AMONG_OTHERS`).
        return Ok(recovered);
    }
    // Nobody works on a message without a task and an answer any more, so that its sender may repeat it.
    let unclaimed = [Value::Int(i64::MAX), Value::count(MESSAGES)];
    while count_changed(store.database.as_ref(), statements::FORGET_UNCLAIMED, &unclaimed).await? > 0 {}
    Ok(recovered)
}

/// The tasks that this process has taken over from ended processes.
#[derive(Debug, Default)]
pub(super) struct Taken {
    tasks: Vec<TakenTask>,
    turns: Vec<LostTurn>,
    /// Tasks whose takeover is uncertain, because the database failed.
    in_doubt: Vec<(LostTask, Replica)>,
}

/// A task whose process has ended.
#[derive(Debug)]
struct LostTask {
    /// The turn to continue. Its epoch is the one in which the turn was lost.
    turn: LostTurn,
    attempt: u64,
}

/// The most times that the agent of a turn is started.
const MAX_ATTEMPTS: u64 = 2;

/// A task that this process has taken over from an ended process and has to end.
#[derive(Debug)]
struct TakenTask {
    id: TaskId,
    by: Replica,
    end: TaskState,
}

/// While this process runs among others: takes over the tasks of ended replicas, and ends the tasks. Tasks with a turn
/// to continue are taken only if `wants_turns` is true.
pub(super) async fn take_lost<D: Database>(
    store: &SqlTaskStore<D>,
    reason: &str,
    wants_turns: bool,
) -> Result<LostTasks, StoreError> {
    let mut ended = Vec::new();
    let Some(lease) = store.lease.as_ref().filter(|lease| lease.may_judge()) else { return Ok(LostTasks::default()) };
    // Some may be left of a time when the database failed in between. Should this process be gone before it has ended them,
    // they are lost again.
    let mut taken = store.taken.lock().await;
    loop {
        while let Some(next) = taken.tasks.last() {
            if end_taken(store, next, reason).await? {
                ended.push(next.id.clone());
            }
            taken.tasks.pop();
        }
        let mut took = false;
        while let Some((lost, by)) = taken.in_doubt.pop() {
            let outcome = take(store, &lost, &by, statements::TAKE_LOST_AGAIN).await;
            took |= taken.note(lost, &by, outcome)?;
        }
        let by = lease.replica();
        let values = [Value::Text(by.id()), Value::count(BATCH), Value::count(usize::from(wants_turns))];
        let rows = store.database.read(statements::SELECT_LOST, &values).await?;
        for row in &rows {
            let lost = lost_task(row)?;
            let outcome = take(store, &lost, &by, statements::TAKE_LOST).await;
            took |= taken.note(lost, &by, outcome)?;
        }
        // Those that others have taken are theirs. The next look finds more.
        if !took {
            ended.sort_unstable();
            return Ok(LostTasks { ended, turns: mem::take(&mut taken.turns) });
        }
    }
}

fn lost_task<R: Row>(row: &R) -> Result<LostTask, StoreError> {
    let owner = Owner { tenant: row.text(4)?, principal: row.text(5)? };
    let turn = LostTurn { task: row.text(0)?.into(), owner, epoch: from_sql(row.int(1)?), turn: row.text(3)? };
    Ok(LostTask { turn, attempt: from_sql(row.int(2)?) })
}

/// Takes the task. Returns true if the task was to be cancelled; `None` when another process was faster.
async fn take<D: Database>(
    store: &SqlTaskStore<D>,
    LostTask { turn, attempt }: &LostTask,
    by: &Replica,
    statement: &'static str,
) -> Result<Option<bool>, sqlx::Error> {
    let id = Value::Text(turn.task.as_str());
    let values = [Value::Text(by.id()), id, Value::count(turn.epoch), Value::count(*attempt)];
    let rows = store.database.change(statement, &values).await?;
    rows.first().map(|row| Ok(row.int(0)? == 1)).transpose()
}

impl Taken {
    /// Notes the outcome of taking a task. Returns true if it is this process's now.
    fn note(
        &mut self,
        lost: LostTask,
        by: &Replica,
        outcome: Result<Option<bool>, sqlx::Error>,
    ) -> Result<bool, StoreError> {
        let is_to_be_cancelled = match outcome {
            Ok(Some(is_to_be_cancelled)) => is_to_be_cancelled,
            Ok(None) => return Ok(false),
            // There was no connection for it.
            Err(error @ sqlx::Error::PoolTimedOut) => return Err(error.into()),
            Err(error) => {
                // It may be taken all the same.
                self.in_doubt.push((lost, by.clone()));
                return Err(error.into());
            }
        };
        let LostTask { turn, attempt } = lost;
        if is_to_be_cancelled || turn.turn.is_empty() || attempt >= MAX_ATTEMPTS {
            let end = if is_to_be_cancelled { TaskState::Canceled } else { TaskState::Failed };
            self.tasks.push(TakenTask { id: turn.task, by: by.clone(), end });
        } else {
            self.turns.push(LostTurn { epoch: turn.epoch + 1, ..turn });
        }
        Ok(true)
    }
}

async fn end_taken<D: Database>(store: &SqlTaskStore<D>, taken: &TakenTask, reason: &str) -> Result<bool, StoreError> {
    let values = [Value::Text(taken.id.as_str()), Value::Text(taken.by.id())];
    let rows = store.database.read(statements::SELECT_TAKEN, &values).await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let Some(task) = since::stored_task(store.database.as_ref(), row).await? else { return Ok(false) };
    end_task(store, &task, taken.end, reason).await
}

/// Fails the tasks without a known process.
async fn fail_abandoned<D: Database>(store: &SqlTaskStore<D>, reason: &str) -> Result<Vec<TaskId>, StoreError> {
    let mut recovered = Vec::new();
    // No task has an empty id.
    let mut last = TaskId::default();
    loop {
        let from = [Value::Text(last.as_str()), Value::count(BATCH)];
        let rows = store.database.read(statements::SELECT_ABANDONED, &from).await?;
        let Some(newest) = rows.last() else { return Ok(recovered) };
        // On from here, not from the start: a task that cannot be read is found again and again.
        last = newest.text(0)?.into();
        for row in &rows {
            let Some(task) = since::stored_task(store.database.as_ref(), row).await? else { continue };
            if end_task(store, &task, TaskState::Failed, reason).await? {
                recovered.push(task.id);
            }
        }
    }
}

/// Ends the task, with the reason if the task fails. Returns true if this call ended the task.
async fn end_task<D: Database>(
    store: &SqlTaskStore<D>,
    stored: &StoredTask,
    state: TaskState,
    reason: &str,
) -> Result<bool, StoreError> {
    let mut task = match stored.decode() {
        Ok(task) => task.into_task(),
        Err(error) => {
            tracing::error!(task = %stored.id, %error, "a task cannot be read and is not recovered");
            if store.is_shared() {
                let row = [Value::Text(stored.id.as_str()), Value::count(stored.seq)];
                store.database.change(statements::RELEASE, &row).await?;
            }
            return Ok(false);
        }
    };
    let reason = (state == TaskState::Failed).then_some(reason);
    let event = end(&mut task, state, reason);
    match store.append(&stored.id, &stored.place(), &[event], &task.into()).await {
        Ok(_) => Ok(true),
        // Somebody else took care of it.
        Err(StoreError::Stale { .. } | StoreError::Fenced { .. } | StoreError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
