//! The session service on a SQL database, once for all databases.

mod encoding;
mod retention;
mod scopes;
mod statements;
mod write;

use std::sync::Arc;

use annex_database::{Database, Row, Value, Writer};
use annex_protocol::{ContextId, Json, Timestamp};
use async_trait::async_trait;

use self::encoding::{decode_event, decode_name, encoded_name};
use self::write::Write;
use crate::SessionError;
use crate::event::Event;
use crate::event_log::EventFilter;
use crate::limits::Limits;
use crate::service::{Appended, Retention, SessionQuery, SessionService, StoredArtifact};
use crate::session::{Session, SessionKey};
use crate::session_state::SessionState;
use crate::state::{STORED, State, StateDelta};

/// The id of a session that does not exist.
const NO_SESSION: i64 = -1;

/// Sessions in a SQL database.
#[derive(Debug)]
pub struct SqlSessionService<D> {
    database: Arc<D>,
    writer: Writer<D, Write>,
    limits: Limits,
}

impl<D: Database> SqlSessionService<D> {
    pub(crate) fn on(database: D, limits: Limits) -> Self {
        let database = Arc::new(database);
        Self { writer: Writer::new(Arc::clone(&database)), database, limits }
    }

    pub(crate) fn database(&self) -> &D {
        &self.database
    }

    async fn state(&self, key: &SessionKey, id: i64) -> Result<SessionState, SessionError> {
        let [tenant, app, user, _] = named(key);
        let rows = self.database.read(statements::SELECT_STATE, &[Value::Int(id), tenant, app, user]).await?;
        let mut states: [State; 3] = Default::default();
        for row in &rows {
            let unreadable = |source| SessionError::Unreadable { context: key.context.clone(), source };
            let name = decode_name(&row.text(1)?).map_err(unreadable)?;
            let value = Json::parse(row.text(2)?).map_err(unreadable)?;
            if let Some(state) = states.get_mut(usize::try_from(row.int(0)?).unwrap_or(usize::MAX)) {
                state.insert(name, value);
            }
        }
        let mut state = SessionState::default();
        for (scope, keys) in STORED.into_iter().zip(states) {
            if let Some(kept) = state.of_mut(scope) {
                *kept = Arc::new(keys);
            }
        }
        Ok(state)
    }

    async fn events(&self, key: &SessionKey, id: i64, filter: EventFilter) -> Result<Vec<Arc<Event>>, SessionError> {
        if id == NO_SESSION || filter.num_recent == Some(0) {
            return Ok(Vec::new());
        }
        let after = filter.after_timestamp.map_or(i64::MIN, Timestamp::as_millis);
        let bound =
            |bound: Option<usize>| Value::Int(bound.map_or(i64::MAX, |bound| i64::try_from(bound).unwrap_or(i64::MAX)));
        let values = [Value::Int(id), bound(filter.num_recent), Value::Int(after), bound(filter.max_bytes)];
        let rows = self.database.read(statements::SELECT_EVENTS, &values).await?;
        let unreadable = |source| SessionError::Unreadable { context: key.context.clone(), source };
        rows.iter().map(|row| decode_event(&row.text(0)?).map_err(unreadable)).collect()
    }

    async fn session_of_row(&self, key: SessionKey, row: &D::Row) -> Result<Session, SessionError> {
        let state = self.state(&key, row.int(0)?).await?;
        let last_update = Timestamp::from_millis(row.int(2)?);
        Ok(Session { key, revision: from_sql(row.int(1)?), state, last_update, events: Vec::new() })
    }
}

#[async_trait]
impl<D: Database> SessionService for SqlSessionService<D> {
    async fn create(&self, key: &SessionKey, mut initial: StateDelta) -> Result<Session, SessionError> {
        initial.take_temp();
        key.check()?;
        self.limits.check_delta(&initial)?;
        self.writer.store(Write::create(key.clone(), initial, self.limits)).await?;
        self.read(key, EventFilter::NONE).await
    }

    async fn read(&self, key: &SessionKey, filter: EventFilter) -> Result<Session, SessionError> {
        let key = key.clone();
        if key.check().is_err() {
            // It was never stored, and shares nothing that could be found.
            let (state, last_update) = (SessionState::default(), Timestamp::now());
            return Ok(Session { key, revision: 0, state, last_update, events: Vec::new() });
        }
        // The revision first: a change that comes in between makes whoever appends to what is read here stale.
        let found = self.database.read(statements::SELECT_SESSION, &named(&key)).await?;
        let Some(row) = found.first() else {
            let state = self.state(&key, NO_SESSION).await?;
            return Ok(Session { key, revision: 0, state, last_update: Timestamp::now(), events: Vec::new() });
        };
        let events = self.events(&key, row.int(0)?, filter).await?;
        Ok(Session { events, ..self.session_of_row(key, row).await? })
    }

    async fn exists(&self, key: &SessionKey) -> Result<bool, SessionError> {
        if key.check().is_err() {
            return Ok(false);
        }
        Ok(!self.database.read(statements::SELECT_SESSION, &named(key)).await?.is_empty())
    }

    async fn list(&self, query: &SessionQuery) -> Result<Vec<Session>, SessionError> {
        let after = query.after.as_ref();
        let values = [
            Value::Text(&query.tenant),
            Value::Text(&query.app),
            Value::Int(after.map_or(i64::MIN, |after| after.last_update.as_millis())),
            Value::Text(after.map_or("", |after| &after.user)),
            Value::Text(after.map_or("", |after| after.context.as_str())),
            Value::Int(i64::try_from(query.limit).unwrap_or(i64::MAX)),
            Value::Text(query.user.as_deref().unwrap_or_default()),
        ];
        let (sql, values) = match query.user {
            Some(_) => (statements::SELECT_SESSIONS_OF_USER, values.as_slice()),
            None => (statements::SELECT_SESSIONS, values.get(..6).unwrap_or_default()),
        };
        let mut sessions = Vec::new();
        for row in self.database.read(sql, values).await? {
            let (tenant, app) = (query.tenant.clone(), query.app.clone());
            let key = SessionKey { tenant, app, user: row.text(3)?, context: ContextId::from(row.text(4)?) };
            sessions.push(self.session_of_row(key, &row).await?);
        }
        Ok(sessions)
    }

    async fn delete(&self, key: &SessionKey) -> Result<bool, SessionError> {
        if key.check().is_err() {
            return Ok(false);
        }
        let mut transaction = self.database.begin().await?;
        let deleted = D::execute(&mut transaction, statements::DELETE_SESSION, &named(key)).await?;
        D::commit(transaction).await?;
        Ok(deleted > 0)
    }

    async fn append(
        &self,
        key: &SessionKey,
        expected_revision: u64,
        mut events: Vec<Event>,
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
        self.writer.store(Write::append(key.clone(), expected_revision, events, self.limits)?).await
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
        retention::sweep(self.database.as_ref(), retention).await
    }
}

/// What a session is found by.
fn named(key: &SessionKey) -> [Value<'_>; 4] {
    [Value::Text(&key.tenant), Value::Text(&key.app), Value::Text(&key.user), Value::Text(key.context.as_str())]
}

/// Databases count with a sign; nothing here is so many that it matters.
fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn size_to_sql(size: usize) -> Value<'static> {
    Value::Int(i64::try_from(size).unwrap_or(i64::MAX))
}
