//! Short ways to say what the tests are about.

use std::sync::Arc;

use annex_protocol::{Part, Timestamp};
use annex_session::{Bounds, Event, InMemorySessionService, Session, SessionKey, StateDelta, TurnSession, Turns};

pub(crate) fn service() -> Arc<InMemorySessionService> {
    service_within(Bounds::default())
}

pub(crate) fn service_within(bounds: Bounds) -> Arc<InMemorySessionService> {
    Arc::new(InMemorySessionService::new(bounds))
}

/// A key from `tenant/app/user/context`, read from the right: what is missing on the left is `-`.
pub(crate) fn key(path: &str) -> SessionKey {
    let mut names = path.rsplit('/').chain(std::iter::repeat("-"));
    let mut next = || names.next().unwrap().to_owned();
    let (context, user, app, tenant) = (next(), next(), next(), next());
    SessionKey { tenant, app, user, context: context.into() }
}

pub(crate) fn delta(json: &str) -> StateDelta {
    StateDelta::parse(json).unwrap()
}

pub(crate) fn event(id: &str, state_delta: &str) -> Event {
    event_at(id, 1_000, state_delta)
}

pub(crate) fn event_at(id: &str, millis: i64, state_delta: &str) -> Event {
    let parts = vec![Part::text(format!("text of {id}"))];
    let timestamp = Timestamp::from_millis(millis);
    Event { id: id.to_owned(), timestamp, ..Event::new("agent", "turn", parts, delta(state_delta)) }
}

/// The merged state that a session of this key reads, as JSON.
pub(crate) fn state_of(service: &InMemorySessionService, path: &str) -> String {
    service.get(&key(path)).expect("the session exists").state.to_json_string()
}

pub(crate) fn ids(events: &[Arc<Event>]) -> Vec<&str> {
    events.iter().map(|event| event.id.as_str()).collect()
}

pub(crate) fn create(service: &InMemorySessionService, path: &str, initial: &str) -> Session {
    service.create(&key(path), delta(initial)).unwrap()
}

pub(crate) async fn open(service: &Arc<InMemorySessionService>, path: &str) -> TurnSession {
    let key = key(path);
    let guard = Turns::default().begin(&key).await.unwrap();
    service.open(key, guard)
}
