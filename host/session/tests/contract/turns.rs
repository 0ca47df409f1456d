//! The view that a running turn has of its session.

use annex_protocol::Json;
use annex_session::{Event, SessionError, Turns};

use crate::support::{create, event, ids, key, open, service, state_of};

#[tokio::test]
async fn opening_creates_nothing_and_the_first_append_does() {
    let service = service();
    create(&service, "ann/other", r#"{"user:a":1}"#);
    let session = open(&service, "ann/new").await;
    assert!(!session.exists());
    assert!(session.history().is_empty());
    assert_eq!(session.state().to_json_string(), r#"{"user:a":1}"#);
    assert!(service.get(&key("ann/new")).is_none());

    session.append(event("e", r#"{"b":2}"#)).unwrap();
    assert!(session.exists());
    assert_eq!(service.get(&key("ann/new")).unwrap().revision, 1);
    assert_eq!(ids(&session.history()), ["e"]);
}

#[tokio::test]
async fn temp_keys_live_as_long_as_the_turn() {
    let service = service();
    let session = open(&service, "s").await;
    session.append(event("one", r#"{"a":1,"temp:t":2}"#)).unwrap();
    assert_eq!(session.state().to_json_string(), r#"{"a":1,"temp:t":2}"#);
    assert_eq!(session.clone().value("temp:t").unwrap().get(), "2");
    assert_eq!(state_of(&service, "s"), r#"{"a":1}"#);
    drop(session);

    let session = open(&service, "s").await;
    assert_eq!(session.value("temp:t"), None);
}

#[tokio::test]
async fn a_value_is_found_in_its_own_scope_only() {
    let service = service();
    create(&service, "s", r#"{"a":1,"user:b":2,"app:c":3}"#);
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

#[tokio::test]
async fn a_snapshot_has_session_keys_only() {
    let service = service();
    let session = open(&service, "s").await;
    session.append(event("e", r#"{"a":1,"user:b":2,"app:c":3,"temp:d":4}"#)).unwrap();
    assert_eq!(session.snapshot().to_json_string(), r#"{"a":1}"#);
}

#[tokio::test]
async fn a_partial_event_changes_nothing_in_a_turn() {
    let session = open(&service(), "s").await;
    session.append(Event { partial: true, ..event("e", r#"{"a":1,"temp:t":1}"#) }).unwrap();
    assert!(!session.exists());
    assert!(session.state().is_empty());
}

#[tokio::test]
async fn a_turn_follows_its_own_revision_and_notices_others() {
    let service = service();
    let session = open(&service, "s").await;
    session.append(event("one", "{}")).unwrap();
    session.append(event("two", "{}")).unwrap();
    service.append(&key("s"), 2, event("from outside", "{}")).unwrap();
    let error = session.append(event("three", r#"{"a":1,"temp:a":1}"#)).unwrap_err();
    assert_eq!(error, SessionError::Stale { expected: 2, found: 3 });
    assert!(session.state().is_empty());
}

#[tokio::test]
async fn a_turn_whose_session_is_deleted_does_not_bring_it_back() {
    let service = service();
    let session = open(&service, "s").await;
    session.append(event("one", "{}")).unwrap();
    service.delete(&key("s"));
    assert_eq!(session.append(event("two", "{}")), Err(SessionError::NotFound { context: "s".into() }));
    assert!(!session.exists());
}

#[tokio::test]
async fn a_session_that_appears_during_a_turn_makes_it_stale() {
    let service = service();
    let session = open(&service, "s").await;
    create(&service, "s", "{}");
    assert_eq!(session.append(event("e", "{}")), Err(SessionError::Stale { expected: 0, found: 1 }));
}

#[tokio::test]
async fn a_turn_refuses_a_bad_context_id_when_it_would_store_it() {
    let service = service();
    let session = open(&service, " s ").await;
    assert_eq!(session.append(event("e", "{}")), Err(SessionError::InvalidContextId { context: " s ".into() }));
}

#[tokio::test]
async fn the_next_turn_starts_when_the_last_clone_is_gone_and_sees_everything() {
    let (service, turns, key) = (service(), Turns::default(), key("s"));
    let first = service.open(key.clone(), turns.begin(&key).await.unwrap());
    let clone = first.clone();
    let next = tokio::spawn({
        let (service, turns, key) = (service.clone(), turns.clone(), key.clone());
        async move {
            let session = service.open(key.clone(), turns.begin(&key).await.unwrap());
            session.append(event("second", "{}")).unwrap();
            session.history().len()
        }
    });
    drop(first);
    tokio::task::yield_now().await;
    assert!(!next.is_finished());
    clone.append(event("first", "{}")).unwrap();
    drop(clone);
    assert_eq!(next.await.unwrap(), 2);
}
