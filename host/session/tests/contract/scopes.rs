//! Who sees which key, and what a change does to it.

use annex_protocol::Json;
use annex_session::{Scope, SessionError};

use crate::support::{create, delta, event, key, service, state_of};

#[test]
fn initial_state_is_kept_by_scope_and_temp_is_dropped() {
    let service = service();
    let created = create(&service, "s", r#"{"k":1,"app:k":2,"user:k":3,"temp:k":4}"#);
    assert_eq!(created.state.to_json_string(), r#"{"k":1,"app:k":2,"user:k":3}"#);
    assert_eq!(service.get(&key("s")), Some(created));
}

#[test]
fn only_the_first_known_prefix_in_lower_case_is_a_scope() {
    let cases = [
        ("foo:bar", Scope::Session, "foo:bar"),
        ("App:y", Scope::Session, "App:y"),
        ("app:app:z", Scope::App, "app:z"),
        ("user:", Scope::User, ""),
        ("temp:x", Scope::Temp, "x"),
        ("temperature", Scope::Session, "temperature"),
    ];
    for (full_key, scope, name) in cases {
        assert_eq!(Scope::of(full_key), (scope, name), "{full_key}");
    }
    let service = service();
    create(&service, "s", r#"{"foo:bar":1,"App:y":2,"app:":3,"app:app:z":4}"#);
    assert_eq!(state_of(&service, "s"), r#"{"foo:bar":1,"App:y":2,"app:":3,"app:app:z":4}"#);
}

#[test]
fn a_failed_create_applies_nothing() {
    let service = service();
    create(&service, "s", r#"{"a":1}"#);
    let error = service.create(&key("s"), delta(r#"{"a":2,"user:b":2,"app:b":2}"#)).unwrap_err();
    assert_eq!(error, SessionError::AlreadyExists { context: "s".into() });
    assert_eq!(state_of(&service, "s"), r#"{"a":1}"#);
}

#[test]
fn one_context_id_under_two_users_is_two_sessions() {
    let service = service();
    create(&service, "ann/s", r#"{"a":"ann"}"#);
    create(&service, "bob/s", r#"{"a":"bob"}"#);
    assert_eq!(state_of(&service, "ann/s"), r#"{"a":"ann"}"#);
    assert_eq!(state_of(&service, "bob/s"), r#"{"a":"bob"}"#);
}

#[test]
fn shared_keys_reach_exactly_their_scope() {
    let service = service();
    create(&service, "acme/agent/ann/one", r#"{"k":0,"user:k":1,"app:k":2}"#);
    let cases = [
        ("acme/agent/ann/two", r#"{"app:k":2,"user:k":1}"#),
        ("acme/agent/bob/one", r#"{"app:k":2}"#),
        ("acme/other/ann/one", "{}"),
        ("globex/agent/ann/one", "{}"),
    ];
    for (path, expected) in cases {
        create(&service, path, "{}");
        assert_eq!(state_of(&service, path), expected, "{path}");
    }
}

#[test]
fn a_later_session_overrides_what_it_shares() {
    let service = service();
    create(&service, "ann/one", r#"{"user:k":1,"app:k":1}"#);
    create(&service, "ann/two", r#"{"user:k":2}"#);
    assert_eq!(state_of(&service, "ann/one"), r#"{"app:k":1,"user:k":2}"#);
}

#[test]
fn a_context_id_with_white_space_around_it_or_without_a_character_is_refused() {
    let service = service();
    for context in ["  s1 ", " ", ""] {
        let expected = SessionError::InvalidContextId { context: context.into() };
        assert_eq!(service.create(&key(context), delta("{}")), Err(expected.clone()), "{context:?}");
        assert_eq!(service.get_or_create(&key(context)), Err(expected), "{context:?}");
        assert_eq!(service.get(&key(context)), None);
    }
}

#[test]
fn a_session_that_was_read_is_a_copy() {
    let service = service();
    let mut copy = create(&service, "s", r#"{"a":1}"#);
    copy.state.insert("a".to_owned(), Json::string("changed"));
    assert_eq!(state_of(&service, "s"), r#"{"a":1}"#);
}

#[test]
fn a_delta_replaces_whole_values() {
    let service = service();
    create(&service, "s", r#"{"o":{"x":1,"y":2},"kept":true}"#);
    let session = service.append(&key("s"), 1, event("e", r#"{"o":{"x":9}}"#)).unwrap();
    assert_eq!(session.state.to_json_string(), r#"{"o":{"x":9},"kept":true}"#);
}

#[test]
fn null_is_a_value() {
    let service = service();
    create(&service, "s", r#"{"a":1}"#);
    service.append(&key("s"), 1, event("e", r#"{"a":null}"#)).unwrap();
    assert_eq!(state_of(&service, "s"), r#"{"a":null}"#);
}

#[test]
fn values_keep_their_text() {
    let service = service();
    create(&service, "s", "{}");
    let values =
        r#"{"big":9007199254740993,"sum":0.30000000000000004,"e":1e21,"one":1.0,"order":{"z":1,"a":2},"s":"\u00e9"}"#;
    service.append(&key("s"), 1, event("e", values)).unwrap();
    assert_eq!(state_of(&service, "s"), values);
}

#[test]
fn deleting_a_session_leaves_what_it_shared() {
    let service = service();
    create(&service, "s", r#"{"a":1,"user:b":2,"app:c":3}"#);
    service.append(&key("s"), 1, event("e", "{}")).unwrap();
    assert!(service.delete(&key("s")));
    assert_eq!(service.get(&key("s")), None);

    let again = create(&service, "s", "{}");
    assert_eq!(again.state.to_json_string(), r#"{"app:c":3,"user:b":2}"#);
    assert_eq!(again.revision, 1);
    assert!(service.events(&key("s"), Default::default()).unwrap().is_empty());
}

#[test]
fn deleting_what_is_missing_or_foreign_does_nothing() {
    let service = service();
    create(&service, "ann/s", r#"{"a":1}"#);
    assert!(!service.delete(&key("bob/s")));
    assert!(!service.delete(&key("ann/other")));
    assert_eq!(state_of(&service, "ann/s"), r#"{"a":1}"#);
}

#[test]
fn get_or_create_creates_once() {
    let service = service();
    let created = service.get_or_create(&key("s")).unwrap();
    assert_eq!(created.revision, 1);
    service.append(&key("s"), 1, event("e", r#"{"a":1}"#)).unwrap();
    let found = service.get_or_create(&key("s")).unwrap();
    assert_eq!((found.revision, found.state.to_json_string()), (2, r#"{"a":1}"#.to_owned()));
}

#[test]
fn a_delta_names_the_scopes_it_touches_and_merges_by_key() {
    let mut first = delta(r#"{"a":1,"temp:t":1,"user:u":1}"#);
    assert_eq!(first.scopes().into_iter().collect::<Vec<_>>(), [Scope::Session, Scope::User, Scope::Temp]);
    first.merge(delta(r#"{"a":2,"app:b":3}"#));
    assert_eq!(first, delta(r#"{"a":2,"temp:t":1,"user:u":1,"app:b":3}"#));
}
