//! The session service on a SQL database, once for all databases.

mod encoding;
mod queue;
mod queue_statements;
mod retention;
mod scopes;
mod statements;
mod values;
mod write;
mod writing_turn;

use std::sync::Arc;

use annex_database::{Database, Row, Value, Writer, from_sql, with_long_statements};
use annex_protocol::{ContextId, Json, Timestamp};
use async_trait::async_trait;
use tokio::sync::Notify;

use self::encoding::{decode_event, decode_name, encoded_name};
use self::queue::{OwnReplica, Queue};
use self::values::named;
use self::write::Write;
use crate::SessionError;
use crate::event::Event;
use crate::event_log::EventFilter;
use crate::limits::{Limits, check_key};
use crate::place::{Joined, TurnPlace};
use crate::service::{Appended, Holdings, OfTurn, Retention, SessionQuery, SessionService, StoredArtifact};
use crate::session::{Session, SessionKey};
use crate::session_state::SessionState;
use crate::state::{Scope, State, StateDelta};

/// Sessions in a SQL database.
#[derive(Debug)]
pub struct SqlSessionService<D> {
    database: Arc<D>,
    writer: Writer<D, Write>,
    limits: Limits,
    /// The queues of turns; `None` where this process has the sessions for itself.
    queue: Option<Queue<D>>,
}

impl<D: Database> SqlSessionService<D> {
    pub(crate) fn on(database: D, limits: Limits) -> Self {
        let database = Arc::new(database);
        Self { writer: Writer::new(Arc::clone(&database)), database, limits, queue: None }
    }

    pub(crate) fn in_queues_as(self, replica: OwnReplica) -> Self {
        Self { queue: Some(Queue::new(Arc::clone(&self.database), replica)), ..self }
    }

    async fn store(
        &self,
        key: &SessionKey,
        expected_revision: u64,
        mut events: Vec<Event>,
        turn: Option<OfTurn<'_>>,
    ) -> Result<Appended, SessionError> {
        events.retain(|event| !event.partial);
        if events.is_empty() {
            return Ok(Appended { revision: expected_revision, repeated: false });
        }
        key.check()?;
        for event in &mut events {
            event.state_delta.take_temp();
            self.limits.check_event(event)?;
        }
        let write = Write::append(key.clone(), expected_revision, events, self.limits)?;
        let Some(turn) = turn else { return self.writer.store(write).await };
        // The first append of a session takes the turn into its queue. If it fails nobody knows.
        turn.place.set_in(true);
        let write = write.of_turn(turn);
        let replica = turn.place.replica();
        let appended = if replica.is_over() {
            self.writer.store(write).await?
        } else {
            let fenced = Err(SessionError::Fenced { context: key.context.clone() });
            self.writer.store_until(write, replica.over()).await.unwrap_or(fenced)?
        };
        // One that was stored before may not have been the last one then.
        if turn.is_last && !appended.repeated {
            turn.place.leave_with_last();
        }
        Ok(appended)
    }
}

#[async_trait]
impl<D: Database> SessionService for SqlSessionService<D> {
    async fn create(&self, key: &SessionKey, mut initial: StateDelta) -> Result<Session, SessionError> {
        initial.take_temp();
        key.check()?;
        // Checked before the writer gets it: what is refused here costs nobody a place in a transaction.
        self.limits.check_delta(&initial)?;
        self.writer.store(Write::create(key.clone(), initial, self.limits)).await?;
        self.read(key, EventFilter::NONE).await
    }

    async fn read(&self, key: &SessionKey, filter: EventFilter) -> Result<Session, SessionError> {
        read(self.database.as_ref(), key, filter).await
    }

    async fn exists(&self, key: &SessionKey) -> Result<bool, SessionError> {
        if key.check().is_err() {
            return Ok(false);
        }
        Ok(!self.database.read(statements::SELECT_REVISION, &named(key)).await?.is_empty())
    }

    async fn list(&self, query: &SessionQuery) -> Result<Vec<Session>, SessionError> {
        let after = query.after.as_ref();
        let values = [
            Value::Text(&query.tenant),
            Value::Text(&query.app),
            Value::Int(after.map_or(i64::MIN, |after| after.last_update.as_millis())),
            Value::Text(after.map_or("", |after| &after.user)),
            Value::Text(after.map_or("", |after| after.context.as_str())),
            Value::count(query.limit),
            // The last one, because only the statement for one user has a parameter for it.
            Value::Text(query.user.as_deref().unwrap_or_default()),
        ];
        let (sql, values) = match query.user {
            Some(_) => (statements::SELECT_SESSIONS_OF_USER, values.as_slice()),
            None => (statements::SELECT_SESSIONS, values.get(..6).unwrap_or_default()),
        };
        let mut sessions = Vec::new();
        for row in self.database.read(sql, values).await? {
            let key = SessionKey::new(query.tenant.as_str(), query.app.as_str(), row.text(0)?, row.text(1)?);
            // Revision and time are those of the list, whose order is by the time. Both may have changed since.
            let revision = from_sql(row.int(2)?);
            let last_update = Timestamp::from_millis(row.int(3)?);
            sessions.push(Session { revision, last_update, ..self.read(&key, EventFilter::NONE).await? });
        }
        Ok(sessions)
    }

    async fn users_in(
        &self,
        tenant: &str,
        app: &str,
        context: &ContextId,
        limit: usize,
    ) -> Result<Vec<String>, SessionError> {
        let values = [Value::Text(tenant), Value::Text(app), Value::Text(context.as_str()), Value::count(limit)];
        let rows = self.database.read(statements::SELECT_USERS_IN, &values).await?;
        rows.iter().map(|row| Ok(row.text(0)?)).collect()
    }

    async fn delete(&self, key: &SessionKey) -> Result<bool, SessionError> {
        if key.check().is_err() {
            return Ok(false);
        }
        let mut transaction = self.database.begin().await?;
        // Events, artifacts and the session's own keys go with the row (`ON DELETE CASCADE`). `user:` keys belong to no
        // session.
        let deleted = D::execute(&mut transaction, statements::DELETE_SESSION, &named(key)).await?;
        if deleted > 0 {
            retention::forget_anonymous::<D>(&mut transaction, key).await?;
        }
        D::commit(transaction).await?;
        Ok(deleted > 0)
    }

    async fn delete_key(&self, owner: &SessionKey, full_key: &str) -> Result<bool, SessionError> {
        let (scope, name) = Scope::of(full_key);
        let name = encoded_name(name);
        // What cannot be stored is not there, and a database would not even take it.
        if owner.check_of(scope).is_err() || check_key("state key", &name).is_err() {
            return Ok(false);
        }
        let mut transaction = self.database.begin().await?;
        let is_deleted = scopes::delete_key::<D>(&mut transaction, (scope, &name), owner).await?;
        D::commit(transaction).await?;
        Ok(is_deleted)
    }

    async fn delete_user_state(&self, owner: &SessionKey) -> Result<u64, SessionError> {
        if owner.check_of(Scope::User).is_err() {
            return Ok(0);
        }
        let [tenant, app, user, _] = named(owner);
        let mut transaction = self.database.begin().await?;
        let deleted = D::execute(&mut transaction, statements::DELETE_KEYS_OF_USER, &[tenant, app, user]).await?;
        D::commit(transaction).await?;
        Ok(deleted)
    }

    async fn append(
        &self,
        key: &SessionKey,
        expected_revision: u64,
        events: Vec<Event>,
    ) -> Result<Appended, SessionError> {
        self.store(key, expected_revision, events, None).await
    }

    fn place(&self) -> Option<TurnPlace> {
        self.queue.as_ref().map(Queue::place)
    }

    async fn line_up(&self, key: &SessionKey, place: &TurnPlace) -> Result<(), SessionError> {
        match &self.queue {
            Some(queue) if key.check().is_ok() => queue.line_up(key, place).await,
            _ => Ok(()),
        }
    }

    async fn join(&self, key: &SessionKey, place: &TurnPlace, filter: EventFilter) -> Result<Joined, SessionError> {
        match &self.queue {
            // Such a key is never stored, and no other turn comes to it.
            Some(queue) if key.check().is_ok() => queue.join(key, place, filter).await,
            _ => Ok(Joined::Runs(Box::new(self.read(key, filter).await?))),
        }
    }

    async fn wait(&self, key: &SessionKey, place: &TurnPlace, hint: &Notify) -> Result<(), SessionError> {
        match &self.queue {
            Some(queue) => queue.wait(key, place, hint).await,
            None => Ok(()),
        }
    }

    async fn append_in_turn(
        &self,
        key: &SessionKey,
        expected_revision: u64,
        events: Vec<Event>,
        turn: OfTurn<'_>,
    ) -> Result<Appended, SessionError> {
        let Some(queue) = &self.queue else { return self.append(key, expected_revision, events).await };
        match self.store(key, expected_revision, events.clone(), Some(turn)).await {
            Err(SessionError::Fenced { .. }) if queue.goes_in_front(key, turn.place, expected_revision).await => {
                self.store(key, expected_revision, events, Some(turn)).await
            }
            appended => appended,
        }
    }

    async fn leave(&self, key: &SessionKey, place: &TurnPlace) {
        if let Some(queue) = &self.queue {
            queue.leave(key, place).await;
        }
    }

    async fn artifact(&self, key: &SessionKey, name: &str) -> Result<Option<StoredArtifact>, SessionError> {
        if key.check().is_err() {
            return Ok(None);
        }
        let name = encoded_name(name);
        let [tenant, app, user, context] = named(key);
        let values = [tenant, app, user, context, Value::Text(&name)];
        let rows = self.database.read(statements::SELECT_ARTIFACT, &values).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let unreadable = |source| SessionError::Unreadable { context: key.context.clone(), source };
        let parts = serde_json::from_str(&row.text(1)?).map_err(unreadable)?;
        Ok(Some(StoredArtifact { version: from_sql(row.int(0)?), parts }))
    }

    async fn sweep(&self, retention: &Retention) -> Result<u64, SessionError> {
        if let Some(queue) = &self.queue {
            queue.sweep().await?;
        }
        with_long_statements(retention::sweep(self.database.as_ref(), retention)).await
    }

    async fn holdings(&self, tenant: &str) -> Result<Holdings, SessionError> {
        let rows = self.database.read(statements::COUNT_HOLDINGS, &[Value::Text(tenant)]).await?;
        let Some(row) = rows.first() else { return Ok(Holdings::default()) };
        Ok(Holdings { sessions: from_sql(row.int(0)?), state_bytes: from_sql(row.int(1)?) })
    }

    async fn probe(&self) -> Result<(), SessionError> {
        self.database.read(statements::PROBE, &[]).await?;
        Ok(())
    }

    async fn close(&self) {
        self.database.close().await;
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }
}

async fn read<D: Database>(database: &D, key: &SessionKey, filter: EventFilter) -> Result<Session, SessionError> {
    let key = key.clone();
    if key.check().is_err() {
        // It was never stored, and shares nothing that could be found.
        let state = SessionState::default();
        let last_update = Timestamp::now();
        return Ok(Session { key, revision: 0, state, last_update, events: Vec::new() });
    }
    let select = match filter.max_bytes {
        Some(_) => statements::SELECT_SESSION_WITHIN,
        None => statements::SELECT_SESSION,
    };
    // One statement, so that keys and events are those of one moment.
    let rows = database.read(select, &session_values(&key, filter)).await?;
    session(key, &rows)
}

/// The parameters of [`statements::SELECT_SESSION`].
fn session_values(key: &SessionKey, filter: EventFilter) -> Vec<Value<'_>> {
    let after = Value::Int(filter.after_timestamp.map_or(i64::MIN, Timestamp::as_millis));
    let mut values = named(key).to_vec();
    values.extend([Value::count(filter.num_recent.unwrap_or(usize::MAX)), after]);
    values.extend(filter.max_bytes.map(Value::count));
    values
}

/// Builds a session from the rows of [`statements::SELECT_SESSION`].
fn session<R: Row>(key: SessionKey, rows: &[R]) -> Result<Session, SessionError> {
    let context = key.context.clone();
    let unreadable = |source| SessionError::Unreadable { context: context.clone(), source };
    let mut revision = 0;
    let mut last_update = None;
    let mut places: [Vec<(i64, String, Json)>; 3] = Default::default();
    let mut events = Vec::new();
    for row in rows {
        match row.int(0)? {
            statements::SESSION_ROW => {
                (revision, last_update) = (from_sql(row.int(3)?), Some(Timestamp::from_millis(row.int(4)?)));
            }
            statements::JOINED_ROW => {}
            statements::EVENT_ROW => events.push((row.int(3)?, decode_event(&row.text(2)?).map_err(unreadable)?)),
            scope => {
                let name = decode_name(&row.text(1)?).map_err(unreadable)?;
                // Not `Json::parse`, which refuses what earlier versions have stored and not everybody can read.
                let value = serde_json::from_str::<Json>(&row.text(2)?).map_err(unreadable)?;
                if let Some(keys) = places.get_mut(usize::try_from(scope).unwrap_or(usize::MAX)) {
                    keys.push((row.int(3)?, name, value));
                }
            }
        }
    }
    // The rows of a `UNION ALL` have no order.
    events.sort_unstable_by_key(|(seq, _)| *seq);
    let events = events.into_iter().map(|(_, event)| event).collect();
    let [session, user, app] = places.map(|mut keys| {
        // As they were set. Two writers of a shared scope may have given the same place to two names.
        keys.sort_unstable_by(|(place, name, _), other| (place, name).cmp(&(&other.0, &other.1)));
        keys.into_iter().map(|(_, name, value)| (name, value)).collect::<State>()
    });
    let state = SessionState { session, user, app };
    Ok(Session { key, revision, state, last_update: last_update.unwrap_or_else(Timestamp::now), events })
}
