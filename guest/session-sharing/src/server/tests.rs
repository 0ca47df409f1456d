use annex_sdk::Violation;
use serde_json::{Value, json};

use super::*;
use crate::testing::Keys;

/// The metadata value of a message that shares a delta; `more` replaces or adds fields.
fn delta(more: &Value) -> Value {
    let mut shared = json!({"version": 1, "mode": "delta", "peer": "ada", "base": 0, "upTo": 2, "events": []});
    shared.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    shared
}

fn said(seq: u64, text: &str) -> Value {
    json!({"seq": seq, "author": "root", "role": "agent", "parts": [{"text": text}]})
}

fn message(shared: &Value) -> String {
    let key = Parameters::default().shared_key();
    json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "now", "x": 1.0}], "metadata": {key: shared}})
        .to_string()
}

fn offered(shared: &Value, keys: &Keys) -> Result<(PendingEvents, Vec<Rewrite>), Rejection> {
    check(&Parameters::default(), &message(shared), keys).map(|taken| taken.expect("something is shared"))
}

/// Begins a turn with shared events. Returns the texts that precede the message's text.
fn take(shared: &Value, keys: &Keys) -> Vec<String> {
    let (mut taken, rewrites) = offered(shared, keys).unwrap_or_else(|refusal| unreachable!("{refusal:?}"));
    assert!(taken.note(keys));
    texts(&rewrites)
}

fn texts(rewrites: &[Rewrite]) -> Vec<String> {
    let Some(rewrite) = rewrites.first() else { return Vec::new() };
    let (own, injected) = rewrite.replacement.split_last().unwrap();
    assert_eq!((rewrite.part, own.as_str()), (0, r#"{"text":"now","x":1.0}"#));
    let text = |part: &String| serde_json::from_str::<Value>(part).unwrap()["text"].as_str().unwrap().to_owned();
    injected.iter().map(text).filter(|text| !text.starts_with("For context:")).collect()
}

fn code(refusal: Result<(PendingEvents, Vec<Rewrite>), Rejection>) -> i32 {
    match refusal {
        Err(Rejection::Error(error)) => error.code,
        other => unreachable!("{other:?}"),
    }
}

fn violation(shared: &Value) -> Violation {
    match offered(shared, &Keys::default()) {
        Err(Rejection::Violations(mut violations)) => violations.remove(0),
        other => unreachable!("{other:?}"),
    }
}

fn quoted(text: &str) -> String {
    format!("[root] said:\n<<<BEGIN_QUOTED_AGENT_CONTENT>>>\n{text}\n<<<END_QUOTED_AGENT_CONTENT>>>")
}

#[test]
fn a_message_that_shares_nothing_stays_as_it_is() {
    let recorded = json!({"messageId": "m", "role": "ROLE_USER", "parts": [
        {"text": "hello", "metadata": {"is_user_input": true}},
        {"text": "For context: below is a transcript …", "metadata": {"is_user_input": true}},
        {"text": "[root] said:\n<<<BEGIN_QUOTED_AGENT_CONTENT>>>\nr1\n<<<END_QUOTED_AGENT_CONTENT>>>"},
    ]});
    for message in [recorded, json!({"parts": [{"text": "x"}], "metadata": {}})] {
        let checked = check(&Parameters::default(), &message.to_string(), &Keys::default());
        assert!(matches!(checked, Ok(None)), "{checked:?}");
    }
}

#[test]
fn what_the_user_said_stands_as_it_is_and_what_agents_said_is_quoted() {
    let user = json!({"seq": 1, "author": "user", "role": "user", "parts": [{"text": "u1"}]});
    let events = json!([user, said(2, "r1"), said(4, "r2")]);
    let shared = delta(&json!({"events": events, "upTo": 5}));
    let (_, rewrites) = offered(&shared, &Keys::default()).unwrap();
    assert_eq!(rewrites[0].replacement.len(), 5, "one preamble, three events, the message's own part");
    assert_eq!(texts(&rewrites), ["u1".to_owned(), quoted("r1"), quoted("r2")]);
}

#[test]
fn a_delta_brings_what_is_newer_and_the_same_again_brings_nothing() {
    let keys = Keys::default();
    let first = delta(&json!({"events": [said(1, "r1")]}));
    assert_eq!(take(&first, &keys), [quoted("r1")]);
    assert!(take(&first, &keys).is_empty());
    let second = delta(&json!({"base": 2, "upTo": 4, "events": [said(3, "r3")]}));
    assert_eq!(take(&second, &keys), [quoted("r3")]);
    assert!(take(&first, &keys).is_empty(), "an older one that is replayed");
    let all = delta(&json!({"upTo": 6, "events": [said(1, "r1"), said(3, "r3"), said(5, "r5")]}));
    assert_eq!(take(&all, &keys), [quoted("r5")]);
}

#[test]
fn a_message_that_is_refused_later_leaves_no_mark() {
    let keys = Keys::default();
    let shared = delta(&json!({"events": [said(1, "r1")]}));
    let (_, first) = offered(&shared, &keys).unwrap();
    let (_, again) = offered(&shared, &keys).unwrap();
    assert_eq!((texts(&first), texts(&again)), (vec![quoted("r1")], vec![quoted("r1")]));
}

#[test]
fn a_gap_and_a_lost_conversation_ask_for_all_events() {
    let keys = Keys::default();
    let later = delta(&json!({"base": 3, "upTo": 5, "events": [said(4, "r4")]}));
    assert_eq!(code(offered(&later, &keys)), UNKNOWN_CONTEXT);
    take(&delta(&json!({})), &keys);
    match offered(&later, &keys) {
        Err(Rejection::Error(error)) => {
            assert_eq!((error.code, error.data.as_deref()), (GAP, Some(r#"{"resend":true,"received":2}"#)));
        }
        other => unreachable!("{other:?}"),
    }
    let all = delta(&json!({"upTo": 5, "events": [said(1, "r1"), said(4, "r4")]}));
    assert_eq!(take(&all, &keys), [quoted("r4")]);
}

#[test]
fn the_agents_own_answers_come_back_only_when_it_has_lost_the_conversation() {
    let mut own = said(3, "mine");
    own["yours"] = json!(true);
    let all = delta(&json!({"upTo": 4, "events": [said(1, "r1"), own]}));
    let keys = Keys::default();
    assert_eq!(take(&all, &keys), [quoted("r1"), quoted("mine")]);
    let keys = Keys::default();
    take(&delta(&json!({"events": [said(1, "r1")]})), &keys);
    assert!(take(&all, &keys).is_empty());
}

#[test]
fn a_new_revision_takes_the_place_of_the_old_one_and_an_older_one_is_refused() {
    let keys = Keys::default();
    take(&delta(&json!({"events": [said(1, "r1")], "upTo": 9})), &keys);
    let revised = delta(&json!({"revision": 1, "events": [said(1, "summary")]}));
    let texts = take(&revised, &keys);
    assert!(texts[0].starts_with("The conversation has been revised."), "{texts:?}");
    assert_eq!(texts[1..], [quoted("summary")]);
    assert!(take(&revised, &keys).is_empty());
    assert_eq!(code(offered(&delta(&json!({})), &keys)), STALE_REVISION);
    let later = delta(&json!({"revision": 2, "base": 9, "upTo": 9}));
    assert_eq!(code(offered(&later, &keys)), GAP);
}

#[test]
fn the_full_mode_keeps_nothing() {
    let keys = Keys::default();
    let full = delta(&json!({"mode": "full", "events": [said(1, "r1")]}));
    assert_eq!(take(&full, &keys), take(&full, &keys));
    assert_eq!(keys.count(), Ok(0));
    let violation = violation(&delta(&json!({"mode": "full", "base": 1})));
    assert!(violation.pointer.ends_with("/base"), "{violation:?}");
}

#[test]
fn peers_have_places_of_their_own_and_not_without_end() {
    let keys = Keys::default();
    for number in 0..MAX_PEERS {
        let shared = delta(&json!({"peer": number.to_string(), "events": [said(1, "r1")]}));
        assert_eq!(take(&shared, &keys), [quoted("r1")]);
    }
    assert_eq!(code(offered(&delta(&json!({})), &keys)), NOT_KEPT);
}

#[test]
fn without_keys_a_delta_is_refused_and_a_full_history_is_taken() {
    let keys = Keys::default();
    keys.is_broken.set(true);
    assert_eq!(code(offered(&delta(&json!({})), &keys)), NOT_KEPT);
    assert_eq!(take(&delta(&json!({"mode": "full", "events": [said(1, "r1")]})), &keys), [quoted("r1")]);
}

#[test]
fn what_a_client_did_not_scrub_is_scrubbed_here() {
    let forged = json!([
        {"seq": 1, "author": "root", "role": "agent", "parts": [{"text": "thinking", "thought": true}]},
        {"seq": 2, "author": "root", "role": "agent", "parts": [{"text": "password=hunter2", "metadata": {"adk_actions": {}}}]},
        {"seq": 3, "author": "root", "role": "agent", "partial": true, "parts": [{"text": "half"}]},
    ]);
    let texts = take(&delta(&json!({"events": forged, "upTo": 3})), &Keys::default());
    assert_eq!(texts, [quoted("password=[removed]")]);
}

#[test]
fn what_is_malformed_or_too_large_is_named_by_its_pointer() {
    let many: Vec<Value> = (1..=201).map(|seq| said(seq, "x")).collect();
    let large: Vec<Value> = (1..=9).map(|seq| said(seq, &"x".repeat(16 << 10))).collect();
    let cases = [
        (json!("text"), ""),
        (delta(&json!({"version": 2})), "/version"),
        (delta(&json!({"mode": "half"})), "/mode"),
        (delta(&json!({"peer": ""})), "/peer"),
        (delta(&json!({"peer": "x".repeat(201)})), "/peer"),
        (delta(&json!({"base": -1})), "/base"),
        (delta(&json!({"upTo": 1.5})), "/upTo"),
        (delta(&json!({"upTo": null})), "/upTo"),
        (delta(&json!({"base": 3})), "/upTo"),
        (delta(&json!({"events": [said(3, "x")]})), "/upTo"),
        (delta(&json!({"base": 1, "events": [said(1, "x")]})), "/events"),
        (delta(&json!({"events": [said(2, "x"), said(1, "x")]})), "/events/1/seq"),
        (delta(&json!({"events": {}})), "/events"),
        (delta(&json!({"events": many, "upTo": 201})), "/events"),
        (delta(&json!({"events": [said(1, &"x".repeat(20_000))]})), "/events"),
        (delta(&json!({"events": large, "upTo": 9})), "/events"),
    ];
    for (shared, place) in cases {
        let expected = format!("/message/metadata/annex.example~1session-sharing~1v1~1shared{place}");
        assert_eq!(violation(&shared).pointer, expected, "{place}");
    }
}

#[test]
fn only_a_good_end_is_acknowledged() {
    let keys = Keys::default();
    let (mut taken, _) = offered(&delta(&json!({})), &keys).unwrap();
    let event = |kind, state: Option<&str>| Outgoing {
        kind,
        task_id: None,
        context_id: "c".to_owned(),
        task_state: state.map(str::to_owned),
        has_message: false,
        last_chunk: true,
        present: Vec::new(),
        payload: None,
    };
    let mut acknowledged = |event: &Outgoing| acknowledge(&Parameters::default(), &mut taken, event, &keys).unwrap();
    for state in ["COMPLETED", "INPUT_REQUIRED", "AUTH_REQUIRED"] {
        let patch = acknowledged(&event(EventKind::Status, Some(&format!("TASK_STATE_{state}")))).unwrap();
        let (key, value) = &patch.metadata[0];
        assert_eq!(*key, Parameters::default().received_key());
        assert_eq!(value, r#"{"version":1,"mode":"delta","peer":"ada","revision":0,"received":2}"#);
    }
    assert!(acknowledged(&event(EventKind::Message, None)).is_some());
    for state in ["WORKING", "FAILED", "CANCELED", "REJECTED", "SUBMITTED"] {
        let event = event(EventKind::Status, Some(&format!("TASK_STATE_{state}")));
        assert!(acknowledged(&event).is_none(), "{state}");
    }
    assert!(acknowledged(&event(EventKind::Artifact, None)).is_none());
}

#[test]
fn what_cannot_be_noted_is_not_acknowledged() {
    let keys = Keys::default();
    let (mut taken, _) = offered(&delta(&json!({})), &keys).unwrap();
    let event = Outgoing {
        kind: EventKind::Message,
        task_id: None,
        context_id: "c".to_owned(),
        task_state: None,
        has_message: true,
        last_chunk: true,
        present: Vec::new(),
        payload: None,
    };
    keys.is_broken.set(true);
    assert!(!taken.note(&keys));
    assert_eq!(acknowledge(&Parameters::default(), &mut taken, &event, &keys).map(|patch| patch.is_some()), Ok(false));
    keys.is_broken.set(false);
    assert_eq!(acknowledge(&Parameters::default(), &mut taken, &event, &keys).map(|patch| patch.is_some()), Ok(true));
    assert_eq!(code(offered(&delta(&json!({"base": 3, "upTo": 3})), &keys)), GAP, "it is noted by the first event");
    assert!(offered(&delta(&json!({"base": 2})), &keys).is_ok());
}
