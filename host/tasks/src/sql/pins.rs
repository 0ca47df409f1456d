//! Pins in a database: a row for each task that has some, which goes when the task goes.

use annex_database::{Database, Row, Value, from_sql, to_sql};
use annex_leases::Replica;
use annex_protocol::{Owner, TaskId, Timestamp};
use async_trait::async_trait;

use super::SqlTaskStore;
use crate::key::is_key;
use crate::{PinStore, StoreError, TaskPins, TaskStore};

/// One statement, because a turn waits for the write. The JSON holds all values that are read together. Nothing is
/// stored for a turn whose task belongs to another process now.
const PUT: &str = "
    INSERT INTO task_pin (task_id, json, number, kept_at) SELECT $1, $2, $3, $4
    WHERE NOT EXISTS (SELECT 1 FROM task WHERE id = $1 AND runner <> $5)
    ON CONFLICT (task_id) DO UPDATE SET json = excluded.json, number = excluded.number, kept_at = excluded.kept_at";

const SELECT: &str = "
    SELECT task.tenant, task.principal, task_pin.json, task_pin.number
    FROM task_pin JOIN task ON task.id = task_pin.task_id
    WHERE task_pin.task_id = $1 AND task.finished_at IS NULL";

const END_INTERRUPTION: &str = "
    UPDATE task_pin SET number = NULL WHERE task_id = $1 AND number = $2 RETURNING task_id";

#[async_trait]
impl<D: Database> PinStore for SqlTaskStore<D> {
    async fn keep(&self, task: &TaskId, pins: &TaskPins) -> Result<(), StoreError> {
        let json = serde_json::to_string(pins)?;
        let number = pins.interruption.as_ref().map(|interruption| to_sql(interruption.number));
        let now = Timestamp::now().as_millis();
        let replica = self.replica();
        let runner = Value::Text(replica.as_ref().map_or("", Replica::id));
        let values = [Value::Text(task.as_str()), Value::Text(&json), Value::MaybeInt(number), Value::Int(now), runner];
        self.change_again([PUT, PUT], &values).await?;
        Ok(())
    }

    async fn find(&self, task: &TaskId) -> Result<Option<(Owner, TaskPins)>, StoreError> {
        // Guests name tasks.
        if !is_key(task.as_str()) {
            return Ok(None);
        }
        let rows = self.database.read(SELECT, &[Value::Text(task.as_str())]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let unreadable = |source| StoreError::Unreadable { task: task.clone(), source };
        let mut pins: TaskPins = serde_json::from_str(&row.text(2)?).map_err(unreadable)?;
        let number = row.maybe_int(3)?.map(from_sql::<u64>);
        pins.interruption = pins.interruption.filter(|interruption| Some(interruption.number) == number);
        Ok(Some((Owner { tenant: row.text(0)?, principal: row.text(1)? }, pins)))
    }

    async fn end_interruption(&self, task: &TaskId, number: u64) -> Result<bool, StoreError> {
        let values = [Value::Text(task.as_str()), Value::count(number)];
        Ok(!self.database.change(END_INTERRUPTION, &values).await?.is_empty())
    }
}
