//! Enters the queue of a conversation, waits in it and leaves it.

use std::sync::Arc;
use std::time::Duration;

use annex_database::{Row, Value, from_sql};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::leased::Leased;
use super::values::{member, members, named, replica_of};
use super::{late, read, statements};
use crate::error::{AppendError, StoreError};
use crate::fence::Fence;
use crate::history::Window;
use crate::key::ConversationKey;
use crate::numbering::next_number;
use crate::queue::{Departure, Entrance, Submission};
use crate::task::TaskSnapshot;

/// The pause between the first and the second time that a waiting turn checks its queue. Each further pause is longer, up to
/// `LAST_LOOK`.
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// The longest pause before a waiting turn checks its queue again.
const LAST_LOOK: Duration = Duration::from_millis(500);

pub(super) async fn enter<D: Leased>(
    database: &D,
    key: &ConversationKey,
    (submission, fence): (&Submission, &Fence),
    window: Window,
) -> Result<Entrance, AppendError> {
    let own = member(fence);
    let now = submission.since;
    let submitted = TaskSnapshot::submitted(submission.task.clone(), key.context.clone(), now);
    let json = submitted.stored_json().map_err(StoreError::from)?;
    let owner = key.owner();
    let [tenant, app, user, context] = named(key);
    let message = submission.message.as_ref();
    let values = [
        tenant,
        app,
        user,
        context,
        Value::count(window.events),
        Value::count(window.bytes),
        Value::Int(now.as_millis()),
        Value::Text(&own),
        Value::Text(fence.replica.id()),
        Value::Text(submission.task.as_str()),
        Value::count(submission.max_waiting),
        Value::Text(&owner.principal),
        Value::Text(&json),
        Value::count(fence.epoch),
        Value::MaybeText(submission.request.as_deref()),
        Value::Text(message.map_or("", |message| message.context.as_str())),
        Value::Text(message.map_or("", |message| message.message.as_str())),
    ];
    let rows = database.change(D::STATEMENTS.enter, &values).await?;
    let is_entered = |row: &&D::Row| row.int(0).is_ok_and(|kind| kind == statements::ENTERED_ROW);
    let Some(row) = rows.iter().find(is_entered) else {
        return Err(refusal(database, key, submission).await?);
    };
    // Another turn of the task has entered at the same time.
    if row.text(2)? == statements::LATE {
        leave(database, key, fence, Departure::Refused).await?;
        return Err(AppendError::Fenced);
    }
    if row.text(1)? != own {
        return Ok(Entrance::Waits(fence.clone()));
    }
    let mut found = read::snapshot(key, &rows)?;
    if found.number != from_sql::<u64>(row.int(3)?) {
        // The turn before left in between, and the rows are of before. From now on nobody else appends.
        found = read::conversation(database, key, window).await?;
    }
    Ok(Entrance::Runs(fence.clone(), Box::new(found)))
}

/// Removes a turn that may be in the queue: the database's answer to its entrance was lost. As long as this process
/// lives, no other process would remove the turn.
pub(super) fn give_back<D: Leased>(database: Arc<D>, key: ConversationKey, fence: Fence) {
    let replica = fence.replica.clone();
    late::undo(replica, move || {
        let (database, key, fence) = (Arc::clone(&database), key.clone(), fence.clone());
        async move { leave(database.as_ref(), &key, &fence, Departure::HandedOver { has_begun: false }).await }
    });
}

/// Finds the reason why a turn was not put into the queue.
async fn refusal<D: Leased>(
    database: &D,
    key: &ConversationKey,
    submission: &Submission,
) -> Result<AppendError, AppendError> {
    let alive = [Value::Text(submission.replica.id())];
    if database.read(D::STATEMENTS.is_alive, &alive).await?.is_empty() {
        return Ok(AppendError::Fenced);
    }
    Ok(match read::task(database, &submission.task).await? {
        Some(task) if task.key != *key => AppendError::Missing,
        Some(task) if task.is_worked_on => AppendError::Fenced,
        _ => AppendError::QueueFull { waiting: submission.max_waiting },
    })
}

/// Waits until a turn is the first of its queue. Removes the turns before it whose process has ended and whose message was not
/// accepted.
pub(super) async fn wait<D: Leased>(
    database: &D,
    key: &ConversationKey,
    fence: &Fence,
    hint: &Notify,
) -> Result<(), AppendError> {
    let own = member(fence);
    let mut next_look = FIRST_LOOK;
    loop {
        // Made before the look, so that no hint is missed.
        let mut hinted = std::pin::pin!(hint.notified());
        hinted.as_mut().enable();
        let rows = database.read(statements::SELECT_TURNS, &named(key)).await?;
        let turns = rows.first().map(|row| row.text(0)).transpose()?.unwrap_or_default();
        let first = members(&turns).next().unwrap_or_default();
        if first == own {
            return Ok(());
        }
        if !members(&turns).any(|turn| turn == own) {
            return Err(AppendError::Fenced);
        }
        let [tenant, app, user, context] = named(key);
        let gone = Value::Text(replica_of(first));
        let values = [tenant, app, user, context, Value::Text(first), gone, Value::Text(fence.replica.id())];
        if database.read(D::STATEMENTS.is_alive, &[gone]).await?.is_empty()
            && !database.change(D::STATEMENTS.forget_first, &values).await?.is_empty()
        {
            continue;
        }
        let _ = timeout(next_look, hinted).await;
        next_look = LAST_LOOK.min(next_look.mul_f32(1.5));
    }
}

pub(super) async fn leave<D: Leased>(
    database: &D,
    key: &ConversationKey,
    fence: &Fence,
    departure: Departure,
) -> Result<(), StoreError> {
    let own = member(fence);
    let (replica, epoch) = (Value::Text(fence.replica.id()), Value::count(fence.epoch));
    let mut transaction = database.begin().await?;
    let [tenant, app, user, context] = named(key);
    // An append of the turn that is under way ends first. What is stored then decides.
    D::query(&mut transaction, D::STATEMENTS.lock, &[tenant, app, user, context, replica]).await?;
    let rows = D::query(&mut transaction, statements::SELECT_TASK_OF_TURN, &[replica, epoch]).await?;
    let task = rows.first().map(|row| Ok::<_, sqlx::Error>((row.text(0)?, row.int(1)? == 1))).transpose()?;
    match (departure.of_turn(task.as_ref().is_some_and(|(_, has_begun)| *has_begun)), task) {
        (Departure::HandedOver { has_begun }, Some((task, _))) => {
            let left = Fence { replica: "".into(), epoch: next_number() };
            let values =
                [Value::Text(&task), replica, epoch, Value::count(left.epoch), Value::Int(i64::from(!has_begun))];
            let rows = D::query(&mut transaction, statements::HAND_OVER, &values).await?;
            if let Some(row) = rows.first() {
                let left = member(&left);
                let values = [Value::Int(row.int(0)?), Value::Text(&own), Value::Text(&left)];
                D::execute(&mut transaction, statements::MOVE_TURN, &values).await?;
            }
        }
        (_, task) => {
            let values = [tenant, app, user, context, Value::Text(&own)];
            D::query(&mut transaction, statements::REMOVE_TURN, &values).await?;
            if let Some((task, _)) = task {
                let values = [Value::Text(&task), replica, epoch];
                D::execute(&mut transaction, statements::REST_TASK, &values).await?;
                // It was stored only because its turn had to wait.
                D::execute(&mut transaction, statements::FORGET_TASK, &[Value::Text(&task)]).await?;
            }
            D::execute(&mut transaction, statements::FORGET_CONVERSATION, &[tenant, app, user, context]).await?;
        }
    }
    Ok(D::commit(transaction).await?)
}
