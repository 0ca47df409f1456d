//! A change of one session: events, state, artifacts, time and revision in one transaction.

use annex_database::{Change, Database, Row, Rows, Step, Value, from_sql};
use annex_protocol::Timestamp;

use super::encoding::{EncodedArtifact, EncodedEvent, encoded_name};
use super::scopes::ScopeChange;
use super::values::{NO_SESSION, named};
use super::writing_turn::WritingTurn;
use super::{queue_statements, statements};
use crate::SessionError;
use crate::event::{Event, combined};
use crate::limits::{Limits, ScopeSize};
use crate::service::{Appended, OfTurn};
use crate::session::SessionKey;
use crate::state::{STORED, Scope, StateDelta};

/// The most keys of a change that is made in one trip.
const FEW_KEYS: usize = 4;
/// The most events, and the most artifacts.
const FEW: usize = 2;
/// The places of the keys and artifacts of an append begin at the expected revision times this, after all earlier
/// places. No append has this many keys.
const PLACES: i64 = 1 << 20;

/// A change that is ready to be stored.
pub(super) struct Write {
    key: SessionKey,
    limits: Limits,
    content: Content,
    /// The turn that appends, if the turn must prove its right to write.
    writer: Option<WritingTurn>,
}

enum Content {
    /// A new session with its initial state.
    Create(StateDelta),
    /// Events after a revision; 0 when there was no session.
    Append { expected: u64, events: Vec<EncodedEvent>, few: Option<FewKeys> },
}

/// The state of few events that touches nothing but few keys of their session.
struct FewKeys {
    delta: StateDelta,
    /// The names in the delta's order, as [`encoded_name`] has them.
    names: Vec<String>,
}

/// A session whose row is locked.
struct Locked {
    id: i64,
    /// 0 for a row that exists only for its queue.
    revision: u64,
    may_write: bool,
}

impl Write {
    pub(super) fn create(key: SessionKey, initial: StateDelta, limits: Limits) -> Self {
        Self { key, limits, content: Content::Create(initial), writer: None }
    }

    pub(super) fn append(
        key: SessionKey,
        expected: u64,
        events: Vec<Event>,
        limits: Limits,
    ) -> Result<Self, SessionError> {
        let events = events.into_iter().map(EncodedEvent::new).collect::<Result<Vec<_>, _>>()?;
        let few = FewKeys::of(&events, &limits);
        Ok(Self { key, limits, content: Content::Append { expected, events, few }, writer: None })
    }

    /// The write, made by a turn with a place in the queue.
    pub(super) fn of_turn(self, turn: OfTurn<'_>) -> Self {
        Self { writer: Some(WritingTurn::of(turn)), ..self }
    }
}

impl Change for Write {
    type Answer = Appended;
    type Error = SessionError;

    /// A few events with few keys.
    fn steps(&self) -> Option<(Vec<Step<'_>>, Appended)> {
        let Content::Append { expected, events, few: Some(few) } = &self.content else { return None };
        let revision = expected.saturating_add(events.len() as u64);
        // Beyond the limit an event more makes an old one go, which these steps do not do.
        if events.is_empty() || revision > self.limits.events as u64 {
            return None;
        }
        let mut steps = match expected {
            0 => self.first_steps(few, events),
            _ => self.next_steps(few, events, *expected)?,
        };
        let rows = events.iter().zip(1..).map(|(event, number)| {
            let seq = expected.saturating_add(number);
            [Value::count(seq), Value::Text(&event.id), event.happened_at(), Value::Text(&event.json)]
        });
        steps.push(self.rows(&statements::INSERT_EVENTS_OF_NAMED, rows));
        Some((steps, Appended { revision, repeated: false }))
    }

    async fn apply<D: Database>(&self, transaction: &mut D::Transaction) -> Result<Appended, SessionError> {
        let found = self.lock::<D>(transaction).await?;
        match &self.content {
            Content::Create(_) if found.as_ref().is_some_and(|found| found.revision > 0) => Err(self.already_exists()),
            Content::Create(initial) => self.store::<D>(transaction, found, (initial, &[])).await,
            Content::Append { expected, events, few: _ } => {
                // Before the revision is looked at: the same call again is a retry, whatever it expects.
                let new = self.new_events::<D>(transaction, found.as_ref(), events).await?;
                let revision = found.as_ref().map_or(0, |found| found.revision);
                if new.is_empty() {
                    return Ok(Appended { revision, repeated: true });
                }
                self.check_place::<D>(transaction, found.as_ref()).await?;
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

    fn failure(error: &SessionError) -> Option<&sqlx::Error> {
        // Refusals come before the first write, so that what else is in the transaction is stored all the same.
        if let SessionError::Database(error) = error { Some(error) } else { None }
    }
}

impl Write {
    /// A new session with its keys and the artifacts of its events.
    fn first_steps<'a>(&'a self, few: &'a FewKeys, events: &'a [EncodedEvent]) -> Vec<Step<'a>> {
        let now = Value::Int(Timestamp::now().as_millis());
        let updated_at = events.last().map_or(now, |event| event.happened_at());
        let revision = Value::count(events.len());
        let mut steps = vec![match &self.writer {
            None => self.rows(&statements::INSERT_NEW_SESSION, [[revision, updated_at, now]]),
            Some(writer) => writer.begin_session([revision, updated_at, now], named(&self.key)),
        }];
        // A statement that inserts no rows is not SQL. The same goes for artifacts.
        if !few.names.is_empty() {
            steps.push(self.rows(&statements::INSERT_KEYS_OF_NAMED, few.rows(0)));
        }
        let artifacts = artifacts(events, 0);
        if !artifacts.is_empty() {
            steps.push(self.rows(&statements::INSERT_ARTIFACTS_OF_NAMED, artifacts));
        }
        steps
    }

    /// The next revision of a session, with the keys and artifacts of its events. Where another writer was first, the
    /// revision is no longer `expected` and the update changes no row. The writer of the database then rolls back and calls
    /// `apply`, which says why; and so it does where something might have to make room.
    fn next_steps<'a>(&'a self, few: &'a FewKeys, events: &'a [EncodedEvent], expected: u64) -> Option<Vec<Step<'a>>> {
        let [tenant, app, user, context] = named(&self.key);
        let now = Value::Int(Timestamp::now().as_millis());
        let updated_at = events.last().map_or(now, EncodedEvent::happened_at);
        let revision = Value::count(expected.saturating_add(events.len() as u64));
        let values = [revision, updated_at, now, tenant, app, user, context, Value::count(expected)];
        let places = i64::try_from(expected).ok()?.checked_mul(PLACES)?;
        let artifacts = artifacts(events, places);
        let values = values.into_iter().chain(self.writer.iter().flat_map(WritingTurn::proof));
        if few.names.is_empty() && artifacts.is_empty() {
            let advance = self.writer.as_ref().map_or(statements::ADVANCE_SESSION, WritingTurn::advance);
            return Some(vec![Step::new(advance, values.collect::<Vec<_>>())]);
        }
        let limits = &self.limits;
        let bounds = [
            limits.state_bytes.checked_sub(few.bytes())?,
            limits.state_keys.checked_sub(few.names.len())?,
            limits.artifact_bytes.checked_sub(size_of_all(events))?,
            limits.artifacts.checked_sub(artifacts.len())?,
        ];
        let values = values.chain(bounds.map(Value::count));
        let advance = self.writer.as_ref().map_or(statements::ADVANCE_SESSION_WITHIN, WritingTurn::advance_within);
        let mut steps = vec![Step::new(advance, values.collect::<Vec<_>>())];
        if !few.names.is_empty() {
            steps.push(self.rows(&statements::PUT_KEYS_OF_NAMED, few.rows(places)));
        }
        if !artifacts.is_empty() {
            steps.push(self.rows(&statements::PUT_ARTIFACTS_OF_NAMED, artifacts));
        }
        Some(steps)
    }

    /// Rows that begin with the names of the session.
    fn rows<'a, const N: usize>(
        &'a self,
        rows: &'static Rows,
        values: impl IntoIterator<Item = [Value<'a>; N]>,
    ) -> Step<'a> {
        let values = values.into_iter().flat_map(|row| named(&self.key).into_iter().chain(row));
        Step::rows(rows, values.collect::<Vec<_>>())
    }

    /// Keeps others off the session until the end of the transaction.
    async fn lock<D: Database>(&self, transaction: &mut D::Transaction) -> Result<Option<Locked>, SessionError> {
        // The row stays locked until the commit: of two processes with the same revision the second one waits here, and
        // then finds it stale.
        let Some(writer) = &self.writer else {
            let rows = D::query(transaction, statements::LOCK_SESSION, &named(&self.key)).await?;
            let locked =
                |row: &D::Row| Ok(Locked { id: row.int(0)?, revision: from_sql(row.int(1)?), may_write: true });
            return rows.first().map(locked).transpose();
        };
        let values: Vec<Value<'_>> = named(&self.key).into_iter().chain(writer.proof()).collect();
        let rows = D::query(transaction, queue_statements::LOCK_SESSION, &values).await?;
        let locked =
            |row: &D::Row| Ok(Locked { id: row.int(0)?, revision: from_sql(row.int(1)?), may_write: row.int(2)? == 1 });
        rows.first().map(locked).transpose()
    }

    /// Refuses a turn that may not write any more.
    async fn check_place<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        found: Option<&Locked>,
    ) -> Result<(), SessionError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let may_write = match found {
            Some(found) => found.may_write,
            // A session that is not there has no queue.
            None => writer.has_lease::<D>(transaction).await?,
        };
        if may_write { Ok(()) } else { Err(SessionError::Fenced { context: self.key.context.clone() }) }
    }

    /// The events that are not stored yet.
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
                // The same bytes: the answer to the first attempt was lost, and this is a retry.
                Some(json) if json == event.json => {}
                Some(_) => return Err(SessionError::EventConflict { id: event.id.clone() }),
            }
        }
        Ok(new)
    }

    /// Stores the change. Every refusal comes before the first write.
    async fn store<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        found: Option<Locked>,
        (delta, events): (&StateDelta, &[&EncodedEvent]),
    ) -> Result<Appended, SessionError> {
        // A session that begins has no keys of its own, and none is found under this id.
        let id = found.as_ref().map_or(NO_SESSION, |found| found.id);
        // All scopes are checked before one is written: a refused change shares its transaction with others.
        let mut changes = Vec::new();
        for scope in STORED.into_iter().filter(|scope| delta.touches(*scope)) {
            let change = ScopeChange::plan::<D>(transaction, (scope, delta), (&self.key, id), &self.limits).await?;
            changes.push(change);
        }
        let before = found.as_ref().map_or(0, |found| found.revision);
        // A session that is created without an event has a revision all the same.
        let revision = before.saturating_add(events.len().max(1) as u64);
        let is_new = found.is_none();
        let id = self.write_session::<D>(transaction, found, (revision, events)).await?;
        if let Some(writer) = &self.writer {
            writer.move_on::<D>(transaction, id, is_new).await?;
        }
        for change in changes {
            change.write::<D>(transaction, &self.key, id).await?;
        }
        for (event, seq) in events.iter().zip(before.saturating_add(1)..) {
            insert_event::<D>(transaction, (id, seq), event).await?;
        }
        for artifact in events.iter().flat_map(|event| &event.artifacts) {
            self.put_artifact::<D>(transaction, id, artifact).await?;
        }
        // Numbers of events are revisions, so the oldest one to stay is known without counting rows.
        let kept = self.limits.events as u64;
        if revision > kept {
            let values = [Value::Int(id), Value::count(revision - kept)];
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
        let revision = Value::count(revision);
        let changed_at = Value::Int(now.as_millis());
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
        // Names and sizes only: the contents may be megabytes.
        let others = D::query(transaction, statements::SELECT_ARTIFACTS, &[Value::Int(id)]).await?;
        // The one that was written last comes first, so that those which do not fit are the oldest.
        let mut count = 1;
        let mut size = artifact.size;
        let mut place = 1;
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
        let name = Value::Text(&artifact.name);
        let parts = Value::Text(&artifact.parts);
        let values = [Value::Int(id), name, parts, Value::count(artifact.size), Value::Int(place)];
        D::execute(transaction, statements::PUT_ARTIFACT, &values).await?;
        Ok(())
    }
}

impl FewKeys {
    /// `None` for a change that is less common, or that the limits refuse.
    fn of(events: &[EncodedEvent], limits: &Limits) -> Option<Self> {
        let delta = combined(events.iter().map(|event| &event.state_delta)).into_owned();
        let artifacts: Vec<&EncodedArtifact> = events.iter().flat_map(|event| &event.artifacts).collect();
        let names: Vec<String> = delta.within(Scope::Session).map(|(name, _)| encoded_name(name)).collect();
        let count = artifacts.len();
        let is_own = !delta.touches(Scope::User) && !delta.touches(Scope::App);
        let removes = delta.iter().any(|(_, value)| limits.removes(value));
        let is_common =
            is_own && !removes && names.len() <= FEW_KEYS && events.len() <= FEW.min(limits.events) && count <= FEW;
        // Two versions of one artifact would be two rows of one key.
        let versions = artifacts
            .iter()
            .zip(1..)
            .any(|(artifact, next)| artifacts.iter().skip(next).any(|other| other.name == artifact.name));
        let all_kept = !versions && count <= limits.artifacts && size_of_all(events) <= limits.artifact_bytes;
        let few = Self { delta, names };
        let size = ScopeSize { bytes: few.bytes(), keys: few.names.len() };
        let is_in_limits = limits.check_scope(Scope::Session, size).is_ok();
        (is_common && all_kept && is_in_limits).then_some(few)
    }

    /// The bytes of names and values.
    fn bytes(&self) -> usize {
        self.delta.within(Scope::Session).map(|(name, value)| name.len() + value.get().len()).sum()
    }

    /// A row for each key, in places behind this one.
    fn rows(&self, place: i64) -> impl Iterator<Item = [Value<'_>; 4]> {
        let keys = self.names.iter().zip(self.delta.within(Scope::Session)).zip(1..);
        keys.map(move |((name, (key, value)), number)| {
            let size = Value::count(key.len() + value.get().len());
            [Value::Text(name), Value::Text(value.get()), size, Value::Int(place.saturating_add(number))]
        })
    }
}

/// A row for each artifact, in places behind this one.
fn artifacts(events: &[EncodedEvent], place: i64) -> Vec<[Value<'_>; 4]> {
    let artifacts = events.iter().flat_map(|event| &event.artifacts);
    let places = place.saturating_add(1)..;
    let rows = artifacts.zip(places).map(|(artifact, place)| {
        [Value::Text(&artifact.name), Value::Text(&artifact.parts), Value::count(artifact.size), Value::Int(place)]
    });
    rows.collect()
}

fn size_of_all(events: &[EncodedEvent]) -> usize {
    events.iter().flat_map(|event| &event.artifacts).map(|artifact| artifact.size).sum()
}

async fn insert_event<D: Database>(
    transaction: &mut D::Transaction,
    (session, seq): (i64, u64),
    event: &EncodedEvent,
) -> Result<(), SessionError> {
    let values =
        [Value::Int(session), Value::count(seq), Value::Text(&event.id), event.happened_at(), Value::Text(&event.json)];
    D::execute(transaction, statements::INSERT_EVENT, &values).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use annex_database::SqliteDatabase;
    use annex_protocol::Part;

    use super::*;
    use crate::event_log::EventFilter;
    use crate::service::SessionService as _;

    /// Tries the common way by itself. Steps that do not fit are made one by one, so no other test would notice them.
    #[tokio::test]
    async fn what_is_common_is_made_by_steps_that_do_as_they_say() {
        let folder = tempfile::tempdir().unwrap();
        let service = crate::SqliteSessionService::open(&folder.path().join("s"), Limits::default()).await.unwrap();
        let delta = StateDelta::parse(r#"{"a":1,"b":2}"#).unwrap();
        let artifacts = BTreeMap::from([("result".to_owned(), vec![Part::text("x")].into())]);
        let user = Event::of_user("t", vec![Part::text("hi")], delta);
        let agent = Event { artifacts, ..Event::new("agent", "t", vec![Part::text("ho")], StateDelta::new()) };
        let silent = || Event::new("agent", "t", Vec::new(), StateDelta::new());
        let cases = [("one", vec![user.clone()]), ("two", vec![user.clone(), agent]), ("three", vec![user, silent()])];
        for (context, events) in cases {
            let key = SessionKey::new("", "agent", "user", context);
            let first = events.len() as u64;
            let knows = StateDelta::parse(r#"{"b":3,"c":4}"#).unwrap();
            let knows = Event::new("agent", "t", vec![Part::text("hm")], knows);
            let append = |expected, events| Write::append(key.clone(), expected, events, Limits::default()).unwrap();
            let writes = [
                (append(0, events), first),
                (append(first, vec![silent()]), first + 1),
                (append(first + 1, vec![knows, silent()]), first + 3),
            ];
            for (write, revision) in writes {
                let (steps, appended) = write.steps().unwrap();
                let (transaction, changed) = service.database.begin_with(&steps).await.unwrap();
                assert_eq!(changed.unwrap(), steps.iter().map(|step| step.changes).collect::<Vec<_>>());
                SqliteDatabase::commit(transaction).await.unwrap();
                assert_eq!(appended.revision, revision);
            }
            let session = service.read(&key, EventFilter::NONE).await.unwrap();
            let keys: Vec<&str> = session.state.session.iter().map(|(name, _)| name).collect();
            assert_eq!(keys, ["a", "b", "c"], "a key that is set again keeps its place");
        }
    }

    #[tokio::test]
    async fn keys_that_might_not_fit_are_counted_before_they_are_stored() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { state_keys: 2, ..Limits::default() };
        let service = crate::SqliteSessionService::open(&folder.path().join("s"), limits).await.unwrap();
        let key = SessionKey::new("", "agent", "user", "c");
        let knows = |json| vec![Event::new("agent", "t", Vec::new(), StateDelta::parse(json).unwrap())];
        service.append(&key, 0, knows(r#"{"a":1,"b":2}"#)).await.unwrap();
        // It fits, because both are there already, and takes the way of what is less common.
        service.append(&key, 1, knows(r#"{"a":3}"#)).await.unwrap();
        let refused = service.append(&key, 2, knows(r#"{"c":3}"#)).await;
        assert!(matches!(refused, Err(SessionError::TooManyStateKeys { keys: 3, limit: 2, .. })), "{refused:?}");
        assert_eq!(service.read(&key, EventFilter::NONE).await.unwrap().revision, 2);
    }
}
