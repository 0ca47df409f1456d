//! Tasks whose row holds them as they were while they were small. The later events tell the rest.

use annex_database::{Database, Row, Value, from_sql};
use annex_protocol::TaskId;

use super::{readable, statements};
use crate::event::Kind;
use crate::record::{Since, TaskContent};
use crate::{StoreError, StoredTask};

/// The number of events in one read.
const BATCH: u64 = 1_000;

/// The task of a row that begins with the columns of a stored task. `None` when the task was deleted during the call.
pub(super) async fn stored_task<D: Database>(database: &D, row: &D::Row) -> Result<Option<StoredTask>, StoreError> {
    let id = TaskId::from(row.text(0)?);
    let seq = from_sql(row.int(1)?);
    let json = readable(row.text(2)?);
    let told = from_sql(row.int(3)?);
    let standing = row.int(4)?;
    let (is_worked_on, is_finished) = (standing == 1, standing == 2);
    let epoch = from_sql(row.int(5)?);
    if told >= seq {
        let content = TaskContent::Json(json.into());
        return Ok(Some(StoredTask { id, seq, epoch, is_worked_on, is_finished, content }));
    }
    let events = events(database, &id, told, seq).await?;
    // What is appended meanwhile does no harm: an event never changes.
    let is_whole = events.len() as u64 == seq - told;
    let content = TaskContent::Since(Since { json, events }.into());
    Ok(is_whole.then_some(StoredTask { id, seq, epoch, is_worked_on, is_finished, content }))
}

/// The stored events after number `told`, up to number `seq`.
async fn events<D: Database>(
    database: &D,
    id: &TaskId,
    told: u64,
    seq: u64,
) -> Result<Vec<(Kind, String)>, StoreError> {
    let mut events = Vec::new();
    let mut last = told;
    while last < seq {
        let batch = BATCH.min(seq - last);
        let from = [Value::Text(id.as_str()), Value::count(last), Value::count(batch)];
        let rows = database.read(statements::SELECT_EVENTS, &from).await?;
        for row in &rows {
            events.push((Kind::of_name(&row.text(1)?), row.text(2)?));
        }
        // The task is being deleted, and its events go with its row.
        if (rows.len() as u64) < batch {
            break;
        }
        last += batch;
    }
    Ok(events)
}
