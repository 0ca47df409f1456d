//! Appending and reading events.

use annex_protocol::{Part, Timestamp};
use annex_session::{Appended, Event, EventError, EventFilter, SessionQuery};

use crate::support::{Backend, add, create, delta, event, event_at, events, find, ids, key, query, refusal, state_of};

on_every_store!(
    an_event_is_read_as_it_was_stored,
    several_events_are_stored_in_one_step,
    the_first_append_creates_the_session,
    temp_keys_are_stored_neither_in_the_state_nor_in_the_event,
    a_partial_event_changes_nothing,
    appending_to_a_deleted_session_leaves_the_shared_scopes_alone,
    the_same_event_again_is_a_retry,
    another_event_under_the_same_id_is_refused,
    a_stale_writer_stores_nothing_whatever_its_timestamp,
    a_change_of_shared_state_makes_no_other_session_stale,
    filters_choose_the_most_recent_and_then_by_time,
    events_of_one_time_keep_the_order_of_arrival,
    a_list_has_the_merged_state_and_the_longest_unchanged_first,
    a_list_goes_on_behind_a_session,
    the_last_update_is_the_time_of_the_last_event,
    what_is_read_of_a_conversation_is_bounded_in_bytes,
);

async fn an_event_is_read_as_it_was_stored(backend: Backend) {
    let service = backend.service().await;
    let error = Some(EventError { code: "FAILED".to_owned(), message: "text with \0 and \u{1f600}".to_owned() });
    let sent = Event { error, ..event("e", r#"{"b":1.0,"a":{"z":[null]}}"#) };
    add(&service, "s", 0, sent.clone()).await.unwrap();
    assert_eq!(*events(&service, "s").await[0], sent);
}

async fn several_events_are_stored_in_one_step(backend: Backend) {
    let service = backend.service().await;
    let both = vec![event("one", r#"{"a":1,"b":1}"#), event("two", r#"{"a":2}"#)];
    let appended = service.append(&key("s"), 0, both.clone()).await.unwrap();
    assert_eq!(appended, Appended { revision: 2, repeated: false });
    assert_eq!(ids(&events(&service, "s").await), ["one", "two"]);
    assert_eq!(state_of(&service, "s").await, r#"{"a":2,"b":1}"#);

    let again = service.append(&key("s"), 0, both).await.unwrap();
    assert_eq!(again, Appended { revision: 2, repeated: true });
    let conflict = vec![event("three", r#"{"c":1}"#), event("two", "{}")];
    assert_eq!(refusal(service.append(&key("s"), 2, conflict).await), "event two is stored already with other content");
    assert_eq!(ids(&events(&service, "s").await), ["one", "two"]);
    assert_eq!(state_of(&service, "s").await, r#"{"a":2,"b":1}"#);
}

async fn the_first_append_creates_the_session(backend: Backend) {
    let service = backend.service().await;
    let appended = add(&service, "s", 0, event("e", r#"{"a":1}"#)).await.unwrap();
    assert_eq!(appended, Appended { revision: 1, repeated: false });
    assert!(service.exists(&key("s")).await.unwrap());
    let late = add(&service, "s", 0, event("f", "{}")).await;
    assert_eq!(refusal(late), "stale session: expected revision 0, found 1");
}

async fn temp_keys_are_stored_neither_in_the_state_nor_in_the_event(backend: Backend) {
    let service = backend.service().await;
    create(&service, "s", "{}").await;
    add(&service, "s", 1, event("e", r#"{"a":1,"temp:t":2,"b":3}"#)).await.unwrap();
    assert_eq!(state_of(&service, "s").await, r#"{"a":1,"b":3}"#);
    assert_eq!(events(&service, "s").await[0].state_delta, delta(r#"{"a":1,"b":3}"#));
}

async fn a_partial_event_changes_nothing(backend: Backend) {
    let service = backend.service().await;
    let before = create(&service, "s", "{}").await;
    let partial = Event { partial: true, ..event("e", r#"{"a":1,"user:a":1}"#) };
    assert_eq!(add(&service, "s", 1, partial).await.unwrap(), Appended { revision: 1, repeated: false });
    assert_eq!(find(&service, "s").await, Some(before));
    assert!(events(&service, "s").await.is_empty());
}

async fn appending_to_a_deleted_session_leaves_the_shared_scopes_alone(backend: Backend) {
    let service = backend.service().await;
    create(&service, "ann/gone", "{}").await;
    create(&service, "ann/other", "{}").await;
    service.delete(&key("ann/gone")).await.unwrap();
    let late = add(&service, "ann/gone", 1, event("e", r#"{"user:a":1,"app:a":1}"#)).await;
    assert_eq!(refusal(late), "session gone not found");
    assert_eq!(state_of(&service, "ann/other").await, "{}");
    assert_eq!(find(&service, "ann/gone").await, None);
}

async fn the_same_event_again_is_a_retry(backend: Backend) {
    let service = backend.service().await;
    create(&service, "s", "{}").await;
    let sent = event("e", r#"{"a":1,"temp:t":1}"#);
    add(&service, "s", 1, sent.clone()).await.unwrap();
    add(&service, "s", 2, event("f", r#"{"a":2}"#)).await.unwrap();
    for expected in [1, 2, 3] {
        let again = add(&service, "s", expected, sent.clone()).await.unwrap();
        assert_eq!(again, Appended { revision: 3, repeated: true }, "{expected}");
    }
    assert_eq!(ids(&events(&service, "s").await), ["e", "f"]);
    assert_eq!(state_of(&service, "s").await, r#"{"a":2}"#);
}

async fn another_event_under_the_same_id_is_refused(backend: Backend) {
    let service = backend.service().await;
    create(&service, "s", "{}").await;
    add(&service, "s", 1, event("e", r#"{"a":1}"#)).await.unwrap();
    let other = add(&service, "s", 2, event("e", r#"{"a":2}"#)).await;
    assert_eq!(refusal(other), "event e is stored already with other content");
    assert_eq!(state_of(&service, "s").await, r#"{"a":1}"#);
    create(&service, "t", "{}").await;
    assert!(add(&service, "t", 1, event("e", "{}")).await.is_ok(), "ids are unique within a session");
}

async fn a_stale_writer_stores_nothing_whatever_its_timestamp(backend: Backend) {
    let service = backend.service().await;
    for millis in [1, 1_000, 5_000] {
        let path = format!("s{millis}");
        create(&service, &path, "{}").await;
        add(&service, &path, 1, event_at("first", 1_000, r#"{"a":1}"#)).await.unwrap();
        let late = event_at("second", millis, r#"{"a":2,"user:a":2,"app:a":2}"#);
        let expected = "stale session: expected revision 1, found 2";
        assert_eq!(refusal(add(&service, &path, 1, late).await), expected, "{millis}");
        assert_eq!(state_of(&service, &path).await, r#"{"a":1}"#);
        assert_eq!(ids(&events(&service, &path).await), ["first"]);
    }
}

async fn a_change_of_shared_state_makes_no_other_session_stale(backend: Backend) {
    let service = backend.service().await;
    create(&service, "ann/one", "{}").await;
    create(&service, "ann/two", "{}").await;
    add(&service, "ann/one", 1, event("e", r#"{"user:a":1}"#)).await.unwrap();
    add(&service, "ann/two", 1, event("e", r#"{"user:b":2}"#)).await.unwrap();
    assert_eq!(state_of(&service, "ann/two").await, r#"{"user:a":1,"user:b":2}"#);
}

async fn filters_choose_the_most_recent_and_then_by_time(backend: Backend) {
    let service = backend.service().await;
    create(&service, "s", "{}").await;
    for (index, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let millis = 1_000 + 10 * index as i64;
        add(&service, "s", 1 + index as u64, event_at(id, millis, r#"{"n":1}"#)).await.unwrap();
    }
    let cases: [(Option<usize>, Option<i64>, &[&str]); 9] = [
        (None, None, &["a", "b", "c", "d"]),
        (Some(0), None, &[]),
        (Some(2), None, &["c", "d"]),
        (Some(99), None, &["a", "b", "c", "d"]),
        (None, Some(1_010), &["b", "c", "d"]),
        (None, Some(1_011), &["c", "d"]),
        (None, Some(0), &["a", "b", "c", "d"]),
        (Some(2), Some(1_010), &["c", "d"]),
        (Some(2), Some(1_030), &["d"]),
    ];
    for (num_recent, after, expected) in cases {
        let filter = EventFilter { num_recent, after_timestamp: after.map(Timestamp::from_millis), max_bytes: None };
        let session = service.get(&key("s"), filter).await.unwrap().unwrap();
        assert_eq!(ids(&session.events), expected, "{filter:?}");
        assert_eq!(session.state.merged().to_json_string(), r#"{"n":1}"#);
    }
}

async fn events_of_one_time_keep_the_order_of_arrival(backend: Backend) {
    let service = backend.service().await;
    create(&service, "s", "{}").await;
    for (index, id) in ["z", "m", "a"].into_iter().enumerate() {
        add(&service, "s", 1 + index as u64, event(id, "{}")).await.unwrap();
    }
    assert_eq!(ids(&events(&service, "s").await), ["z", "m", "a"]);
}

async fn a_list_has_the_merged_state_and_the_longest_unchanged_first(backend: Backend) {
    let service = backend.service().await;
    for (path, millis) in [("ann/new", 3_000), ("ann/old", 1_000), ("bob/middle", 2_000)] {
        create(&service, path, r#"{"app:k":1}"#).await;
        add(&service, path, 1, event_at("e", millis, r#"{"a":1,"user:k":2}"#)).await.unwrap();
    }
    create(&service, "other-agent/ann/x", "{}").await;
    for (user, expected) in [
        (None, ["old", "middle", "new"].as_slice()),
        (Some("ann"), &["old", "new"]),
        (Some("nobody"), &[]),
        (Some(""), &[]),
    ] {
        let sessions = service.list(&query(user)).await.unwrap();
        let contexts: Vec<&str> = sessions.iter().map(|session| session.key.context.as_str()).collect();
        assert_eq!(contexts, expected, "{user:?}");
        for session in sessions {
            assert_eq!(session.state.merged().to_json_string(), r#"{"a":1,"app:k":1,"user:k":2}"#);
            assert!(session.events.is_empty());
        }
    }
}

async fn a_list_goes_on_behind_a_session(backend: Backend) {
    let service = backend.service().await;
    for number in 0..7 {
        add(&service, &format!("ann/{number}"), 0, event_at("e", 1_000 + number / 3, "{}")).await.unwrap();
    }
    let mut after = None;
    let mut contexts = Vec::new();
    loop {
        let page = service.list(&SessionQuery { after, limit: 2, ..query(Some("ann")) }).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = Some(last.cursor());
        contexts.extend(page.into_iter().map(|session| session.key.context.to_string()));
    }
    assert_eq!(contexts, ["0", "1", "2", "3", "4", "5", "6"]);
}

async fn the_last_update_is_the_time_of_the_last_event(backend: Backend) {
    let service = backend.service().await;
    create(&service, "s", "{}").await;
    add(&service, "s", 1, event_at("e", 5, "{}")).await.unwrap();
    assert_eq!(find(&service, "s").await.unwrap().last_update, Timestamp::from_millis(5));
}

async fn what_is_read_of_a_conversation_is_bounded_in_bytes(backend: Backend) {
    let service = backend.service().await;
    for number in 0..5_u64 {
        let parts = vec![Part::text("x".repeat(1_000))].into();
        let long = Event { parts, ..event(&format!("e{number}"), "{}") };
        add(&service, "s", number, long).await.unwrap();
    }
    let read = async |max_bytes| {
        let filter = EventFilter { max_bytes: Some(max_bytes), ..EventFilter::ALL };
        service.read(&key("s"), filter).await.unwrap().events
    };
    let latest = read(3_500).await;
    assert_eq!(ids(&latest).last().copied(), Some("e4"), "the latest ones");
    assert!((2..=3).contains(&latest.len()));
    assert!(read(10).await.is_empty());
}
