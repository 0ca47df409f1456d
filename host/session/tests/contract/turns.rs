//! The view that a running turn has of its session.

use annex_protocol::{Json, Parts};
use annex_session::{Beginning, Event, Following, TurnSession, Turns, USER_AUTHOR};

use crate::support::{
    Backend, add, beginning, create, delta, event, event_at, events, find, ids, key, open, refusal, state_of,
};

in_every_turn!(
    opening_creates_nothing_and_the_first_append_does,
    temp_keys_live_as_long_as_the_turn,
    a_value_is_found_in_its_own_scope_only,
    a_snapshot_has_session_keys_only,
    a_partial_event_changes_nothing_in_a_turn,
    a_turn_follows_its_own_revision_and_notices_others,
    an_event_that_a_turn_sends_again_leaves_later_ones_alone,
    a_turn_whose_session_is_deleted_does_not_bring_it_back,
    a_session_that_appears_during_a_turn_makes_it_stale,
    a_turn_refuses_a_bad_context_id_when_it_would_store_it,
    the_next_turn_starts_when_the_last_clone_is_gone_and_sees_everything,
    a_history_is_the_latest_events,
    a_history_that_was_read_with_the_session_has_what_the_turn_has_added,
    a_turn_that_was_broken_off_is_answered_by_an_error_before_the_next,
    a_task_that_goes_on_was_not_broken_off,
    a_message_that_was_stored_by_a_process_that_is_gone_is_not_stored_twice,
    a_message_that_others_have_followed_is_said_again_and_changes_the_state_once,
);

fn said(id: &str, invocation: &str) -> Event {
    Event { author: USER_AUTHOR.into(), invocation_id: invocation.into(), ..event(id, "{}") }
}

async fn opening_creates_nothing_and_the_first_append_does(backend: Backend) {
    let service = backend.service().await;
    create(&service, "ann/other", r#"{"user:a":1}"#).await;
    let session = open(&service, "ann/new").await;
    assert!(!session.exists());
    assert!(session.history(100).await.unwrap().is_empty());
    assert_eq!(session.state().to_json_string(), r#"{"user:a":1}"#);
    assert!(find(&service, "ann/new").await.is_none());

    session.append(event("e", r#"{"b":2}"#)).await.unwrap();
    assert!(session.exists());
    assert_eq!(find(&service, "ann/new").await.unwrap().revision, 1);
    assert_eq!(ids(&session.history(100).await.unwrap()), ["e"]);
}

async fn temp_keys_live_as_long_as_the_turn(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.append(event("one", r#"{"a":1,"temp:t":2}"#)).await.unwrap();
    assert_eq!(session.state().to_json_string(), r#"{"a":1,"temp:t":2}"#);
    assert_eq!(session.clone().value("temp:t").unwrap().get(), "2");
    assert_eq!(state_of(&service, "s").await, r#"{"a":1}"#);
    drop(session);

    let session = open(&service, "s").await;
    assert_eq!(session.value("temp:t"), None);
}

async fn a_value_is_found_in_its_own_scope_only(backend: Backend) {
    let service = backend.service().await;
    create(&service, "s", r#"{"a":1,"user:b":2,"app:c":3}"#).await;
    let session = open(&service, "s").await;
    let cases = [
        ("a", Some("1")),
        ("user:b", Some("2")),
        ("app:c", Some("3")),
        ("user:a", None),
        ("b", None),
        ("app:b", None),
        ("temp:a", None),
    ];
    for (full_key, expected) in cases {
        assert_eq!(session.value(full_key).as_ref().map(Json::get), expected, "{full_key}");
    }
}

async fn a_snapshot_has_session_keys_only(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.append(event("e", r#"{"a":1,"user:b":2,"app:c":3,"temp:d":4}"#)).await.unwrap();
    assert_eq!(session.snapshot().to_json_string(), r#"{"a":1}"#);
    assert_eq!(session.state().to_json_string(), r#"{"a":1,"app:c":3,"user:b":2,"temp:d":4}"#);
}

async fn a_partial_event_changes_nothing_in_a_turn(backend: Backend) {
    let session = open(&backend.service().await, "s").await;
    session.append(Event { partial: true, ..event("e", r#"{"a":1,"temp:t":1}"#) }).await.unwrap();
    assert!(!session.exists());
    assert!(session.state().is_empty());
}

async fn a_turn_follows_its_own_revision_and_notices_others(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.append(event("one", "{}")).await.unwrap();
    session.append(event("two", "{}")).await.unwrap();
    add(&service, "s", 2, event("from outside", "{}")).await.unwrap();
    let late = session.append(event("three", r#"{"a":1,"temp:a":1}"#)).await;
    assert_eq!(refusal(late), "stale session: expected revision 2, found 3");
    assert!(session.state().is_empty());
}

async fn an_event_that_a_turn_sends_again_leaves_later_ones_alone(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.append(event("one", r#"{"a":1}"#)).await.unwrap();
    session.append(event("two", r#"{"a":2}"#)).await.unwrap();
    session.append(event("one", r#"{"a":1}"#)).await.unwrap();
    assert_eq!(session.snapshot().to_json_string(), r#"{"a":2}"#);
    session.append(event("three", r#"{"b":3}"#)).await.unwrap();
    assert_eq!(ids(&events(&service, "s").await), ["one", "two", "three"]);
}

async fn a_turn_whose_session_is_deleted_does_not_bring_it_back(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    session.append(event("one", "{}")).await.unwrap();
    service.delete(&key("s")).await.unwrap();
    for id in ["two", "three"] {
        assert_eq!(refusal(session.append(event(id, "{}")).await), "session s not found");
        assert!(!session.exists());
    }
    assert!(find(&service, "s").await.is_none());
}

async fn a_session_that_appears_during_a_turn_makes_it_stale(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "s").await;
    create(&service, "s", "{}").await;
    let late = session.append(event("e", "{}")).await;
    assert_eq!(refusal(late), "stale session: expected revision 0, found 1");
}

async fn a_turn_refuses_a_bad_context_id_when_it_would_store_it(backend: Backend) {
    let session = open(&backend.service().await, " s ").await;
    let refused = refusal(session.append(event("e", "{}")).await);
    assert_eq!(refused, r#"context id " s " is empty or has white space around it"#);
}

async fn the_next_turn_starts_when_the_last_clone_is_gone_and_sees_everything(backend: Backend) {
    let service = backend.service().await;
    let turns = Turns::default();
    let key = key("s");
    let first = TurnSession::open(&service, key.clone(), &turns, beginning(&service)).await.unwrap();
    let clone = first.clone();
    let next = tokio::spawn({
        let service = service.clone();
        let turns = turns.clone();
        let key = key.clone();
        async move {
            let session = TurnSession::open(&service, key, &turns, beginning(&service)).await.unwrap();
            session.append(event("second", "{}")).await.unwrap();
            session.history(100).await.unwrap().len()
        }
    });
    drop(first);
    tokio::task::yield_now().await;
    assert!(!next.is_finished());
    clone.append(event("first", "{}")).await.unwrap();
    drop(clone);
    assert_eq!(next.await.unwrap(), 2);
}

async fn a_history_is_the_latest_events(backend: Backend) {
    let session = open(&backend.service().await, "s").await;
    for id in ["a", "b", "c"] {
        session.append(event(id, "{}")).await.unwrap();
    }
    assert_eq!(ids(&session.history(2).await.unwrap()), ["b", "c"]);
    assert_eq!(ids(&session.history(usize::MAX).await.unwrap()), ["a", "b", "c"]);
}

async fn a_history_that_was_read_with_the_session_has_what_the_turn_has_added(backend: Backend) {
    let service = backend.service().await;
    for asked in [1, 3, 5, 9] {
        let path = format!("s{asked}");
        for (number, id) in (0..).zip(["a", "b", "c"]) {
            add(&service, &path, number, event(id, r#"{"k":1}"#)).await.unwrap();
        }
        add(&service, &path, 3, said("d", "broken off")).await.unwrap();
        let beginning = Beginning { place: service.place(), history: asked };
        let turn = TurnSession::open(&service, key(&path), &Turns::default(), beginning).await.unwrap();
        let artifacts = [("file".to_owned(), Vec::new().into())].into();
        turn.append(Event { artifacts, ..said("e", "turn") }).await.unwrap();
        let at_hand = turn.history(asked).await.unwrap();
        assert_eq!(at_hand.last().unwrap().id, "e");
        assert_eq!(at_hand, turn.history(asked).await.unwrap(), "as it is read");
        assert_eq!(turn.history(100).await.unwrap().len(), 6, "what was broken off has its event");
    }
}

async fn a_turn_that_was_broken_off_is_answered_by_an_error_before_the_next(backend: Backend) {
    let service = backend.service().await;
    let session = open(&service, "guide/ann/s").await;
    session.append(said("one", "first")).await.unwrap();
    assert!(session.is_unanswered());
    drop(session);

    let session = open(&service, "guide/ann/s").await;
    session.append(said("two", "second")).await.unwrap();
    session.append(event("three", "{}")).await.unwrap();
    assert!(!session.is_unanswered());
    drop(session);
    open(&service, "guide/ann/s").await.append(said("four", "third")).await.unwrap();

    let events = events(&service, "guide/ann/s").await;
    let authors: Vec<&str> = events.iter().map(|event| &*event.author).collect();
    assert_eq!(authors, ["user", "guide", "user", "agent", "user"]);
    assert_eq!((&*events[1].invocation_id, &events[1].parts), ("first", &Parts::default()));
    assert_eq!(events[1].error.as_ref().unwrap().code, "BROKEN_OFF");
}

async fn a_task_that_goes_on_was_not_broken_off(backend: Backend) {
    let service = backend.service().await;
    open(&service, "s").await.append(said("one", "task")).await.unwrap();
    open(&service, "s").await.append(said("two", "task")).await.unwrap();
    assert_eq!(ids(&events(&service, "s").await), ["one", "two"]);
}

/// The event that another process creates from a repeated message: the same event at a later time, with a delta that
/// the extensions computed from the current state.
fn again(id: &str, invocation: &str, state_delta: &str) -> Event {
    let sent = event_at(id, 2_000, state_delta);
    Event { author: USER_AUTHOR.into(), invocation_id: invocation.into(), ..sent }
}

async fn a_message_that_was_stored_by_a_process_that_is_gone_is_not_stored_twice(backend: Backend) {
    let service = backend.service().await;
    let begun = Event { state_delta: delta(r#"{"count":1}"#), ..said("one", "task") };
    open(&service, "s").await.append_user(begun, Following::Effects).await.unwrap();

    let session = open(&service, "s").await;
    let sent = again("one", "task", r#"{"count":2,"temp:t":3}"#);
    session.append_user(sent, Following::Effects).await.unwrap();
    assert!(session.is_unanswered(), "the turn has yet to answer it");
    assert_eq!(session.state().to_json_string(), r#"{"count":1,"temp:t":3}"#);
    session.append_last(event("answer", "{}")).await.unwrap();
    drop(session);
    assert_eq!(ids(&events(&service, "s").await), ["one", "answer"]);
    assert_eq!(state_of(&service, "s").await, r#"{"count":1}"#);
}

async fn a_message_that_others_have_followed_is_said_again_and_changes_the_state_once(backend: Backend) {
    let service = backend.service().await;
    let begun = Event { state_delta: delta(r#"{"count":1}"#), ..said("one", "task") };
    open(&service, "s").await.append_user(begun, Following::Effects).await.unwrap();
    let session = open(&service, "s").await;
    session.append_user(said("two", "other"), Following::Effects).await.unwrap();
    session.append_last(event("answer", r#"{"count":5}"#)).await.unwrap();
    drop(session);

    let session = open(&service, "s").await;
    let sent = again("one", "task", r#"{"count":6,"temp:t":3}"#);
    session.append_user(sent, Following::Effects).await.unwrap();
    assert_eq!(session.state().to_json_string(), r#"{"count":5,"temp:t":3}"#);
    drop(session);
    let events = events(&service, "s").await;
    let turns: Vec<&str> = events.iter().map(|event| &*event.invocation_id).collect();
    assert_eq!(turns, ["task", "task", "other", "turn", "task"]);
    assert_eq!(events[1].error.as_ref().unwrap().code, "BROKEN_OFF");
    assert_eq!(events[4].parts, events[0].parts);
    assert_eq!(state_of(&service, "s").await, r#"{"count":5}"#);
}
