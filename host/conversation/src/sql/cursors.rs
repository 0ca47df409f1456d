//! Cursors of push notifications. Each change is one statement. If several processes try a change at the same time,
//! exactly one of them makes it.

use annex_database::{Database as _, PostgresDatabase, Row, Value, from_sql};
use annex_leases::{Replica, is_alive, living_replicas};
use annex_protocol::{Owner, TaskId};
use async_trait::async_trait;

use super::admin::stored_config;
use crate::cursors::{MAX_PUSH_FAILURES, PushCursor, PushCursors, PushProgress, PushThen};
use crate::error::StoreError;
use crate::key::check_key;

/// The columns of the cursors that a statement has changed, in the order that [`cursor`] reads. `$1` is the replica.
macro_rules! changed_cursors {
    () => {
        "
    SELECT push_config.json, changed.task_id, task.tenant, task.principal, changed.sent, changed.failures
    FROM changed JOIN push_config ON push_config.task_id = changed.task_id AND push_config.id = changed.config_id
    JOIN task ON task.id = changed.task_id"
    };
}

/// SQL that is true if no living process sends for the cursor, and the replica `$1` has a valid lease.
macro_rules! is_left {
    () => {
        concat!("(sender IS NULL OR sender <> $1 AND NOT ", is_alive!("push_cursor.sender"), ") AND ", is_alive!("$1"))
    };
}

const OPEN: &str = concat!(
    "
    WITH changed AS (
        INSERT INTO push_cursor (task_id, config_id, sent, sender)
        SELECT task_id, id, $4, CASE WHEN $5 = 1 THEN $1 END FROM push_config WHERE task_id = $2 AND id = $3
        ON CONFLICT (task_id, config_id) DO UPDATE
            SET sent = excluded.sent, sender = excluded.sender, failures = 0, retry_at = NULL
        RETURNING task_id, config_id, sent, failures)",
    changed_cursors!()
);

const CLAIM: &str = concat!(
    "
    WITH changed AS (
        UPDATE push_cursor SET sender = $1 WHERE task_id = $2 AND failures < $3 AND ",
    is_left!(),
    "
        RETURNING task_id, config_id, sent, failures)",
    changed_cursors!()
);

/// Claims cursors that match `$more`, have unsent events, and have no living sender. A cursor that another process claims at
/// the same time is skipped.
macro_rules! claim_unsent {
    ($more:expr) => {
        concat!(
            "
    WITH found AS (
        SELECT task_id, config_id FROM push_cursor
        WHERE ",
            $more,
            " failures < $2 AND (retry_at IS NULL OR retry_at <= clock_timestamp())
        AND EXISTS (SELECT 1 FROM task WHERE task.id = push_cursor.task_id AND task.number > push_cursor.sent) AND ",
            is_left!(),
            "
        ORDER BY task_id, config_id LIMIT $3 FOR UPDATE SKIP LOCKED),
    changed AS (
        UPDATE push_cursor SET sender = $1 FROM found
        WHERE push_cursor.task_id = found.task_id AND push_cursor.config_id = found.config_id
        RETURNING push_cursor.task_id, push_cursor.config_id, sent, failures)",
            changed_cursors!()
        )
    };
}

/// Claims cursors whose sender has ended or has left the remaining events to other processes. Indexes skip the cursors of
/// waiting tasks, which can be many, and the cursors of living senders.
const CLAIM_LEFT: &str = claim_unsent!(concat!(
    "(task_id, config_id) IN (
            SELECT task_id, config_id FROM push_cursor WHERE sender IS NOT NULL AND sender NOT IN ",
    living_replicas!(),
    "
            UNION ALL
            SELECT task_id, config_id FROM push_cursor WHERE sender IS NULL AND retry_at <= clock_timestamp()) AND"
));

const CLAIM_UNSENT: &str = claim_unsent!("");

/// Stores the progress of a sender. Returns the id of the sender if it continues, and an empty text if it stops. Returns no row
/// if another sender has the cursor. A sender that wants to rest continues if the task has further events.
const ADVANCE: &str = "
    UPDATE push_cursor SET sent = $4, failures = $5, retry_at = CASE
            WHEN $6 > 0 OR $7 = 2 THEN clock_timestamp() + $6 * INTERVAL '1 millisecond' END,
        sender = CASE WHEN $7 = 0 OR $7 = 1 AND EXISTS (SELECT 1 FROM task WHERE task.id = $2 AND task.number > $4)
            THEN sender END
    WHERE task_id = $2 AND config_id = $3 AND sender = $1 RETURNING coalesce(sender, '')";

const END: &str = "DELETE FROM push_cursor WHERE task_id = $2 AND config_id = $3 AND sender = $1 RETURNING ''";

#[async_trait]
impl PushCursors for PostgresDatabase {
    async fn open(
        &self,
        task: &TaskId,
        config: &str,
        sent: u64,
        (by, sends): (&Replica, bool),
    ) -> Result<Option<PushCursor>, StoreError> {
        if check_key("task id", task.as_str()).is_err() || check_key("config id", config).is_err() {
            return Ok(None);
        }
        let values =
            [Value::Text(task.as_str()), Value::Text(config), Value::count(sent), Value::Int(i64::from(sends))];
        Ok(changed_cursors(self, OPEN, &values, by).await?.pop())
    }

    async fn claim(&self, task: &TaskId, by: &Replica) -> Result<Vec<PushCursor>, StoreError> {
        if check_key("task id", task.as_str()).is_err() {
            return Ok(Vec::new());
        }
        changed_cursors(self, CLAIM, &[Value::Text(task.as_str()), Value::Int(MAX_PUSH_FAILURES.into())], by).await
    }

    async fn claim_left(&self, limit: usize, by: &Replica) -> Result<Vec<PushCursor>, StoreError> {
        changed_cursors(self, CLAIM_LEFT, &[Value::Int(MAX_PUSH_FAILURES.into()), Value::count(limit)], by).await
    }

    async fn claim_unsent(&self, limit: usize, by: &Replica) -> Result<Vec<PushCursor>, StoreError> {
        changed_cursors(self, CLAIM_UNSENT, &[Value::Int(MAX_PUSH_FAILURES.into()), Value::count(limit)], by).await
    }

    async fn advance(&self, cursor: &PushCursor, progress: &PushProgress) -> Result<bool, StoreError> {
        let config = cursor.config.id.as_deref().unwrap_or_default();
        let name = [Value::Text(cursor.sender.id()), Value::Text(cursor.task.as_str()), Value::Text(config)];
        let then = match progress.then {
            PushThen::GoesOn => 0,
            PushThen::Rests => 1,
            PushThen::Leaves => 2,
            PushThen::Ends => {
                self.change(END, &name).await?;
                return Ok(false);
            }
        };
        let progress = [
            Value::count(progress.sent),
            Value::Int(progress.failures.into()),
            Value::Int(i64::try_from(progress.wait.as_millis()).unwrap_or(i64::MAX)),
            Value::Int(then),
        ];
        let rows = self.change(ADVANCE, &[&name[..], &progress].concat()).await?;
        Ok(rows.first().map(|row| row.text(0)).transpose()?.is_some_and(|sender| !sender.is_empty()))
    }
}

/// Runs a statement that assigns cursors to this replica, its first parameter, and returns these cursors.
async fn changed_cursors(
    database: &PostgresDatabase,
    sql: &'static str,
    values: &[Value<'_>],
    by: &Replica,
) -> Result<Vec<PushCursor>, StoreError> {
    let values = [&[Value::Text(by.id())][..], values].concat();
    let rows = database.change(sql, &values).await?;
    let mut cursors = Vec::with_capacity(rows.len());
    for row in &rows {
        match cursor(row, by) {
            // The others of the same statement are this replica's by now and must be sent.
            Err(error @ StoreError::Unreadable { .. }) => {
                tracing::error!(%error, "a receiver of push notifications cannot be read and gets none");
            }
            read => cursors.push(read?),
        }
    }
    Ok(cursors)
}

fn cursor<R: Row>(row: &R, sender: &Replica) -> Result<PushCursor, StoreError> {
    let task = TaskId::from(row.text(1)?);
    Ok(PushCursor {
        owner: Owner { tenant: row.text(2)?, principal: row.text(3)? },
        config: stored_config(&task, row)?,
        task,
        sent: from_sql(row.int(4)?),
        failures: u32::try_from(row.int(5)?).unwrap_or(u32::MAX),
        sender: sender.clone(),
    })
}
