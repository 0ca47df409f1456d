//! Recovery of the tasks that a process left behind.

use annex_database::{Database, Row, Value};
use annex_protocol::TaskId;

use super::{SqlTaskStore, since, statements};
use crate::record::fail;
use crate::{StoreError, StoredTask, TaskStore};

/// Tasks in memory at once; each may be large.
const BATCH: usize = 16;
/// Messages that are forgotten in one transaction.
const MESSAGES: usize = 1_000;

/// Which tasks are looked for.
enum Left<'a> {
    /// Those of nobody knows whom.
    Abandoned,
    /// Those of replicas that are gone, as this replica sees it.
    Lost(&'a str),
}

/// At start.
pub(super) async fn recover<D: Database>(store: &SqlTaskStore<D>, reason: &str) -> Result<Vec<TaskId>, StoreError> {
    let mut recovered = fail_all(store, &Left::Abandoned, reason).await?;
    if store.is_shared() {
        recovered.extend(recover_lost(store, reason).await?);
        // Messages of a replica that is gone are for whoever is sent them again (`REMEMBER_AMONG_OTHERS`).
        return Ok(recovered);
    }
    // Nobody works on a message without a task and an answer any more, so that its sender may repeat it.
    let unclaimed = [Value::Int(i64::MAX), Value::count(MESSAGES)];
    while store.count_changed(statements::FORGET_UNCLAIMED, &unclaimed).await? > 0 {}
    Ok(recovered)
}

/// While this process runs among others.
pub(super) async fn recover_lost<D: Database>(
    store: &SqlTaskStore<D>,
    reason: &str,
) -> Result<Vec<TaskId>, StoreError> {
    match &store.lease {
        Some(lease) if lease.may_judge() => fail_all(store, &Left::Lost(lease.replica().id()), reason).await,
        _ => Ok(Vec::new()),
    }
}

async fn fail_all<D: Database>(
    store: &SqlTaskStore<D>,
    left: &Left<'_>,
    reason: &str,
) -> Result<Vec<TaskId>, StoreError> {
    let mut recovered = Vec::new();
    // No task has an empty id.
    let mut last = TaskId::default();
    loop {
        let from = Value::Text(last.as_str());
        let rows = match left {
            Left::Abandoned => store.database.read(statements::SELECT_ABANDONED, &[from, Value::count(BATCH)]).await?,
            Left::Lost(replica) => {
                let values = [from, Value::count(BATCH), Value::Text(replica)];
                store.database.read(statements::SELECT_LOST, &values).await?
            }
        };
        let Some(newest) = rows.last() else { return Ok(recovered) };
        // On from here, not from the start: a task that cannot be read is found again and again.
        last = newest.text(0)?.into();
        for row in &rows {
            let Some(task) = since::stored_task(store.database.as_ref(), row).await? else { continue };
            if fail_task(store, &task, reason).await? {
                recovered.push(task.id);
            }
        }
    }
}

/// Fails the task. Tells whether it was this call that ended it.
async fn fail_task<D: Database>(
    store: &SqlTaskStore<D>,
    stored: &StoredTask,
    reason: &str,
) -> Result<bool, StoreError> {
    let mut task = match stored.decode() {
        Ok(task) => task.into_task(),
        Err(error) => {
            tracing::error!(task = %stored.id, %error, "a task cannot be read and is not recovered");
            if store.is_shared() {
                let row = [Value::Text(stored.id.as_str()), Value::count(stored.seq)];
                store.count_changed(statements::RELEASE, &row).await?;
            }
            return Ok(false);
        }
    };
    let event = fail(&mut task, reason);
    match store.append(&stored.id, stored.seq, &[event], &task.into()).await {
        Ok(_) => Ok(true),
        // Somebody else took care of it.
        Err(StoreError::Stale { .. } | StoreError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
