//! Appending and reading events.

use annex_conversation::{ConversationQuery, Event, EventError, Window};
use annex_protocol::{Part, Timestamp};

use crate::support::{
    Backend, add, append_all, create, delta, event, event_at, events, find, ids, key, latest, query, refusal, state_of,
};

on_every_store!(
    several_events_are_stored_in_one_step,
    the_first_event_begins_the_conversation,
    the_latest_events_are_read,
    what_is_read_of_a_conversation_is_bounded_in_bytes,
    an_event_is_read_as_it_was_stored,
    temp_keys_are_stored_neither_in_the_state_nor_in_the_event,
    appending_to_a_deleted_conversation_leaves_the_shared_scopes_alone,
    a_stale_writer_stores_nothing_whatever_its_timestamp,
    a_change_of_shared_state_makes_no_other_conversation_stale,
    events_of_one_time_keep_the_order_of_arrival,
    a_list_has_the_merged_state_and_the_longest_unchanged_first,
    a_list_goes_on_behind_a_conversation,
    the_last_update_is_the_time_of_the_last_event,
);

async fn an_event_is_read_as_it_was_stored(backend: Backend) {
    let store = backend.store().await;
    let error = Some(EventError { code: "FAILED".to_owned(), message: "text with \0 and \u{1f600}".to_owned() });
    let sent = Event { error, ..event("e", r#"{"b":1.0,"a":{"z":[null]}}"#) };
    add(&store, "s", 0, sent.clone()).await.unwrap();
    assert_eq!(*events(&store, "s").await[0], sent);
}

async fn temp_keys_are_stored_neither_in_the_state_nor_in_the_event(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", "{}").await;
    add(&store, "s", 1, event("e", r#"{"a":1,"temp:t":2,"b":3}"#)).await.unwrap();
    assert_eq!(state_of(&store, "s").await, r#"{"a":1,"b":3}"#);
    assert_eq!(events(&store, "s").await[0].state_delta, delta(r#"{"a":1,"b":3}"#));
}

async fn appending_to_a_deleted_conversation_leaves_the_shared_scopes_alone(backend: Backend) {
    let store = backend.store().await;
    create(&store, "ann/gone", "{}").await;
    create(&store, "ann/other", "{}").await;
    store.delete(&key("ann/gone")).await.unwrap();
    let late = add(&store, "ann/gone", 1, event("e", r#"{"user:a":1,"app:a":1}"#)).await;
    assert_eq!(refusal(late), "the conversation or the task is not stored");
    assert_eq!(state_of(&store, "ann/other").await, "{}");
    assert_eq!(find(&store, "ann/gone").await, None);
}

async fn a_stale_writer_stores_nothing_whatever_its_timestamp(backend: Backend) {
    let store = backend.store().await;
    for millis in [1, 1_000, 5_000] {
        let path = format!("s{millis}");
        create(&store, &path, "{}").await;
        add(&store, &path, 1, event_at("first", 1_000, r#"{"a":1}"#)).await.unwrap();
        let late = event_at("second", millis, r#"{"a":2,"user:a":2,"app:a":2}"#);
        let expected = "the writer has seen 1 entries, and 2 are stored";
        assert_eq!(refusal(add(&store, &path, 1, late).await), expected, "{millis}");
        assert_eq!(state_of(&store, &path).await, r#"{"a":1}"#);
        assert_eq!(ids(&events(&store, &path).await), ["first"]);
    }
}

async fn a_change_of_shared_state_makes_no_other_conversation_stale(backend: Backend) {
    let store = backend.store().await;
    create(&store, "ann/one", "{}").await;
    create(&store, "ann/two", "{}").await;
    add(&store, "ann/one", 1, event("e", r#"{"user:a":1}"#)).await.unwrap();
    add(&store, "ann/two", 1, event("e", r#"{"user:b":2}"#)).await.unwrap();
    assert_eq!(state_of(&store, "ann/two").await, r#"{"user:a":1,"user:b":2}"#);
}

async fn events_of_one_time_keep_the_order_of_arrival(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", "{}").await;
    for (index, id) in ["z", "m", "a"].into_iter().enumerate() {
        add(&store, "s", 1 + index as u64, event(id, "{}")).await.unwrap();
    }
    assert_eq!(ids(&events(&store, "s").await), ["z", "m", "a"]);
}

async fn a_list_has_the_merged_state_and_the_longest_unchanged_first(backend: Backend) {
    let store = backend.store().await;
    for (path, millis) in [("ann/new", 3_000), ("ann/old", 1_000), ("bob/middle", 2_000)] {
        create(&store, path, r#"{"app:k":1}"#).await;
        add(&store, path, 1, event_at("e", millis, r#"{"a":1,"user:k":2}"#)).await.unwrap();
    }
    create(&store, "other-agent/ann/x", "{}").await;
    for (user, expected) in [
        (None, ["old", "middle", "new"].as_slice()),
        (Some("ann"), &["old", "new"]),
        (Some("nobody"), &[]),
        (Some(""), &[]),
    ] {
        let sessions = store.list(&query(user)).await.unwrap();
        let contexts: Vec<&str> = sessions.iter().map(|session| session.key.context.as_str()).collect();
        assert_eq!(contexts, expected, "{user:?}");
        for session in sessions {
            assert_eq!(session.state.merged().to_json_string(), r#"{"a":1,"app:k":1,"user:k":2}"#);
            assert!(session.history.is_empty());
        }
    }
}

async fn a_list_goes_on_behind_a_conversation(backend: Backend) {
    let store = backend.store().await;
    for number in 0..7 {
        add(&store, &format!("ann/{number}"), 0, event_at("e", 1_000 + number / 3, "{}")).await.unwrap();
    }
    let mut after = None;
    let mut contexts = Vec::new();
    loop {
        let page = store.list(&ConversationQuery { after, limit: 2, ..query(Some("ann")) }).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = Some(last.cursor());
        contexts.extend(page.into_iter().map(|session| session.key.context.to_string()));
    }
    assert_eq!(contexts, ["0", "1", "2", "3", "4", "5", "6"]);
}

async fn the_last_update_is_the_time_of_the_last_event(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", "{}").await;
    add(&store, "s", 1, event_at("e", 5, "{}")).await.unwrap();
    assert_eq!(find(&store, "s").await.unwrap().updated_at, Timestamp::from_millis(5));
}

async fn several_events_are_stored_in_one_step(backend: Backend) {
    let store = backend.store().await;
    let both = vec![event("one", r#"{"a":1,"b":1}"#), event("two", r#"{"a":2}"#)];
    assert_eq!(append_all(&store, &key("s"), 0, both).await.unwrap(), 2);
    assert_eq!(ids(&events(&store, "s").await), ["one", "two"]);
    assert_eq!(state_of(&store, "s").await, r#"{"a":2,"b":1}"#);
    let refused =
        vec![event("three", r#"{"c":1}"#), event("four", &format!(r#"{{"d":{}1{}}}"#, "[".repeat(39), "]".repeat(39)))];
    assert!(append_all(&store, &key("s"), 2, refused).await.is_err());
    assert_eq!(ids(&events(&store, "s").await), ["one", "two"]);
    assert_eq!(state_of(&store, "s").await, r#"{"a":2,"b":1}"#);
}

async fn the_first_event_begins_the_conversation(backend: Backend) {
    let store = backend.store().await;
    assert_eq!(add(&store, "s", 0, event("e", r#"{"a":1}"#)).await.unwrap(), 1);
    assert!(find(&store, "s").await.is_some());
    let late = add(&store, "s", 0, event("f", "{}")).await;
    assert_eq!(refusal(late), "the writer has seen 0 entries, and 1 are stored");
}

async fn the_latest_events_are_read(backend: Backend) {
    let store = backend.store().await;
    for (number, id) in (0..).zip(["a", "b", "c", "d"]) {
        add(&store, "s", number, event(id, r#"{"n":1}"#)).await.unwrap();
    }
    for (count, expected) in [(0, [].as_slice()), (2, &["c", "d"]), (99, &["a", "b", "c", "d"])] {
        assert_eq!(ids(&latest(&store, &key("s"), Window::latest(count)).await), expected);
        let found = store.conversation(&key("s"), Window::latest(count)).await.unwrap();
        assert_eq!(found.state.merged().to_json_string(), r#"{"n":1}"#, "the state is complete");
    }
}

async fn what_is_read_of_a_conversation_is_bounded_in_bytes(backend: Backend) {
    let store = backend.store().await;
    for number in 0..5_u64 {
        let parts = vec![Part::text("x".repeat(1_000))].into();
        let long = Event { parts, ..event(&format!("e{number}"), "{}") };
        add(&store, "s", number, long).await.unwrap();
    }
    let read = async |bytes| latest(&store, &key("s"), Window { bytes, ..Window::ALL }).await;
    let latest = read(3_500).await;
    assert_eq!(ids(&latest).last().copied(), Some("e4"), "the latest ones");
    assert!((2..=3).contains(&latest.len()));
    assert!(read(10).await.is_empty());
}
