//! What happens when the service is full.

use annex_session::{Bounds, Scope, SessionError};

use crate::support::{create, delta, event, ids, key, open, service_within, state_of};

#[test]
fn the_session_that_was_idle_longest_goes_first() {
    let service = service_within(Bounds { max_sessions: 2, ..Bounds::default() });
    create(&service, "one", "{}");
    create(&service, "two", "{}");
    service.get(&key("one"));
    create(&service, "three", "{}");
    assert!(service.get(&key("two")).is_none());
    assert!(service.get(&key("one")).is_some());
    assert!(service.get(&key("three")).is_some());
}

#[tokio::test]
async fn a_session_with_a_turn_running_stays() {
    let service = service_within(Bounds { max_sessions: 1, ..Bounds::default() });
    let running = open(&service, "running").await;
    running.append(event("e", r#"{"a":1,"user:b":2}"#)).unwrap();
    create(&service, "next", "{}");
    assert_eq!(running.state().to_json_string(), r#"{"a":1,"user:b":2}"#);
    assert!(service.get(&key("next")).is_none(), "the new one is the only one that may go");

    let second = open(&service, "second").await;
    second.append(event("e", "{}")).unwrap();
    assert!(running.exists() && second.exists(), "running turns may exceed the bounds");
    drop(running);
    assert!(second.exists());
    assert!(service.get(&key("running")).is_none());
}

#[test]
fn bytes_count_and_shared_maps_go_after_their_sessions() {
    let service = service_within(Bounds { max_bytes: 7 * 1024, ..Bounds::default() });
    let kilobyte = "x".repeat(1024);
    create(&service, "ann/first", &format!(r#"{{"a":"{kilobyte}","user:k":"{kilobyte}"}}"#));
    create(&service, "bob/first", &format!(r#"{{"a":"{kilobyte}"}}"#));
    create(&service, "bob/second", &format!(r#"{{"a":"{kilobyte}"}}"#));
    create(&service, "bob/third", &format!(r#"{{"a":"{kilobyte}"}}"#));
    assert!(service.get(&key("ann/first")).is_none());

    create(&service, "ann/again", "{}");
    assert_eq!(service.get(&key("ann/again")).unwrap().state.len(), 1, "the user's own map is still there");
    for index in 0..8 {
        create(&service, &format!("bob/{index}"), &format!(r#"{{"a":"{kilobyte}"}}"#));
    }
    create(&service, "ann/last", "{}");
    assert_eq!(state_of(&service, "ann/last"), "{}", "nothing of an idle user is kept forever");
}

#[tokio::test]
async fn shared_state_is_never_dropped_under_a_session_that_sees_it() {
    let service = service_within(Bounds { max_bytes: 8 * 1024, ..Bounds::default() });
    open(&service, "ann/s").await.append(event("e", r#"{"user:k":1}"#)).unwrap();
    let mut rounds = 0;
    while let [session] = service.list("-", "-", Some("ann")).as_slice() {
        assert_eq!(session.state.to_json_string(), r#"{"user:k":1}"#);
        create(&service, &format!("bob/{rounds}"), "{}");
        rounds += 1;
    }
    assert!(rounds > 5);
}

#[test]
fn state_beyond_the_limit_is_refused_and_nothing_is_stored() {
    let service = service_within(Bounds { max_state_bytes: 16, ..Bounds::default() });
    create(&service, "s", r#"{"a":"12345678"}"#);
    let cases = [
        (r#"{"b":"12345678"}"#, Scope::Session, 22),
        (r#"{"c":1,"user:b":"1234567890123456"}"#, Scope::User, 19),
        (r#"{"c":1,"user:d":1,"app:b":"1234567890123456"}"#, Scope::App, 19),
    ];
    for (change, scope, bytes) in cases {
        let expected = SessionError::StateTooLarge { scope, bytes, limit: 16 };
        assert_eq!(service.append(&key("s"), 1, event("e", change)), Err(expected.clone()), "{change}");
        assert_eq!(service.create(&key("new"), delta(change)).err(), (scope != Scope::Session).then_some(expected));
        service.delete(&key("new"));
    }
    assert_eq!(state_of(&service, "s"), r#"{"a":"12345678"}"#);
    assert!(service.events(&key("s"), Default::default()).unwrap().is_empty());
    let replaced = service.append(&key("s"), 1, event("e", r#"{"a":"1234567890123"}"#));
    assert!(replaced.is_ok(), "a value that is replaced no longer counts");
}

#[test]
fn old_events_are_dropped_and_their_state_stays() {
    let service = service_within(Bounds { max_events_per_session: 2, ..Bounds::default() });
    create(&service, "s", "{}");
    for (index, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
        service.append(&key("s"), 1 + index as u64, event(id, &format!(r#"{{"{id}":1}}"#))).unwrap();
    }
    assert_eq!(ids(&service.events(&key("s"), Default::default()).unwrap()), ["c", "d"]);
    assert_eq!(state_of(&service, "s"), r#"{"a":1,"b":1,"c":1,"d":1}"#);
    let retried = service.append(&key("s"), 1, event("d", r#"{"d":1}"#)).unwrap();
    assert_eq!(retried.revision, 5);
}

#[test]
fn memory_is_given_back() {
    let service = service_within(Bounds { max_bytes: 64 * 1024, ..Bounds::default() });
    let kilobyte = "x".repeat(1024);
    for round in 0..200 {
        let path = format!("ann/{round}");
        create(&service, &path, "{}");
        service.append(&key(&path), 1, event("e", &format!(r#"{{"a":"{kilobyte}"}}"#))).unwrap();
        service.delete(&key(&path));
    }
    create(&service, "ann/kept", "{}");
    for index in 0..10 {
        create(&service, &format!("ann/other-{index}"), &format!(r#"{{"a":"{kilobyte}"}}"#));
    }
    assert!(service.get(&key("ann/kept")).is_some(), "deleted sessions no longer count");
}
