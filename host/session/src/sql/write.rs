//! A change of one session: events, state, artifacts, time and revision in one transaction.

use annex_database::{Change, Database, Row, Step, Value};
use annex_protocol::Timestamp;

use super::encoding::{EncodedArtifact, EncodedEvent, encoded_name};
use super::scopes::ScopeChange;
use super::{NO_SESSION, from_sql, named, size_to_sql, statements, to_sql};
use crate::SessionError;
use crate::event::{Event, combined};
use crate::limits::Limits;
use crate::service::Appended;
use crate::session::SessionKey;
use crate::state::{STORED, Scope, StateDelta};

/// The most keys of a session that begins in one trip.
const FEW: usize = 4;

/// A change that is ready to be stored.
pub(super) struct Write {
    key: SessionKey,
    limits: Limits,
    content: Content,
}

enum Content {
    /// A new session with its initial state.
    Create(StateDelta),
    /// Events after a revision; 0 when there was no session. Then `keys` are the names of the session's own keys that the
    /// first event sets, in its order, as [`encoded_name`] has them.
    Append { expected: u64, events: Vec<EncodedEvent>, keys: Vec<String> },
}

/// A session whose row is locked.
struct Locked {
    id: i64,
    revision: u64,
}

impl Write {
    pub(super) fn create(key: SessionKey, initial: StateDelta, limits: Limits) -> Self {
        Self { key, limits, content: Content::Create(initial) }
    }

    pub(super) fn append(
        key: SessionKey,
        expected: u64,
        events: Vec<Event>,
        limits: Limits,
    ) -> Result<Self, SessionError> {
        let events = events.into_iter().map(EncodedEvent::new).collect::<Result<Vec<_>, _>>()?;
        let first = events.first().filter(|_| expected == 0);
        let own = first.into_iter().flat_map(|event| event.state_delta.within(Scope::Session));
        let keys = own.map(|(name, _)| encoded_name(name)).collect();
        Ok(Self { key, limits, content: Content::Append { expected, events, keys } })
    }
}

impl Change for Write {
    type Answer = Appended;
    type Error = SessionError;

    /// One event that sets nothing, or that begins a session and sets a few of its keys.
    fn steps(&self) -> Option<(Vec<Step<'_>>, Appended)> {
        let Content::Append { expected, events, keys } = &self.content else { return None };
        let [event] = events.as_slice() else { return None };
        let revision = expected.saturating_add(1);
        if !event.artifacts.is_empty() || revision > self.limits.events as u64 {
            return None;
        }
        let seq = Value::Int(to_sql(revision));
        let mut steps = match expected {
            0 => self.first_steps(event, keys)?,
            _ if event.state_delta.is_empty() => {
                let now = Value::Int(Timestamp::now().as_millis());
                let values = [seq, event.happened_at(), now, Value::Int(to_sql(*expected))];
                vec![self.step(statements::ADVANCE_SESSION, values)]
            }
            _ => return None,
        };
        let values = [seq, Value::Text(&event.id), event.happened_at(), Value::Text(&event.json)];
        steps.push(self.step(statements::INSERT_EVENT_OF_NAMED, values));
        Some((steps, Appended { revision, repeated: false }))
    }

    async fn apply<D: Database>(&self, transaction: &mut D::Transaction) -> Result<Appended, SessionError> {
        let found = self.lock::<D>(transaction).await?;
        match &self.content {
            Content::Create(_) if found.is_some() => Err(self.already_exists()),
            Content::Create(initial) => self.store::<D>(transaction, None, (initial, &[])).await,
            Content::Append { expected, events, keys: _ } => {
                let new = self.new_events::<D>(transaction, found.as_ref(), events).await?;
                let revision = found.as_ref().map_or(0, |found| found.revision);
                if new.is_empty() {
                    return Ok(Appended { revision, repeated: true });
                }
                match (*expected, revision) {
                    (0, 0) => {}
                    (_, 0) => return Err(self.key.not_found()),
                    (expected, found) if expected != found => return Err(SessionError::Stale { expected, found }),
                    _ => {}
                }
                let delta = combined(new.iter().map(|event| &event.state_delta));
                self.store::<D>(transaction, found, (&delta, &new)).await
            }
        }
    }

    fn is_refusal(error: &SessionError) -> bool {
        !matches!(error, SessionError::Database(_))
    }
}

impl Write {
    /// A new session with the few keys that its first event sets.
    fn first_steps<'a>(&'a self, event: &'a EncodedEvent, keys: &'a [String]) -> Option<Vec<Step<'a>>> {
        let delta = &event.state_delta;
        if keys.len() > FEW || delta.touches(Scope::User) || delta.touches(Scope::App) {
            return None;
        }
        let now = Value::Int(Timestamp::now().as_millis());
        let mut steps = vec![self.step(statements::INSERT_SESSION, [Value::Int(1), event.happened_at(), now])];
        let mut bytes = 0;
        for ((name, (key, value)), place) in keys.iter().zip(delta.within(Scope::Session)).zip(1..) {
            let size = key.len() + value.get().len();
            bytes += size;
            let values = [Value::Text(name), Value::Text(value.get()), size_to_sql(size), Value::Int(place)];
            steps.push(self.step(statements::INSERT_KEY_OF_NAMED, values));
        }
        self.limits.check_scope(Scope::Session, bytes, keys.len()).is_ok().then_some(steps)
    }

    /// A statement that begins with what the session is found by.
    fn step<'a>(&'a self, sql: &'static str, values: impl IntoIterator<Item = Value<'a>>) -> Step<'a> {
        Step::new(sql, named(&self.key).into_iter().chain(values).collect::<Vec<_>>())
    }

    /// Keeps others off the session until the end of the transaction.
    async fn lock<D: Database>(&self, transaction: &mut D::Transaction) -> Result<Option<Locked>, SessionError> {
        let rows = D::query(transaction, statements::LOCK_SESSION, &named(&self.key)).await?;
        let locked = |row: &D::Row| Ok(Locked { id: row.int(0)?, revision: from_sql(row.int(1)?) });
        rows.first().map(locked).transpose()
    }

    /// Those that are not stored.
    async fn new_events<'a, D: Database>(
        &self,
        transaction: &mut D::Transaction,
        found: Option<&Locked>,
        events: &'a [EncodedEvent],
    ) -> Result<Vec<&'a EncodedEvent>, SessionError> {
        let Some(Locked { id, .. }) = found else { return Ok(events.iter().collect()) };
        let mut new = Vec::with_capacity(events.len());
        for event in events {
            let values = [Value::Int(*id), Value::Text(&event.id)];
            let stored = D::query(transaction, statements::SELECT_EVENT, &values).await?;
            match stored.first().map(|row| row.text(0)).transpose()? {
                None => new.push(event),
                Some(json) if json == event.json => {}
                Some(_) => return Err(SessionError::EventConflict { id: event.id.clone() }),
            }
        }
        Ok(new)
    }

    /// Whatever refuses does so before anything is changed.
    async fn store<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        found: Option<Locked>,
        (delta, events): (&StateDelta, &[&EncodedEvent]),
    ) -> Result<Appended, SessionError> {
        let id = found.as_ref().map_or(NO_SESSION, |found| found.id);
        let mut changes = Vec::new();
        for scope in STORED.into_iter().filter(|scope| delta.touches(*scope)) {
            let change = ScopeChange::plan::<D>(transaction, (scope, delta), (&self.key, id), &self.limits).await?;
            changes.push(change);
        }
        let before = found.as_ref().map_or(0, |found| found.revision);
        // A session that is created without an event has a revision all the same.
        let revision = before.saturating_add(events.len().max(1) as u64);
        let id = self.write_session::<D>(transaction, found, (revision, events)).await?;
        for change in changes {
            change.write::<D>(transaction, &self.key, id).await?;
        }
        for (event, seq) in events.iter().zip(before.saturating_add(1)..) {
            insert_event::<D>(transaction, (id, seq), event).await?;
        }
        for artifact in events.iter().flat_map(|event| &event.artifacts) {
            self.put_artifact::<D>(transaction, id, artifact).await?;
        }
        let kept = self.limits.events as u64;
        if revision > kept {
            let values = [Value::Int(id), Value::Int(to_sql(revision - kept))];
            D::execute(transaction, statements::DELETE_EVENTS, &values).await?;
        }
        Ok(Appended { revision, repeated: false })
    }

    /// The id of the session, which is created if it was not found.
    async fn write_session<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        found: Option<Locked>,
        (revision, events): (u64, &[&EncodedEvent]),
    ) -> Result<i64, SessionError> {
        let now = Timestamp::now();
        let updated_at = Value::Int(events.last().map_or(now, |event| event.timestamp).as_millis());
        let (revision, changed_at) = (Value::Int(to_sql(revision)), Value::Int(now.as_millis()));
        if let Some(Locked { id, .. }) = found {
            let values = [Value::Int(id), revision, updated_at, changed_at];
            D::execute(transaction, statements::UPDATE_SESSION, &values).await?;
            return Ok(id);
        }
        let [tenant, app, user, context] = named(&self.key);
        let values = [tenant, app, user, context, revision, updated_at, changed_at];
        let rows = D::query(transaction, statements::INSERT_SESSION, &values).await?;
        // Somebody else has created it since.
        let id = rows.first().ok_or_else(|| self.already_exists())?.int(0)?;
        Ok(id)
    }

    fn already_exists(&self) -> SessionError {
        match self.content {
            Content::Create(_) => SessionError::AlreadyExists { context: self.key.context.clone() },
            Content::Append { expected, .. } => SessionError::Stale { expected, found: 1 },
        }
    }

    /// Writes a new version, for which the oldest make room.
    async fn put_artifact<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        id: i64,
        artifact: &EncodedArtifact,
    ) -> Result<(), SessionError> {
        let others = D::query(transaction, statements::SELECT_ARTIFACTS, &[Value::Int(id)]).await?;
        let (mut count, mut size, mut place) = (1, artifact.size, 1);
        for row in &others {
            let name = row.text(0)?;
            place = place.max(row.int(2)?.saturating_add(1));
            if name == artifact.name {
                continue;
            }
            count += 1;
            size += usize::try_from(row.int(1)?).unwrap_or_default();
            if count > self.limits.artifacts.max(1) || size > self.limits.artifact_bytes {
                D::execute(transaction, statements::DELETE_ARTIFACT, &[Value::Int(id), Value::Text(&name)]).await?;
            }
        }
        let (name, parts) = (Value::Text(&artifact.name), Value::Text(&artifact.parts));
        let values = [Value::Int(id), name, parts, size_to_sql(artifact.size), Value::Int(place)];
        D::execute(transaction, statements::PUT_ARTIFACT, &values).await?;
        Ok(())
    }
}

async fn insert_event<D: Database>(
    transaction: &mut D::Transaction,
    (session, seq): (i64, u64),
    event: &EncodedEvent,
) -> Result<(), SessionError> {
    let values = [
        Value::Int(session),
        Value::Int(to_sql(seq)),
        Value::Text(&event.id),
        event.happened_at(),
        Value::Text(&event.json),
    ];
    D::execute(transaction, statements::INSERT_EVENT, &values).await?;
    Ok(())
}
