//! Reads conversations and tasks.

use std::sync::Arc;

use annex_database::{Database, Row, Value, from_sql};
use annex_protocol::{Json, JsonObject, TaskId, Timestamp};

use super::statements;
use super::values::named;
use crate::encoding::{Kind, decode, decode_name, encoded_name};
use crate::entry::{EntryContent, StoredEntry};
use crate::error::StoreError;
use crate::history::{ConversationSnapshot, StoredArtifact, Window};
use crate::key::{ConversationKey, Owner, check_key};
use crate::page::{MAX_PAGE_BYTES, TaskCursor, TaskPage, TaskQuery};
use crate::state::ScopedState;
use crate::stored_task::{StoredTask, TaskContent};

/// The maximum number of entries of a large task in one query.
const BATCH: usize = 1_000;

pub(super) async fn conversation<D: Database>(
    database: &D,
    key: &ConversationKey,
    window: Window,
) -> Result<ConversationSnapshot, StoreError> {
    if key.check().is_err() {
        // A conversation of this key was never stored, and shares no state.
        return snapshot::<D::Row>(key, &[]);
    }
    let [tenant, app, user, context] = named(key);
    let values = [tenant, app, user, context, Value::count(window.events), Value::count(window.bytes)];
    // One statement, so that keys and events are those of one moment.
    snapshot(key, &database.read(statements::SELECT_CONVERSATION, &values).await?)
}

/// Makes a conversation from the rows of [`statements::SELECT_CONVERSATION`].
pub(super) fn snapshot<R: Row>(key: &ConversationKey, rows: &[R]) -> Result<ConversationSnapshot, StoreError> {
    let unreadable = |source| StoreError::Unreadable { what: format!("conversation {}", key.context), source };
    let mut found = ConversationSnapshot {
        key: key.clone(),
        number: 0,
        state: ScopedState::default(),
        updated_at: Timestamp::now(),
        history: Vec::new(),
        upstream: None,
        receipt: None,
    };
    let mut scopes: [Vec<(i64, String, Json)>; 3] = Default::default();
    let mut events = Vec::new();
    for row in rows {
        match row.int(0)? {
            statements::CONVERSATION_ROW => {
                (found.number, found.updated_at) = (from_sql(row.int(3)?), Timestamp::from_millis(row.int(4)?));
                found.upstream = Some(row.text(1)?).filter(|ids| !ids.is_empty()).map(Arc::from);
                found.receipt = Some(row.text(2)?).filter(|last| !last.is_empty()).map(Arc::from);
            }
            statements::ENTERED_ROW => {}
            statements::ENTRY_ROW => {
                let entry = decode(Kind::of_name(&row.text(1)?), &row.text(2)?).map_err(unreadable)?;
                events.extend(entry.event().map(|event| (row.int(3), Arc::clone(event))));
            }
            scope => {
                let name = decode_name(&row.text(1)?).map_err(unreadable)?;
                let value = serde_json::from_str::<Json>(&row.text(2)?).map_err(unreadable)?;
                if let Some(keys) = scopes.get_mut(usize::try_from(scope).unwrap_or(usize::MAX)) {
                    keys.push((row.int(3)?, name, value));
                }
            }
        }
    }
    // The rows of a `UNION ALL` have no order.
    let mut numbered =
        events.into_iter().map(|(seq, event)| Ok((seq?, event))).collect::<Result<Vec<_>, sqlx::Error>>()?;
    numbered.sort_unstable_by_key(|(seq, _)| *seq);
    found.history = numbered.into_iter().map(|(_, event)| event).collect();
    let [own, user, app] = scopes.map(|mut keys| {
        // Two writers of a shared scope may have given the same position to two names.
        keys.sort_unstable_by(|(position, name, _), other| (position, name).cmp(&(&other.0, &other.1)));
        keys.into_iter().map(|(_, name, value)| (name, value)).collect::<JsonObject>()
    });
    found.state = ScopedState { own, user, app };
    Ok(found)
}

pub(super) async fn artifact<D: Database>(
    database: &D,
    key: &ConversationKey,
    name: &str,
) -> Result<Option<StoredArtifact>, StoreError> {
    if key.check().is_err() {
        return Ok(None);
    }
    let name = encoded_name(name);
    let [tenant, app, user, context] = named(key);
    let values = [tenant, app, user, context, Value::Text(&name)];
    let rows = database.read(statements::SELECT_ARTIFACT, &values).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let unreadable = |source| StoreError::Unreadable { what: format!("artifact {name}"), source };
    let parts = serde_json::from_str(&row.text(1)?).map_err(unreadable)?;
    Ok(Some(StoredArtifact { version: from_sql(row.int(0)?), parts }))
}

pub(super) async fn task<D: Database>(database: &D, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
    if check_key("task id", id.as_str()).is_err() {
        return Ok(None);
    }
    let rows = database.read(statements::SELECT_TASK, &[Value::Text(id.as_str())]).await?;
    match rows.first() {
        Some(row) => stored_task(database, row).await,
        None => Ok(None),
    }
}

/// The task in a row; `None` if the task was deleted after the row was read.
async fn stored_task<D: Database>(database: &D, row: &D::Row) -> Result<Option<StoredTask>, StoreError> {
    let id = TaskId::from(row.text(0)?);
    let number = from_sql(row.int(1)?);
    let json = row.text(2)?;
    let rest = row.int(3)?;
    let text = |column| row.text(column).map(|text| Some(text).filter(|text| !text.is_empty()).map(Arc::<str>::from));
    let (pins, upstream) = (text(4)?, text(5)?);
    let key = ConversationKey::new(row.text(6)?, row.text(7)?, row.text(8)?, row.text(9)?);
    let content = match json.as_str() {
        "" => match entries_of(database, &id, number).await? {
            Some(entries) => TaskContent::Entries(entries),
            None => return Ok(None),
        },
        _ => TaskContent::Json(json.into()),
    };
    let (is_worked_on, is_finished) = (rest == 1, rest == 2);
    Ok(Some(StoredTask { id, key, number, is_worked_on, is_finished, pins, upstream, content }))
}

/// Reads the first `number` entries of a task without decoding them, because a large task has many entries. `None` if the task
/// is being deleted.
async fn entries_of<D: Database>(
    database: &D,
    id: &TaskId,
    number: u64,
) -> Result<Option<Vec<(Kind, String)>>, StoreError> {
    let mut entries = Vec::new();
    while (entries.len() as u64) < number {
        let read = entries.len() as u64;
        let batch = encoded_entries(database, id, read, (BATCH, usize::MAX)).await?;
        if batch.is_empty() || (read + 1..).zip(&batch).any(|(number, entry)| entry.0 != number) {
            // The task is being deleted. The entries that the history does not need go with it.
            return Ok(None);
        }
        entries.extend(batch.into_iter().map(|(_, kind, json)| (kind, json)));
    }
    entries.truncate(usize::try_from(number).unwrap_or(usize::MAX));
    Ok(Some(entries))
}

pub(super) async fn entries_after<D: Database>(
    database: &D,
    task: &TaskId,
    after: u64,
    limits: (usize, usize),
) -> Result<Vec<StoredEntry>, StoreError> {
    let entries = encoded_entries(database, task, after, limits).await?.into_iter();
    let stored = |(number, kind, json)| StoredEntry { number, content: EntryContent::Json(kind, json) };
    Ok(entries.map(stored).collect())
}

/// Reads the entries of a task after entry number `after`, each with its number, its kind and its JSON.
async fn encoded_entries<D: Database>(
    database: &D,
    task: &TaskId,
    after: u64,
    (limit, bytes): (usize, usize),
) -> Result<Vec<(u64, Kind, String)>, StoreError> {
    if check_key("task id", task.as_str()).is_err() {
        return Ok(Vec::new());
    }
    let values = [Value::Text(task.as_str()), Value::count(after), Value::count(limit), Value::count(bytes)];
    let rows = database.read(statements::SELECT_ENTRIES, &values).await?;
    let entry = |row: &D::Row| Ok((from_sql(row.int(0)?), Kind::of_name(&row.text(1)?), row.text(2)?));
    Ok(rows.iter().map(entry).collect::<Result<_, sqlx::Error>>()?)
}

pub(super) async fn tasks<D: Database>(database: &D, owner: &Owner, query: &TaskQuery) -> Result<TaskPage, StoreError> {
    let context = query.context.as_ref().map(|context| context.as_str());
    let names = [owner.tenant.as_str(), &owner.principal, context.unwrap_or_default()];
    if names.into_iter().any(|name| check_key("name", name).is_err()) {
        return Ok(TaskPage::default());
    }
    let after = query.after.as_ref();
    let values = [
        Value::Text(&owner.tenant),
        Value::Text(&owner.principal),
        Value::Text(query.state.map_or("", |state| state.name())),
        Value::Int(query.status_after.map_or(i64::MIN, Timestamp::as_millis)),
        Value::Text(context.unwrap_or_default()),
        Value::Int(after.map_or(i64::MAX, |cursor| cursor.status_at)),
        Value::Text(after.map_or("", |cursor| cursor.id.as_str())),
        // One more than is shown tells whether there is another page.
        Value::count(query.limit.saturating_add(1)),
        Value::count(MAX_PAGE_BYTES),
    ];
    let [page, count] = match context {
        Some(_) => [statements::PAGE_OF_CONTEXT, statements::COUNT_OF_CONTEXT],
        None => [statements::PAGE_OF_OWNER, statements::COUNT_OF_OWNER],
    };
    // All pages are counted, so that the parameters for the cursor are left out.
    let counted = if context.is_some() { values.get(..5) } else { values.get(..4) };
    let total = database.read(count, counted.unwrap_or_default()).await?;
    let total = total.first().map(|row| row.int(0)).transpose()?.unwrap_or_default();
    let rows = database.read(page, &values).await?;
    // The page as it would be without the bound on its bytes: a page that ends early has a next one, too.
    let there = rows.first().map(|row| row.int(11)).transpose()?.unwrap_or_default();
    let listed = rows.get(..query.limit).unwrap_or(&rows);
    let last = listed.last().filter(|_| from_sql::<u64>(there) > listed.len() as u64);
    let cursor = |row: &D::Row| Ok::<_, sqlx::Error>(TaskCursor { status_at: row.int(10)?, id: row.text(0)?.into() });
    let next = last.map(cursor).transpose()?;
    let mut tasks = Vec::with_capacity(listed.len());
    for row in listed {
        // A task that was deleted since the page was read is left out.
        tasks.extend(stored_task(database, row).await?);
    }
    Ok(TaskPage { tasks, next, total: from_sql(total) })
}
