//! The task store on a SQL database, once for all databases.

mod cursors;
mod messages;
mod pins;
mod recovery;
mod retention;
mod since;
mod statements;
mod write;

use std::sync::Arc;
use std::time::Duration;

use annex_database::{Database, Row, Value, Writer, from_sql, may_pass, outlast, with_long_statements};
use annex_leases::{Lease, Replica};
use annex_protocol::{Message, Owner, TaskId, TaskPushNotificationConfig, Timestamp, portable};
use async_trait::async_trait;

use self::messages::{is_named, named, remembered};
use self::recovery::Taken;
use self::write::Write;
use crate::event::{EventContent, Kind};
use crate::key::{self, is_key, is_owner_key};
use crate::page::cut;
use crate::{
    AskedRunner, ConfigPage, Creator, LostTasks, MAX_PAGE_BYTES, MAX_PUSH_CONFIGS, MessageKey, PinStore, Place,
    PushCursors, Remembered, Retention, StoreError, StoredEvent, StoredTask, TaskCursor, TaskEvent, TaskPage,
    TaskQuery, TaskSnapshot, TaskStore, WaitingBounds,
};

/// Tasks in a SQL database.
#[derive(Debug)]
pub struct SqlTaskStore<D> {
    database: Arc<D>,
    writer: Writer<D, Write>,
    /// The lease of this process; `None` where it has the database for itself.
    lease: Option<Arc<Lease>>,
    /// Tasks that this process has taken and neither ended nor gone on with.
    taken: tokio::sync::Mutex<Taken>,
}

#[async_trait]
impl<D: Database> TaskStore for SqlTaskStore<D> {
    fn pins(&self) -> Option<&dyn PinStore> {
        Some(self)
    }

    async fn create(
        &self,
        owner: &Owner,
        events: &[TaskEvent],
        task: &TaskSnapshot,
        Creator { runner, turn }: Creator<'_>,
    ) -> Result<Place, StoreError> {
        key::check_owner(owner)?;
        key::check_name("task id", task.id().as_str())?;
        key::check("context id", task.context_id().as_str())?;
        let runner = runner.cloned().or_else(|| self.replica());
        let write = Write::create(owner, events, task)?.with_turn(turn);
        self.store(write.by(runner.clone()), runner).await
    }

    async fn append(
        &self,
        id: &TaskId,
        at: &Place,
        events: &[TaskEvent],
        task: &TaskSnapshot,
    ) -> Result<Place, StoreError> {
        // Such a text was never stored. PostgreSQL would fail on it, and the caller would be told of a broken database.
        if !is_key(id.as_str()) {
            return Err(StoreError::NotFound { task: id.clone() });
        }
        let replica = self.replica();
        let runner = at.runner.clone().or(replica.clone());
        self.store(Write::append(at, events, task)?.by(replica), runner).await
    }

    async fn take(&self, id: &TaskId, epoch: u64) -> Result<Option<Place>, StoreError> {
        let Some(replica) = self.replica().filter(|_| is_key(id.as_str())) else { return Ok(None) };
        let values = [Value::Text(replica.id()), Value::Text(id.as_str()), Value::count(epoch)];
        let rows = self.change_again([statements::TAKE, statements::TAKE_AGAIN], &values).await?;
        let place = |row: &D::Row| {
            let seq = from_sql(row.int(0)?);
            Ok(Place { seq, epoch: from_sql(row.int(1)?), runner: Some(replica.clone()), turn: None })
        };
        rows.first().map(place).transpose()
    }

    async fn ask_to_cancel(&self, id: &TaskId) -> Result<Option<AskedRunner>, StoreError> {
        if self.lease.is_none() || !is_key(id.as_str()) {
            return Ok(None);
        }
        let rows = self.database.change(statements::ASK_TO_CANCEL, &[Value::Text(id.as_str())]).await?;
        let asked = |row: &D::Row| Ok(AskedRunner { epoch: from_sql(row.int(0)?), is_alive: row.int(1)? == 1 });
        rows.first().map(asked).transpose()
    }

    async fn turns_to_stop(&self, running: &[(TaskId, u64)]) -> Result<Vec<TaskId>, StoreError> {
        if self.lease.is_none() {
            return Ok(Vec::new());
        }
        let rows = self.database.read(statements::SELECT_TO_STOP, &[Value::Text(&numbered(running)?)]).await?;
        Ok(rows.iter().map(|row| Ok(row.text(0)?.into())).collect::<Result<_, sqlx::Error>>()?)
    }

    async fn load(&self, owner: &Owner, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        if !is_owner_key(owner) || !is_key(id.as_str()) {
            return Ok(None);
        }
        let values = [Value::Text(id.as_str()), Value::Text(&owner.tenant), Value::Text(&owner.principal)];
        let rows = self.database.read(statements::SELECT_TASK, &values).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        since::stored_task(self.database.as_ref(), row).await
    }

    async fn exists(&self, owner: &Owner, id: &TaskId) -> Result<bool, StoreError> {
        if !is_owner_key(owner) || !is_key(id.as_str()) {
            return Ok(false);
        }
        let values = [Value::Text(id.as_str()), Value::Text(&owner.tenant), Value::Text(&owner.principal)];
        Ok(!self.database.read(statements::SELECT_EXISTING, &values).await?.is_empty())
    }

    async fn events_after(&self, id: &TaskId, seq: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        if !is_key(id.as_str()) {
            return Ok(Vec::new());
        }
        let values = [Value::Text(id.as_str()), Value::count(seq), Value::count(limit)];
        let rows = self.database.read(statements::SELECT_EVENTS, &values).await?;
        Ok(rows.iter().map(stored_event).collect::<Result<_, _>>()?)
    }

    async fn events_within(
        &self,
        id: &TaskId,
        seq: u64,
        (limit, bytes): (usize, usize),
    ) -> Result<Vec<StoredEvent>, StoreError> {
        if !is_key(id.as_str()) {
            return Ok(Vec::new());
        }
        let values = [Value::Text(id.as_str()), Value::count(seq), Value::count(limit), Value::count(bytes)];
        let rows = self.database.read(statements::SELECT_EVENTS_WITHIN, &values).await?;
        Ok(rows.iter().map(stored_event).collect::<Result<_, _>>()?)
    }

    async fn changed(&self, known: &[(TaskId, u64)]) -> Result<Vec<(TaskId, Option<u64>)>, StoreError> {
        // Whoever has the database for itself knows what it changed, and SQLite has no such statement.
        if self.lease.is_none() {
            return Ok(Vec::new());
        }
        let rows = self.database.read(statements::SELECT_CHANGED, &[Value::Text(&numbered(known)?)]).await?;
        let changed = rows.iter().map(|row| Ok((row.text(0)?.into(), row.maybe_int(1)?.map(from_sql))));
        changed.collect::<Result<_, sqlx::Error>>().map_err(StoreError::from)
    }

    async fn list(&self, owner: &Owner, query: &TaskQuery) -> Result<TaskPage, StoreError> {
        let context = query.context.as_ref().map(|context| context.as_str());
        if !is_owner_key(owner) || !context.is_none_or(is_key) {
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
        // All pages are counted, so that the parameters for the place of this one are left out.
        let counted = if context.is_some() { values.get(..5) } else { values.get(..4) };
        let total = self.database.read(count, counted.unwrap_or_default()).await?;
        let total = total.first().map(|row| row.int(0)).transpose()?.unwrap_or_default();
        let rows = self.database.read(page, &values).await?;
        // The page as it would be without the bound on its bytes: a page that ends early has a next one, too.
        let there = rows.first().map(|row| row.int(7)).transpose()?.unwrap_or_default();
        let listed = rows.get(..query.limit).unwrap_or(&rows);
        let last = listed.last().filter(|_| from_sql::<u64>(there) > listed.len() as u64);
        let next = last.map(cursor).transpose()?;
        let mut tasks = Vec::with_capacity(listed.len());
        for row in listed {
            // A task that was deleted since the page was read is left out.
            tasks.extend(since::stored_task(self.database.as_ref(), row).await?);
        }
        Ok(TaskPage { tasks, next, total: from_sql(total) })
    }

    async fn put_config(&self, id: &TaskId, config: &TaskPushNotificationConfig) -> Result<(), StoreError> {
        let config_id = config.id.as_deref().unwrap_or_default();
        key::check_name("push notification config id", config_id)?;
        let not_found = || StoreError::NotFound { task: id.clone() };
        if !is_key(id.as_str()) {
            return Err(not_found());
        }
        let json = serde_json::to_string(config)?;
        let values = [Value::Text(id.as_str()), Value::Text(config_id), Value::Text(&json)];
        let [task_id, config_id, _] = values;
        let mut transaction = self.database.begin().await?;
        // Locked, so that two configs at once do not both take the last place.
        if D::execute(&mut transaction, statements::LOCK_TASK, &[task_id]).await? == 0 {
            return Err(not_found());
        }
        // The config itself does not count, because putting it again replaces it.
        let others = D::query(&mut transaction, statements::COUNT_OTHER_CONFIGS, &[task_id, config_id]).await?;
        let others = others.first().map(|row| row.int(0)).transpose()?.unwrap_or_default();
        if from_sql::<u64>(others) >= MAX_PUSH_CONFIGS as u64 {
            return Err(StoreError::TooManyConfigs { limit: MAX_PUSH_CONFIGS });
        }
        D::execute(&mut transaction, statements::PUT_CONFIG, &values).await?;
        Ok(D::commit(transaction).await?)
    }

    async fn config(&self, id: &TaskId, config: &str) -> Result<Option<TaskPushNotificationConfig>, StoreError> {
        if !is_key(id.as_str()) || !is_key(config) {
            return Ok(None);
        }
        let values = [Value::Text(id.as_str()), Value::Text(config)];
        let rows = self.database.read(statements::SELECT_CONFIG, &values).await?;
        rows.first().map(|row| stored_config(id, row)).transpose()
    }

    async fn configs(&self, id: &TaskId, after: &str, limit: usize) -> Result<ConfigPage, StoreError> {
        if !is_key(id.as_str()) || !is_key(after) {
            return Ok(ConfigPage::default());
        }
        let values = [Value::Text(id.as_str()), Value::Text(after), Value::count(limit.saturating_add(1))];
        let rows = self.database.read(statements::SELECT_CONFIGS, &values).await?;
        let mut configs = rows.iter().map(|row| stored_config(id, row)).collect::<Result<Vec<_>, _>>()?;
        let next = cut(&mut configs, limit, |config| config.id.clone().unwrap_or_default());
        Ok(ConfigPage { configs, next })
    }

    async fn delete_config(&self, id: &TaskId, config: &str) -> Result<(), StoreError> {
        if !is_key(id.as_str()) || !is_key(config) {
            return Ok(());
        }
        self.database.change(statements::DELETE_CONFIG, &[Value::Text(id.as_str()), Value::Text(config)]).await?;
        Ok(())
    }

    async fn remember(&self, owner: &Owner, message: &MessageKey, task: &TaskId) -> Result<Remembered, StoreError> {
        key::check_owner(owner)?;
        key::check("context id", message.context.as_str())?;
        key::check_name("message id", message.message.as_str())?;
        key::check_name("task id", task.as_str())?;
        let [tenant, principal, context, id, digest] = named(owner, message);
        let now = Value::Int(Timestamp::now().as_millis());
        let replica = self.replica();
        let runner = Value::MaybeText(replica.as_ref().map(Replica::id));
        let task_id = Value::Text(task.as_str());
        // The claim is committed before the turn begins, so that of two deliveries only one is worked on.
        let rows = if replica.is_some() {
            let values = [tenant, principal, context, id, digest, task_id, now, runner];
            self.database.change(statements::REMEMBER_AMONG_OTHERS, &values).await?
        } else {
            self.database.change(statements::REMEMBER, &[tenant, principal, context, id, digest, task_id, now]).await?
        };
        remembered(rows.first().ok_or(sqlx::Error::RowNotFound)?, message, task)
    }

    async fn answer(&self, owner: &Owner, message: &MessageKey, answer: &Message) -> Result<(), StoreError> {
        if !is_named(owner, message) {
            return Ok(());
        }
        let json = serde_json::to_string(answer)?;
        let [tenant, principal, context, id, digest] = named(owner, message);
        let replica = self.replica();
        let runner = Value::Text(replica.as_ref().map(Replica::id).unwrap_or_default());
        let values = [tenant, principal, context, id, digest, runner, Value::Text(&json)];
        self.change_again([statements::ANSWER, statements::ANSWER], &values).await?;
        Ok(())
    }

    async fn forget(&self, owner: &Owner, message: &MessageKey) -> Result<(), StoreError> {
        if !is_named(owner, message) {
            return Ok(());
        }
        let [tenant, principal, context, id, digest] = named(owner, message);
        if let Some(replica) = self.replica() {
            let values = [tenant, principal, context, id, digest, Value::Text(replica.id())];
            self.database.change(statements::FORGET_AMONG_OTHERS, &values).await?;
        } else {
            self.database.change(statements::FORGET, &[tenant, principal, context, id, digest]).await?;
        }
        Ok(())
    }

    async fn recover(&self, reason: &str) -> Result<Vec<TaskId>, StoreError> {
        recovery::recover(self, reason).await
    }

    async fn recover_lost(&self, reason: &str) -> Result<Vec<TaskId>, StoreError> {
        let LostTasks { ended, turns } = recovery::take_lost(self, reason, false).await?;
        // Taken while this process still wanted turns. Their agents have not begun, so another process may begin them.
        for lost in turns {
            self.hand_over(&lost.task, lost.epoch, false).await?;
        }
        Ok(ended)
    }

    async fn take_lost(&self, reason: &str) -> Result<LostTasks, StoreError> {
        recovery::take_lost(self, reason, true).await
    }

    async fn hand_over(&self, id: &TaskId, epoch: u64, has_begun: bool) -> Result<bool, StoreError> {
        let Some(replica) = self.replica().filter(|_| is_key(id.as_str())) else { return Ok(false) };
        let not_begun = Value::count(usize::from(!has_begun));
        let values = [Value::Text(id.as_str()), Value::count(epoch), Value::Text(replica.id()), not_begun];
        Ok(!self.database.change(statements::HAND_OVER, &values).await?.is_empty())
    }

    fn replica(&self) -> Option<Replica> {
        self.lease.as_ref().map(|lease| lease.replica())
    }

    fn is_shared(&self) -> bool {
        self.lease.is_some()
    }

    async fn count(&self, tenant: &str) -> Result<u64, StoreError> {
        let rows = self.database.read(statements::COUNT_TASKS, &[Value::Text(tenant)]).await?;
        Ok(rows.first().map(|row| row.int(0)).transpose()?.map_or(0, from_sql))
    }

    fn push_cursors(&self) -> Option<&dyn PushCursors> {
        self.lease.is_some().then_some(self as &dyn PushCursors)
    }

    async fn overdue(
        &self,
        bounds: &WaitingBounds,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<(Owner, TaskId)>, StoreError> {
        let before = Value::Int(bounds.waited_before(Timestamp::now().as_millis()));
        let anonymous = Value::count(bounds.anonymous);
        let per_owner = Value::count(bounds.per_owner);
        let values = [anonymous, per_owner, before, Value::count(limit), Value::count(skip)];
        let rows = self.database.read(statements::SELECT_OVERDUE, &values).await?;
        let overdue = rows.iter().map(|row| {
            let owner = Owner { tenant: row.text(1)?, principal: row.text(2)? };
            Ok((owner, row.text(0)?.into()))
        });
        overdue.collect::<Result<_, sqlx::Error>>().map_err(StoreError::from)
    }

    async fn sweep_tenant(&self, tenant: &str, count: u64) -> Result<u64, StoreError> {
        let retention = Retention { age: Duration::MAX, count };
        retention::sweep_tenant(self.database.as_ref(), tenant, &retention, Timestamp::now().as_millis()).await
    }

    async fn sweep(&self, retention: &Retention) -> Result<u64, StoreError> {
        if let Some(lease) = &self.lease {
            lease.forget_gone().await?;
        }
        with_long_statements(retention::sweep(self.database.as_ref(), retention)).await
    }

    async fn count_running(&self, tenant: &str) -> Result<Option<u64>, StoreError> {
        if self.lease.is_none() {
            return Ok(None);
        }
        let rows = self.database.read(statements::COUNT_RUNNING, &[Value::Text(tenant)]).await?;
        Ok(Some(rows.first().map(|row| row.int(0)).transpose()?.map_or(0, from_sql)))
    }

    async fn has_others(&self) -> Result<bool, StoreError> {
        if self.lease.is_none() {
            return Ok(false);
        }
        let rows = self.database.read(statements::COUNT_LIVING, &[]).await?;
        // One of them is this process.
        Ok(rows.first().map(|row| row.int(0)).transpose()?.is_some_and(|living| living > 1))
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.database.read(statements::PROBE, &[]).await?;
        Ok(())
    }

    async fn close(&self) {
        if let Some(lease) = &self.lease {
            lease.end().await;
        }
        self.database.close().await;
    }
}

impl<D: Database> SqlTaskStore<D> {
    pub(crate) fn on(database: D) -> Self {
        let database = Arc::new(database);
        Self { writer: Writer::new(Arc::clone(&database)), database, lease: None, taken: tokio::sync::Mutex::default() }
    }

    /// The store as one of several processes have it.
    pub(crate) fn among_others(self, lease: Lease) -> Self {
        Self { lease: Some(Arc::new(lease)), ..self }
    }

    /// Stores a change. Where a lease lets this process write, it is tried again as long as that holds.
    async fn store(&self, write: Write, runner: Option<Replica>) -> Result<Place, StoreError> {
        // One that is over stops nothing that is under way, and nothing is tried again for it.
        let Some(runner) = runner.filter(|runner| !runner.is_over()) else { return self.writer.store(write).await };
        let task = write.id().clone();
        self.writer.store_until(write, runner.over()).await.unwrap_or(Err(StoreError::Fenced { task }))
    }

    /// Makes a change by the first statement, and where that has failed by the second one, which takes it for made where it
    /// was.
    async fn change_again(
        &self,
        [first, again]: [&'static str; 2],
        values: &[Value<'_>],
    ) -> Result<Vec<D::Row>, StoreError> {
        let first = self.database.change(first, values).await;
        let Some(replica) = self.replica().filter(|_| first.as_ref().is_err_and(may_pass)) else { return Ok(first?) };
        let changed = outlast(replica.over(), may_pass, || self.database.change(again, values)).await;
        Ok(changed.unwrap_or(first)?)
    }

    /// The lease of this process, which other stores in the same database use too; `None` if no other process shares
    /// the database. [`close`](TaskStore::close) ends the lease.
    #[must_use]
    pub fn lease(&self) -> Option<Arc<Lease>> {
        self.lease.clone()
    }
}

/// Tasks with a number each, as the statements read them that are about many.
fn numbered(tasks: &[(TaskId, u64)]) -> Result<String, StoreError> {
    let tasks: Vec<_> =
        tasks.iter().map(|(id, number)| serde_json::json!({"id": id.as_str(), "number": number})).collect();
    Ok(serde_json::to_string(&tasks)?)
}

/// One statement as a transaction; returns how many rows it changed.
async fn count_changed<D: Database>(database: &D, sql: &'static str, values: &[Value<'_>]) -> sqlx::Result<u64> {
    let mut transaction = database.begin().await?;
    let changed = D::execute(&mut transaction, sql, values).await?;
    D::commit(transaction).await?;
    Ok(changed)
}

/// From the row of a task that goes on with the time of its status.
fn cursor<R: Row>(row: &R) -> Result<TaskCursor, sqlx::Error> {
    Ok(TaskCursor { status_at: row.int(6)?, id: row.text(0)?.into() })
}

/// Stored JSON, which readers are given as it is. Earlier versions have stored what not everybody can read.
fn readable(json: String) -> String {
    portable::repaired(&json).unwrap_or(json)
}

fn stored_event<R: Row>(row: &R) -> Result<StoredEvent, sqlx::Error> {
    let content = EventContent::Json(Kind::of_name(&row.text(1)?), readable(row.text(2)?));
    Ok(StoredEvent { seq: from_sql(row.int(0)?), content })
}

fn stored_config<R: Row>(task: &TaskId, row: &R) -> Result<TaskPushNotificationConfig, StoreError> {
    let json = row.text(0)?;
    serde_json::from_str(&json).map_err(|source| StoreError::Unreadable { task: task.clone(), source })
}
