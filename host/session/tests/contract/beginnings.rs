//! Sessions that begin in a turn: the staged event before it is stored, and the reads that a new session saves.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use annex_protocol::Part;
use annex_session::{Appended, Event, EventFilter, Following, Limits, State, TurnSession, Turns, USER_AUTHOR};

use crate::support::{
    Backend, Store, beginning, create, event, event_at, events, find, ids, key, open, refusal, state_of,
};

in_every_turn!(
    what_is_taken_in_is_stored_with_the_next_event,
    what_is_taken_in_can_be_stored_alone,
    what_is_taken_in_stays_when_the_next_event_is_refused,
    what_is_taken_in_and_not_stored_leaves_nothing,
    what_begins_no_session_is_stored_at_once,
    what_is_taken_in_is_stored_by_an_event_that_is_under_way,
    what_is_taken_in_is_stored_once_when_an_append_is_given_up,
    what_is_taken_in_is_not_stored_again_under_its_id,
    what_is_too_much_is_not_taken_in,
    a_session_that_appears_before_it_is_stored_makes_it_stale,
    a_new_session_reads_nothing_and_stores_everything,
    a_session_begins_with_all_that_its_first_events_bring,
);

fn said(id: &str, state_delta: &str) -> Event {
    Event { author: USER_AUTHOR.into(), ..event(id, state_delta) }
}

async fn open_new(service: &Store, path: &str) -> TurnSession {
    let key = key(path);
    let guard = Turns::default().begin(&key).await.unwrap();
    TurnSession::open_new(service, key, guard, beginning(service))
}

async fn what_is_taken_in_is_stored_with_the_next_event(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.append_user(said("one", r#"{"a":1,"temp:t":2}"#), Following::Answer).await.unwrap();
    assert!(find(&service, "s").await.is_none());
    assert!(session.exists() && session.is_unanswered());
    assert_eq!(session.state().to_json_string(), r#"{"a":1,"temp:t":2}"#);
    assert_eq!(ids(&session.history(10).await.unwrap()), ["one"]);
    assert!(session.history(0).await.unwrap().is_empty());
    assert_eq!(session.artifact("a").await.unwrap(), None);

    session.append(event("two", r#"{"a":3}"#)).await.unwrap();
    assert!(!session.is_unanswered());
    assert_eq!(ids(&session.history(10).await.unwrap()), ["one", "two"]);
    let stored = service.read(&key("s"), EventFilter::ALL).await.unwrap();
    assert_eq!((stored.revision, ids(&stored.events)), (2, vec!["one", "two"]));
    assert_eq!(stored.state.merged().to_json_string(), r#"{"a":3}"#);
    assert_eq!(stored.events[0].state_delta.get("a").unwrap().get(), "1");
    session.store().await.unwrap();
    session.append(event("three", "{}")).await.unwrap();
    assert_eq!(ids(&events(&service, "s").await), ["one", "two", "three"]);
}

async fn what_is_taken_in_can_be_stored_alone(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.store().await.unwrap();
    assert!(find(&service, "s").await.is_none());
    session.append_user(said("one", r#"{"a":1}"#), Following::Answer).await.unwrap();
    for _ in 0..2 {
        session.store().await.unwrap();
        assert_eq!(ids(&events(&service, "s").await), ["one"]);
        assert_eq!(ids(&session.history(10).await.unwrap()), ["one"]);
    }
    session.append(event("two", "{}")).await.unwrap();
    assert_eq!(ids(&session.history(10).await.unwrap()), ["one", "two"]);
    assert_eq!(state_of(&service, "s").await, r#"{"a":1}"#);
}

async fn what_is_taken_in_stays_when_the_next_event_is_refused(backend: Backend) {
    let service = backend.within(Limits { state_bytes: 100, ..Limits::default() }).await;
    let session = open(&service, "s").await;
    session.append_user(said("one", r#"{"a":1}"#), Following::Answer).await.unwrap();
    let large = format!(r#"{{"b":"{}"}}"#, "x".repeat(100));
    let refused = refusal(session.append(event("two", &large)).await);
    assert!(refused.contains("the limit is 100"), "{refused}");
    assert!(session.is_unanswered());
    assert_eq!(ids(&events(&service, "s").await), ["one"]);
    session.append(event("three", r#"{"c":3}"#)).await.unwrap();
    assert_eq!(ids(&events(&service, "s").await), ["one", "three"]);
    assert_eq!(state_of(&service, "s").await, r#"{"a":1,"c":3}"#);
}

async fn what_is_taken_in_and_not_stored_leaves_nothing(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.append_user(said("one", r#"{"a":1}"#), Following::Answer).await.unwrap();
    drop(session);
    assert!(find(&service, "s").await.is_none());

    let session = open(&service, "s").await;
    session.append_user(said("one", r#"{"a":1}"#), Following::Answer).await.unwrap();
    session.drop_staged();
    assert!(session.is_stored() && !session.exists() && !session.is_unanswered());
    session.store().await.unwrap();
    assert!(find(&service, "s").await.is_none());
}

async fn what_begins_no_session_is_stored_at_once(backend: Backend) {
    let service = backend.service().await;
    create(&service, "there", "{}").await;
    for (path, delta) in [("there", "{}"), ("user", r#"{"user:a":1}"#), ("app", r#"{"app:a":1}"#)] {
        let session = open(&service, path).await;
        session.append_user(said("one", delta), Following::Answer).await.unwrap();
        assert_eq!(ids(&events(&service, path).await), ["one"], "{path}");
    }
}

/// An agent waits for its event to be stored, and then its turn stores the message.
async fn what_is_taken_in_is_stored_by_an_event_that_is_under_way(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.append_user(said("one", "{}"), Following::Answer).await.unwrap();
    let mut append = pin!(session.append(event("two", "{}")));
    let waits = poll_fn(|context| Poll::Ready(append.as_mut().poll(context).is_pending())).await;
    // A database may have stored it by now, on another thread; then nothing is under way.
    assert!(!waits || !matches!(backend, Backend::Memory));
    if waits {
        let mut locked = pin!(session.lock());
        assert!(poll_fn(|context| Poll::Ready(locked.as_mut().poll(context).is_pending())).await);
        append.await.unwrap();
        locked.await.store().await.unwrap();
    }
    assert!(session.is_stored());
    assert_eq!(ids(&events(&service, "s").await), ["one", "two"]);
    assert_eq!(find(&service, "s").await.unwrap().revision, 2);
}

/// An agent is stopped while it waits for its event to be stored.
async fn what_is_taken_in_is_stored_once_when_an_append_is_given_up(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.append_user(said("one", "{}"), Following::Answer).await.unwrap();
    {
        let mut append = pin!(session.append(event("two", r#"{"a":1}"#)));
        poll_fn(|context| Poll::Ready(append.as_mut().poll(context).is_pending())).await;
    }
    let closed = session.append(event("three", "{}")).await;
    assert!(session.is_stored(), "{closed:?}");
    let events = events(&service, "s").await;
    let stored = ids(&events);
    assert!(closed.is_ok() || stored == ["one", "two"], "{closed:?}: {stored:?}");
    assert!([vec!["one", "two"], vec!["one", "three"], vec!["one", "two", "three"]].contains(&stored), "{stored:?}");
}

async fn what_is_taken_in_is_not_stored_again_under_its_id(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    let first = said("one", "{}");
    session.append_user(first.clone(), Following::Answer).await.unwrap();
    let conflict = "event one is stored already with other content";
    assert_eq!(refusal(session.append(event("one", r#"{"a":1}"#)).await), conflict);
    session.append(first).await.unwrap();
    assert_eq!(ids(&events(&service, "s").await), ["one"]);
}

async fn what_is_too_much_is_not_taken_in(backend: Backend) {
    let limits = Limits { state_bytes: 100, state_keys: 2, state_depth: 3, ..Limits::default() };
    let service = backend.within(limits).await;
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(100));
    let cases = [long.as_str(), r#"{"a":1,"b":2,"c":3}"#, r#"{"a":[[[[1]]]]}"#];
    for (case, delta) in cases.into_iter().enumerate() {
        let path = format!("s{case}");
        let session = open(&service, &path).await;
        let told = refusal(session.append_user(said("one", delta), Following::Answer).await);
        assert_eq!(told, refusal(session.append(said("one", delta)).await));
        assert!(!session.exists() && session.state().is_empty(), "{delta}");
        session.store().await.unwrap();
        assert!(find(&service, &path).await.is_none());
    }
    let session = open(&service, "temp").await;
    session.append_user(said("one", r#"{"temp:a":[[[[1]]]]}"#), Following::Answer).await.unwrap();
    assert_eq!(session.value("temp:a").unwrap().get(), "[[[[1]]]]");
    let session = open(&service, " s ").await;
    let told = refusal(session.append_user(said("one", "{}"), Following::Answer).await);
    assert_eq!(told, r#"context id " s " is empty or has white space around it"#);
}

async fn a_session_that_appears_before_it_is_stored_makes_it_stale(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.append_user(said("one", r#"{"a":1}"#), Following::Answer).await.unwrap();
    create(&service, "s", "{}").await;
    let stale = "stale session: expected revision 0, found 1";
    assert_eq!(refusal(session.append(event("two", "{}")).await), stale);
    assert_eq!(refusal(session.store().await), stale);
    assert!(events(&service, "s").await.is_empty());
    assert_eq!(state_of(&service, "s").await, "{}");
}

async fn a_new_session_reads_nothing_and_stores_everything(backend: Backend) {
    let service = backend.service().await;
    create(&service, "other", r#"{"user:a":1,"app:b":2}"#).await;
    let session = open_new(&service, "s").await;
    assert!(!session.exists() && session.state().is_empty());
    session.append(said("one", r#"{"c":3,"user:d":4}"#)).await.unwrap();
    assert_eq!(session.snapshot().to_json_string(), r#"{"c":3}"#);
    assert_eq!(ids(&session.history(10).await.unwrap()), ["one"]);
    session.append(event("two", "{}")).await.unwrap();
    assert_eq!(ids(&events(&service, "s").await), ["one", "two"]);
    assert_eq!(state_of(&service, "s").await, r#"{"c":3,"app:b":2,"user:a":1,"user:d":4}"#);
}

/// By one step where that is common and by many where not, with the same result.
async fn a_session_begins_with_all_that_its_first_events_bring(backend: Backend) {
    let service = backend.service().await;
    // Events, keys of each, artifacts of each; whether each artifact has the same name.
    let cases =
        [(1, 0, 0, true), (1, 1, 1, true), (2, 2, 1, false), (2, 2, 1, true), (2, 3, 0, true), (3, 1, 2, false)];
    for (case, (count, keys, artifacts, is_one)) in cases.into_iter().enumerate() {
        let path = format!("s{case}");
        let with = |number: usize| {
            let pairs = (0..keys).map(|key| format!(r#""k{number}{key}":"{key}""#)).collect::<Vec<_>>().join(",");
            let name = |index: usize| if is_one { format!("a{index}") } else { format!("a{number}{index}") };
            let artifacts =
                (0..artifacts).map(|index| (name(index), vec![Part::text(format!("x{number}"))].into())).collect();
            Event { artifacts, ..event_at(&format!("e{number}"), 1_000 + number as i64, &format!("{{{pairs}}}")) }
        };
        let all: Vec<Event> = (0..count).map(with).collect();
        let appended = service.append(&key(&path), 0, all.clone()).await.unwrap();
        assert_eq!(appended, Appended { revision: count as u64, repeated: false });
        let stored = service.read(&key(&path), EventFilter::ALL).await.unwrap();
        let times: Vec<i64> = stored.events.iter().map(|event| event.timestamp.as_millis()).collect();
        assert_eq!(times, (0..count as i64).map(|number| 1_000 + number).collect::<Vec<_>>());
        assert_eq!((stored.revision, stored.last_update.as_millis()), (count as u64, 999 + count as i64));
        let deltas = all.iter().flat_map(|event| event.state_delta.iter());
        let state: State = deltas.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        assert_eq!(stored.state.merged().to_json_string(), state.to_json_string());
        for (name, parts) in all.iter().flat_map(|event| &event.artifacts) {
            let found = service.artifact(&key(&path), name).await.unwrap().unwrap();
            let version = if is_one { count as u64 } else { 1 };
            assert_eq!(found.version, version);
            assert_eq!(found.parts == *parts, version == 1 || *parts == [Part::text(format!("x{}", count - 1))]);
        }
        assert!(service.append(&key(&path), 0, all).await.unwrap().repeated);
        let later = service.append(&key(&path), count as u64, vec![event("later", "{}")]).await.unwrap();
        assert_eq!(later.revision, count as u64 + 1);
    }
}
