//! Appending and reading events.

use annex_protocol::Timestamp;
use annex_session::{Event, EventFilter, SessionError};

use crate::support::{create, event, event_at, ids, key, service, state_of};

const ALL: EventFilter = EventFilter { num_recent: None, after_timestamp: None };

#[test]
fn temp_keys_are_stored_neither_in_the_state_nor_in_the_event() {
    let service = service();
    create(&service, "s", "{}");
    let session = service.append(&key("s"), 1, event("e", r#"{"a":1,"temp:t":2,"b":3}"#)).unwrap();
    assert_eq!(session.state.to_json_string(), r#"{"a":1,"b":3}"#);
    let stored = service.events(&key("s"), ALL).unwrap();
    assert_eq!(stored[0].state_delta, crate::support::delta(r#"{"a":1,"b":3}"#));
}

#[test]
fn a_partial_event_changes_nothing() {
    let service = service();
    let before = create(&service, "s", "{}");
    let partial = Event { partial: true, ..event("e", r#"{"a":1,"user:a":1}"#) };
    assert_eq!(service.append(&key("s"), 1, partial), Ok(before));
    assert!(service.events(&key("s"), ALL).unwrap().is_empty());
}

#[test]
fn appending_to_a_deleted_session_leaves_the_shared_scopes_alone() {
    let service = service();
    create(&service, "ann/gone", "{}");
    create(&service, "ann/other", "{}");
    service.delete(&key("ann/gone"));
    let error = service.append(&key("ann/gone"), 1, event("e", r#"{"user:a":1,"app:a":1}"#)).unwrap_err();
    assert_eq!(error, SessionError::NotFound { context: "gone".into() });
    assert_eq!(state_of(&service, "ann/other"), "{}");
    assert_eq!(service.events(&key("ann/gone"), ALL), Err(error));
}

#[test]
fn the_same_event_again_is_a_retry() {
    let service = service();
    create(&service, "s", "{}");
    let sent = event("e", r#"{"a":1,"temp:t":1}"#);
    let first = service.append(&key("s"), 1, sent.clone()).unwrap();
    let outdated = service.append(&key("s"), 1, sent.clone()).unwrap();
    let up_to_date = service.append(&key("s"), 2, sent).unwrap();
    assert_eq!((&outdated, &up_to_date), (&first, &first));
    assert_eq!(service.events(&key("s"), ALL).unwrap().len(), 1);
}

#[test]
fn another_event_under_the_same_id_is_refused() {
    let service = service();
    create(&service, "s", "{}");
    service.append(&key("s"), 1, event("e", r#"{"a":1}"#)).unwrap();
    let error = service.append(&key("s"), 2, event("e", r#"{"a":2}"#)).unwrap_err();
    assert_eq!(error, SessionError::EventConflict { id: "e".to_owned() });
    assert_eq!(state_of(&service, "s"), r#"{"a":1}"#);
}

#[test]
fn a_stale_writer_stores_nothing_whatever_its_timestamp() {
    for millis in [1, 1_000, 5_000] {
        let service = service();
        create(&service, "s", "{}");
        service.append(&key("s"), 1, event_at("first", 1_000, r#"{"a":1}"#)).unwrap();
        let late = event_at("second", millis, r#"{"a":2,"user:a":2,"app:a":2}"#);
        let error = service.append(&key("s"), 1, late).unwrap_err();
        assert_eq!(error, SessionError::Stale { expected: 1, found: 2 }, "{millis}");
        assert_eq!(state_of(&service, "s"), r#"{"a":1}"#);
        assert_eq!(ids(&service.events(&key("s"), ALL).unwrap()), ["first"]);
    }
}

#[test]
fn a_change_of_shared_state_makes_no_other_session_stale() {
    let service = service();
    create(&service, "ann/one", "{}");
    create(&service, "ann/two", "{}");
    service.append(&key("ann/one"), 1, event("e", r#"{"user:a":1}"#)).unwrap();
    let session = service.append(&key("ann/two"), 1, event("e", r#"{"user:b":2}"#)).unwrap();
    assert_eq!(session.state.to_json_string(), r#"{"user:a":1,"user:b":2}"#);
}

#[test]
fn filters_choose_the_most_recent_and_then_by_time() {
    let service = service();
    create(&service, "s", "{}");
    for (index, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let millis = 1_000 + 10 * index as i64;
        service.append(&key("s"), 1 + index as u64, event_at(id, millis, r#"{"n":1}"#)).unwrap();
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
        let filter = EventFilter { num_recent, after_timestamp: after.map(Timestamp::from_millis) };
        assert_eq!(ids(&service.events(&key("s"), filter).unwrap()), expected, "{filter:?}");
        assert_eq!(state_of(&service, "s"), r#"{"n":1}"#);
    }
}

#[test]
fn events_of_one_time_keep_the_order_of_arrival() {
    let service = service();
    create(&service, "s", "{}");
    for (index, id) in ["z", "m", "a"].into_iter().enumerate() {
        service.append(&key("s"), 1 + index as u64, event(id, "{}")).unwrap();
    }
    assert_eq!(ids(&service.events(&key("s"), ALL).unwrap()), ["z", "m", "a"]);
}

#[test]
fn a_list_has_the_merged_state_and_the_longest_unchanged_first() {
    let service = service();
    for (path, millis) in [("ann/new", 3_000), ("ann/old", 1_000), ("bob/middle", 2_000)] {
        create(&service, path, r#"{"app:k":1}"#);
        service.append(&key(path), 1, event_at("e", millis, r#"{"a":1}"#)).unwrap();
    }
    create(&service, "other-agent/ann/x", "{}");
    let contexts = |user| {
        let sessions = service.list("-", "-", user);
        sessions.iter().map(|session| session.key.context.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(contexts(None), ["old", "middle", "new"]);
    assert_eq!(contexts(Some("ann")), ["old", "new"]);
    assert_eq!(contexts(Some("nobody")), Vec::<String>::new());
    assert_eq!(contexts(Some("")), Vec::<String>::new());
    assert_eq!(service.list("-", "-", None)[0].state.to_json_string(), r#"{"a":1,"app:k":1}"#);
}

#[test]
fn the_last_update_is_the_time_of_the_last_event() {
    let service = service();
    create(&service, "s", "{}");
    let session = service.append(&key("s"), 1, event_at("e", 5, "{}")).unwrap();
    assert_eq!(session.last_update, Timestamp::from_millis(5));
}
