//! The view that a running turn has of its conversation.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use annex_conversation::{Arrival, Entry, Event, StateDelta};
use annex_protocol::{Json, Message, Part};

use crate::support::{
    Backend, Says, add, arrive, create, event, events, find, ids, open, open_with, state_of, submission,
};

on_every_store!(
    a_turn_refuses_a_bad_context_id,
    the_next_turn_runs_when_the_last_entry_is_stored_and_sees_everything,
    a_history_that_was_read_with_the_conversation_has_what_the_turn_has_added,
    a_turn_knows_whether_the_user_has_an_answer,
    a_turn_that_answers_with_a_message_leaves_no_task,
    what_is_staged_is_shown_at_once_and_stored_with_the_end,
    a_kept_event_can_be_amended_until_the_turn_ends,
    opening_creates_nothing_and_the_first_append_does,
    temp_keys_live_as_long_as_the_turn,
    a_value_is_found_in_its_own_scope_only,
    a_client_may_be_shown_the_keys_of_the_conversation_only,
    a_history_is_the_latest_events,
    a_turn_goes_on_after_appends_whose_callers_have_gone,
);

async fn what_is_staged_is_shown_at_once_and_stored_with_the_end(backend: Backend) {
    let store = backend.store().await;
    let turn = open(&store, "s").await;
    turn.say(event("first", "{}")).await.unwrap();
    turn.stage(event("last", r#"{"a":1}"#)).await.unwrap();
    assert_eq!(turn.value("a").unwrap().get(), "1");
    assert_eq!(ids(&events(&store, "s").await), ["first"]);
    turn.close().await;
    assert_eq!(ids(&events(&store, "s").await), ["first", "last"]);
    assert_eq!(state_of(&store, "s").await, r#"{"a":1}"#);
}

async fn a_kept_event_can_be_amended_until_the_turn_ends(backend: Backend) {
    let store = backend.store().await;
    let turn = open(&store, "s").await;
    turn.keep_staged().await;
    let parts = vec![Part::text("card 4111")];
    let delta = StateDelta::parse(r#"{"said":"card 4111","other":"card"}"#).unwrap();
    let artifacts =
        BTreeMap::from([("answer".to_owned(), parts.clone().into()), ("log".to_owned(), Vec::new().into())]);
    turn.stage(Event { artifacts, ..Event::new("agent", "t", parts, delta) }).await.unwrap();
    turn.stage(event("later", r#"{"other":"new"}"#)).await.unwrap();
    turn.say(event("first", "{}")).await.unwrap();
    assert_eq!(ids(&events(&store, "s").await), ["first"]);

    let hidden = |staged: &Event| {
        (!staged.parts.is_empty() && *staged.author == *"agent").then(|| vec![Part::text("card (hidden)")].into())
    };
    turn.amend_staged(hidden).await;
    assert_eq!(turn.value("said").unwrap().get(), r#""card (hidden)""#);
    assert_eq!(turn.value("other").unwrap().get(), r#""new""#);
    turn.close().await;
    let stored = events(&store, "s").await;
    assert!(stored.iter().any(|event| event.parts == [Part::text("card (hidden)")]), "{stored:?}");
    assert_eq!(state_of(&store, "s").await, r#"{"said":"card (hidden)","other":"new"}"#);
    let artifact = open(&store, "s").await.artifact("answer").await.unwrap().unwrap();
    assert_eq!(artifact, [Part::text("card (hidden)")]);
}

async fn opening_creates_nothing_and_the_first_append_does(backend: Backend) {
    let store = backend.store().await;
    create(&store, "ann/other", r#"{"user:a":1}"#).await;
    let session = open(&store, "ann/new").await;
    assert!(!session.exists());
    assert!(session.history(100).await.unwrap().is_empty());
    assert_eq!(session.state().to_json_string(), r#"{"user:a":1}"#);
    assert!(find(&store, "ann/new").await.is_none());

    session.say(event("e", r#"{"b":2}"#)).await.unwrap();
    assert!(session.exists());
    assert_eq!(find(&store, "ann/new").await.unwrap().number, 1);
    assert_eq!(ids(&session.history(100).await.unwrap()), ["e"]);
}

async fn temp_keys_live_as_long_as_the_turn(backend: Backend) {
    let store = backend.store().await;
    let session = open(&store, "s").await;
    session.say(event("one", r#"{"a":1,"temp:t":2}"#)).await.unwrap();
    assert_eq!(session.state().to_json_string(), r#"{"a":1,"temp:t":2}"#);
    assert_eq!(session.clone().value("temp:t").unwrap().get(), "2");
    assert_eq!(state_of(&store, "s").await, r#"{"a":1}"#);
    session.close().await;

    let session = open(&store, "s").await;
    assert_eq!(session.value("temp:t"), None);
}

async fn a_value_is_found_in_its_own_scope_only(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", r#"{"a":1,"user:b":2,"app:c":3}"#).await;
    let session = open(&store, "s").await;
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

async fn a_client_may_be_shown_the_keys_of_the_conversation_only(backend: Backend) {
    let store = backend.store().await;
    let session = open(&store, "s").await;
    session.say(event("e", r#"{"a":1,"user:b":2,"app:c":3,"temp:d":4}"#)).await.unwrap();
    assert_eq!(session.own_state().to_json_string(), r#"{"a":1}"#);
    assert_eq!(session.state().to_json_string(), r#"{"a":1,"app:c":3,"user:b":2,"temp:d":4}"#);
}

async fn a_history_is_the_latest_events(backend: Backend) {
    let session = open(&backend.store().await, "s").await;
    for id in ["a", "b", "c"] {
        session.say(event(id, "{}")).await.unwrap();
    }
    assert_eq!(ids(&session.history(2).await.unwrap()), ["b", "c"]);
    assert_eq!(ids(&session.history(usize::MAX).await.unwrap()), ["a", "b", "c"]);
}

async fn a_turn_refuses_a_bad_context_id(backend: Backend) {
    let store = backend.store().await;
    let refused = arrive(&store, " s ", submission("one", "t-1")).await.map(drop).unwrap_err();
    assert_eq!(refused.to_string(), r#"context id " s " is empty or has white space around it"#);
}

async fn the_next_turn_runs_when_the_last_entry_is_stored_and_sees_everything(backend: Backend) {
    let store = backend.store().await;
    let first = open(&store, "s").await;
    let clone = first.clone();
    let Arrival::Waits(next) = arrive(&store, "s", submission("one", "t-2")).await.unwrap() else {
        panic!("another turn runs")
    };
    let next = tokio::spawn(async move {
        let next = next.runs().await.unwrap();
        next.say(event("second", "{}")).await.unwrap();
        next.history(100).await.unwrap().len()
    });
    drop(first);
    tokio::task::yield_now().await;
    assert!(!next.is_finished());
    clone.say(event("first", "{}")).await.unwrap();
    clone.close().await;
    assert_eq!(next.await.unwrap(), 2);
}

async fn a_history_that_was_read_with_the_conversation_has_what_the_turn_has_added(backend: Backend) {
    let store = backend.store().await;
    for asked in [1, 3, 5, 9] {
        let path = format!("s{asked}");
        for (number, id) in (0..).zip(["a", "b", "c"]) {
            add(&store, &path, number, event(id, r#"{"k":1}"#)).await.unwrap();
        }
        let turn = open_with(&store, &path, asked).await;
        let artifacts = [("file".to_owned(), Vec::new().into())].into();
        turn.say(Event { artifacts, ..event("d", "{}") }).await.unwrap();
        let at_hand = turn.history(asked).await.unwrap();
        assert_eq!(at_hand.last().unwrap().id, "d");
        assert_eq!(at_hand, turn.history(asked).await.unwrap(), "as it is read");
        assert_eq!(turn.history(100).await.unwrap().len(), 4);
    }
}

async fn a_turn_knows_whether_the_user_has_an_answer(backend: Backend) {
    let store = backend.store().await;
    let turn = open(&store, "s").await;
    assert!(!turn.is_unanswered());
    let hello = Entry::said_by_user(Message::user_text("Hello"), "t", StateDelta::new(), None);
    turn.append(vec![hello]).await.unwrap();
    assert!(turn.is_unanswered());
    turn.say(event("answer", "{}")).await.unwrap();
    assert!(!turn.is_unanswered());
}

async fn a_turn_that_answers_with_a_message_leaves_no_task(backend: Backend) {
    let store = backend.store().await;
    let turn = open(&store, "s").await;
    let id = turn.task().await.id().clone();
    turn.say(event("asked", "{}")).await.unwrap();
    assert!(store.task(&id).await.unwrap().is_some());
    let answer = Message::agent("s".into(), None, vec![Part::text("hello")]);
    turn.answer(vec![event("answered", "{}").into()], &answer).await.unwrap();
    assert!(store.task(&id).await.unwrap().is_none());
    assert_eq!(ids(&open(&store, "s").await.history(9).await.unwrap()), ["asked", "answered"]);
}

/// A database stores an append that it has begun, also when nobody waits for the answer.
async fn a_turn_goes_on_after_appends_whose_callers_have_gone(backend: Backend) {
    let store = backend.store().await;
    let turn = open(&store, "s").await;
    let mut kept = Vec::new();
    for polls in 1..5 {
        let dropped = event(&format!("dropped-{polls}"), &format!(r#"{{"dropped-{polls}":1}}"#));
        for_polls(turn.say(dropped), polls).await;
        kept.push(format!("kept-{polls}"));
        turn.say(event(&kept[polls - 1], "{}")).await.unwrap();
    }
    let (known, stored) = (turn.history(100).await.unwrap(), events(&store, "s").await);
    assert_eq!(ids(&known), ids(&stored));
    assert_eq!(turn.own_state().to_json_string(), state_of(&store, "s").await);
    assert_eq!(ids(&stored).into_iter().filter(|id| id.starts_with("kept")).collect::<Vec<_>>(), kept);
    turn.close().await;
}

/// Drops a future that is not ready after so many polls.
async fn for_polls<F: Future>(work: F, polls: usize) {
    let mut work = pin!(work);
    let mut polled = 0;
    poll_fn(|context| {
        polled += 1;
        match work.as_mut().poll(context) {
            Poll::Pending if polled < polls => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
    tokio::task::yield_now().await;
}
