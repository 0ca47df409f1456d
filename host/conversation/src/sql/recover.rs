//! Cancels turns of other processes, and takes lost turns over.

use annex_database::{Database, Row, Value, from_sql, may_pass, outlast};
use annex_protocol::TaskId;

use super::leased::Leased;
use super::statements;
use super::values::{member, named};
use crate::error::StoreError;
use crate::fence::Fence;
use crate::key::{ConversationKey, check_key};
use crate::numbering::next_number;
use crate::queue::{LostTurn, TurnOfTask};
use annex_leases::Replica;

pub(super) async fn changed<D: Leased>(
    database: &D,
    known: &[(TaskId, u64)],
) -> Result<Vec<(TaskId, Option<u64>)>, StoreError> {
    let known: Vec<_> =
        known.iter().map(|(id, number)| serde_json::json!({"id": id.as_str(), "number": number})).collect();
    let known = serde_json::to_string(&known)?;
    let rows = database.read(D::STATEMENTS.changed, &[Value::Text(&known)]).await?;
    let changed = rows.iter().map(|row| Ok((row.text(0)?.into(), row.maybe_int(1)?.map(from_sql))));
    Ok(changed.collect::<Result<_, sqlx::Error>>()?)
}

pub(super) async fn turns_to_stop<D: Leased>(
    database: &D,
    running: &[(TaskId, Fence)],
) -> Result<Vec<TaskId>, StoreError> {
    if running.is_empty() {
        return Ok(Vec::new());
    }
    let running: Vec<_> = running
        .iter()
        .map(|(id, fence)| serde_json::json!({"id": id.as_str(), "number": fence.epoch, "replica": fence.replica.id()}))
        .collect();
    let running = serde_json::to_string(&running)?;
    let rows = database.read(D::STATEMENTS.to_stop, &[Value::Text(&running)]).await?;
    Ok(rows.iter().map(|row| Ok(row.text(0)?.into())).collect::<Result<_, sqlx::Error>>()?)
}

pub(super) async fn cancel<D: Leased>(database: &D, task: &TaskId) -> Result<Option<TurnOfTask>, StoreError> {
    if check_key("task id", task.as_str()).is_err() {
        return Ok(None);
    }
    let rows = database.change(D::STATEMENTS.cancel, &[Value::Text(task.as_str())]).await?;
    let turn = |row: &D::Row| {
        let fence = Fence { replica: row.text(0)?.into(), epoch: from_sql(row.int(1)?) };
        Ok(TurnOfTask { fence, is_alive: row.int(2)? == 1 })
    };
    Ok(rows.first().map(turn).transpose().map_err(|error: sqlx::Error| error)?)
}

/// True if the connection to the database was lost. The change may have been stored nevertheless.
fn is_lost(error: &StoreError) -> bool {
    matches!(error, StoreError::Database(error) if may_pass(error))
}

/// Takes a turn over. Also returns whether the message of the turn was accepted. If the connection to the database
/// fails, the attempt is repeated until the lease ends. Otherwise the database could give the turn to this process, and
/// this process would not know it.
pub(super) async fn take<D: Leased>(
    database: &D,
    task: &TaskId,
    from: &Fence,
    by: &Replica,
) -> Result<Option<(LostTurn, bool)>, StoreError> {
    let fence = Fence { replica: by.clone(), epoch: next_number() };
    let taken = outlast(by.over(), is_lost, || try_take(database, task, (from, &fence))).await;
    taken.unwrap_or(Ok(None))
}

async fn try_take<D: Leased>(
    database: &D,
    task: &TaskId,
    (from, fence): (&Fence, &Fence),
) -> Result<Option<(LostTurn, bool)>, StoreError> {
    let mut transaction = database.begin().await?;
    let values = [
        Value::Text(fence.replica.id()),
        Value::count(fence.epoch),
        Value::Text(task.as_str()),
        Value::Text(from.replica.id()),
        Value::count(from.epoch),
    ];
    let mut rows = D::query(&mut transaction, D::STATEMENTS.take, &values).await?;
    let is_first = !rows.is_empty();
    if !is_first {
        rows = D::query(&mut transaction, statements::SELECT_TAKEN, &values[..3]).await?;
    }
    let Some(row) = rows.first() else { return Ok(None) };
    let id = row.int(0)?;
    let (before, after) = (member(from), member(fence));
    let moved = [Value::Int(id), Value::Text(&before), Value::Text(&after)];
    if is_first {
        D::execute(&mut transaction, statements::MOVE_TURN, &moved).await?;
    }
    let names = D::query(&mut transaction, statements::SELECT_NAMES, &[Value::Int(id)]).await?;
    let name = names.first().ok_or(sqlx::Error::RowNotFound)?;
    let key = ConversationKey::new(name.text(0)?, name.text(1)?, name.text(2)?, name.text(3)?);
    D::commit(transaction).await?;
    let turn = LostTurn {
        key,
        task: task.clone(),
        fence: fence.clone(),
        resume: Some(row.text(1)?).filter(|text| !text.is_empty()).map(Into::into),
        has_begun: row.int(2)? == 1,
        attempts: u32::try_from(row.int(3)?).unwrap_or(u32::MAX),
        is_cancelled: row.int(4)? == 1,
    };
    Ok(Some((turn, row.int(5)? == 1)))
}

pub(super) async fn take_lost<D: Leased>(
    database: &D,
    by: &Replica,
    limit: usize,
) -> Result<Vec<LostTurn>, StoreError> {
    let rows = database.read(D::STATEMENTS.lost, &[Value::Text(by.id()), Value::count(limit)]).await?;
    let mut taken = Vec::new();
    for row in &rows {
        let task = TaskId::from(row.text(0)?);
        let from = Fence { replica: row.text(1)?.into(), epoch: from_sql(row.int(2)?) };
        match take_one(database, &task, &from, by).await {
            Ok(turn) => taken.extend(turn),
            Err(error) if taken.is_empty() => return Err(error),
            // The turns that are taken are this process's, and nobody else takes them.
            Err(error) => {
                tracing::warn!(%error, "some lost turns are not taken yet");
                break;
            }
        }
    }
    Ok(taken)
}

/// Takes one turn over. `None` if another process was faster, or if the turn was removed instead.
async fn take_one<D: Leased>(
    database: &D,
    task: &TaskId,
    from: &Fence,
    by: &Replica,
) -> Result<Option<LostTurn>, StoreError> {
    Ok(match take(database, task, from, by).await? {
        Some((turn, true)) => Some(turn),
        // Its client was promised nothing, and sends the message again.
        Some((turn, false)) => {
            // Repeated like the take: the turn is in the queue as one of this process until it is forgotten.
            outlast(by.over(), is_lost, || forget(database, &turn)).await.transpose()?;
            None
        }
        None => None,
    })
}

/// Removes a turn from its queue, and its task if the task was stored only for this turn.
async fn forget<D: Database>(database: &D, turn: &LostTurn) -> Result<(), StoreError> {
    let mut transaction = database.begin().await?;
    let own = member(&turn.fence);
    let [tenant, app, user, context] = named(&turn.key);
    let values = [tenant, app, user, context, Value::Text(&own)];
    D::query(&mut transaction, statements::REMOVE_TURN, &values).await?;
    let task = Value::Text(turn.task.as_str());
    let values = [task, Value::Text(turn.fence.replica.id()), Value::count(turn.fence.epoch)];
    D::execute(&mut transaction, statements::REST_TASK, &values).await?;
    D::execute(&mut transaction, statements::FORGET_TASK, &[task]).await?;
    Ok(D::commit(transaction).await?)
}
