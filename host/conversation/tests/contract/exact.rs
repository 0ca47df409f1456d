//! Limits that are reached exactly: what fills a limit is taken, and one more is not. For turns, whose appends are steps
//! of one trip, and for writers without a turn.

use std::collections::BTreeMap;

use annex_conversation::{AppendError, Conversation, Entry, Event, Limits};
use annex_protocol::Part;

use crate::support::{Backend, Says, Store, add, event, events, find, ids, key, open, refusal, state_of};

on_every_store!(
    a_scope_takes_bytes_up_to_its_limit,
    a_scope_takes_keys_up_to_its_limit,
    a_history_has_events_up_to_its_limit,
    artifacts_take_room_up_to_their_limits,
    each_event_of_an_append_writes_a_version_of_its_artifact,
    keys_that_appends_set_one_after_the_other_keep_that_order,
);

/// A writer in a conversation of its own.
struct Writer {
    store: Store,
    path: &'static str,
    turn: Option<Conversation>,
    number: u64,
}

impl Writer {
    /// A writer with a turn and one without.
    async fn both(backend: &Backend, limits: Limits) -> [Self; 2] {
        let store = backend.within(limits).await;
        let turn = Some(open(&store, "turn/s").await);
        let with_turn = Self { store: store.clone(), path: "turn/s", turn, number: 0 };
        [with_turn, Self { store, path: "no turn/s", turn: None, number: 0 }]
    }

    async fn write(&mut self, event: Event) -> Result<(), AppendError> {
        match &self.turn {
            Some(turn) => turn.say(event).await.map(drop)?,
            None => add(&self.store, self.path, self.number, event).await.map(drop)?,
        }
        self.number += 1;
        Ok(())
    }

    async fn set(&mut self, scope: &str, json: &str) -> Result<(), AppendError> {
        self.write(event("e", &json.replace('_', scope))).await
    }
}

async fn a_scope_takes_bytes_up_to_its_limit(backend: Backend) {
    let limits = Limits { state_bytes: 20, ..Limits::default() };
    for mut writer in Writer::both(&backend, limits).await {
        for scope in ["", "user:", "app:"] {
            // A letter of two bytes in the key and in the value.
            writer.set(scope, r#"{"_ä":"123456"}"#).await.unwrap();
            writer.set(scope, r#"{"_b":"ä12345"}"#).await.unwrap();
            let full = refusal(writer.set(scope, r#"{"_c":1}"#).await);
            assert!(full.contains("22 bytes, the limit is 20"), "{full}");
            writer.set(scope, r#"{"_b":"1234567"}"#).await.unwrap();
            let longer = refusal(writer.set(scope, r#"{"_b":"12345678"}"#).await);
            assert!(longer.contains("21 bytes, the limit is 20"), "{longer}");
            writer.set(scope, r#"{"_ä":1,"_c":"1234"}"#).await.unwrap();
            let expected = [("ä", "1"), ("b", "\"1234567\""), ("c", "\"1234\"")];
            let found = find(&writer.store, writer.path).await.unwrap().state;
            for (key, value) in expected {
                assert_eq!(found.value(&format!("{scope}{key}")).unwrap().get(), value);
            }
        }
        // Both writers share the scope of the agent.
        for shared in ["app:ä", "app:b", "app:c"] {
            assert!(writer.store.delete_key(&key(writer.path), shared).await.unwrap());
        }
    }
}

async fn a_scope_takes_keys_up_to_its_limit(backend: Backend) {
    let limits = Limits { state_keys: 3, null_removes: true, ..Limits::default() };
    for mut writer in Writer::both(&backend, limits).await {
        for scope in ["", "user:", "app:"] {
            writer.set(scope, r#"{"_a":1,"_b":1}"#).await.unwrap();
            let two = refusal(writer.set(scope, r#"{"_c":1,"_d":1}"#).await);
            assert!(two.contains("4 keys, the limit is 3"), "{two}");
            writer.set(scope, r#"{"_c":1}"#).await.unwrap();
            writer.set(scope, r#"{"_a":2,"_b":2,"_c":2}"#).await.unwrap();
            let one = refusal(writer.set(scope, r#"{"_d":1}"#).await);
            assert!(one.contains("4 keys, the limit is 3"), "{one}");
            writer.set(scope, r#"{"_a":null,"_d":1}"#).await.unwrap();
            writer.set(scope, r#"{"_b":null,"_c":null,"_d":null}"#).await.unwrap();
        }
        assert_eq!(state_of(&writer.store, writer.path).await, "{}");
    }
}

async fn a_history_has_events_up_to_its_limit(backend: Backend) {
    for mut writer in Writer::both(&backend, Limits { events: 3, ..Limits::default() }).await {
        for (id, expected) in
            [("a", ["a"].as_slice()), ("b", &["a", "b"]), ("c", &["a", "b", "c"]), ("d", &["b", "c", "d"])]
        {
            writer.write(event(id, "{}")).await.unwrap();
            assert_eq!(ids(&events(&writer.store, writer.path).await), expected);
        }
        assert_eq!(find(&writer.store, writer.path).await.unwrap().number, 4);
    }
}

fn with(artifacts: &[(&str, usize)]) -> Event {
    let parts = |bytes: &usize| vec![Part::text("x".repeat(bytes - size_of::<Part>()))].into();
    let artifacts: BTreeMap<_, _> = artifacts.iter().map(|(name, bytes)| ((*name).to_owned(), parts(bytes))).collect();
    Event { artifacts, ..event("e", "{}") }
}

/// The names of the artifacts that a conversation has.
async fn kept(writer: &Writer) -> String {
    let mut kept = String::new();
    for name in ["a", "b", "c", "d"] {
        if writer.store.artifact(&key(writer.path), name).await.unwrap().is_some() {
            kept.push_str(name);
        }
    }
    kept
}

async fn artifacts_take_room_up_to_their_limits(backend: Backend) {
    let limits = Limits { artifacts: 3, artifact_bytes: 1_000, ..Limits::default() };
    for mut writer in Writer::both(&backend, limits).await {
        writer.write(with(&[("a", 300), ("b", 300)])).await.unwrap();
        writer.write(with(&[("c", 400)])).await.unwrap();
        assert_eq!(kept(&writer).await, "abc", "the bytes and the number are just those of the limits");
        writer.write(with(&[("c", 401)])).await.unwrap();
        assert_eq!(kept(&writer).await, "bc", "one byte more");
        writer.write(with(&[("a", 200)])).await.unwrap();
        assert_eq!(kept(&writer).await, "abc");
        writer.write(with(&[("d", 150)])).await.unwrap();
        assert_eq!(kept(&writer).await, "acd", "one artifact more");
        writer.write(with(&[("b", 1_000)])).await.unwrap();
        assert_eq!(kept(&writer).await, "b");
        let refused = refusal(writer.write(with(&[("a", 1_001)])).await);
        assert_eq!(refused, r#"artifact "a" takes 1001 bytes, the limit is 1000"#);
        assert_eq!(kept(&writer).await, "b");
    }
}

async fn each_event_of_an_append_writes_a_version_of_its_artifact(backend: Backend) {
    let store = backend.within(Limits { artifacts: 2, ..Limits::default() }).await;
    let turn = open(&store, "s").await;
    let said = [with(&[("b", 100)]), with(&[("a", 100), ("b", 200)]), with(&[("c", 100)]), with(&[("b", 300)])];
    turn.append(said.map(Entry::from)).await.unwrap();
    let version = async |name| store.artifact(&key("s"), name).await.unwrap().map(|artifact| artifact.version);
    assert_eq!((version("a").await, version("b").await, version("c").await), (None, Some(3), Some(1)));
}

async fn keys_that_appends_set_one_after_the_other_keep_that_order(backend: Backend) {
    for mut writer in Writer::both(&backend, Limits::default()).await {
        let names: Vec<String> = ('a'..='z').rev().map(|name| name.to_string()).collect();
        for name in &names {
            writer.write(event(name, &format!(r#"{{"{name}2":1,"{name}1":1}}"#))).await.unwrap();
        }
        let state = find(&writer.store, writer.path).await.unwrap().state;
        let kept: Vec<_> = state.own().iter().map(|(name, _)| name.to_owned()).collect();
        let expected: Vec<_> = names.iter().flat_map(|name| [format!("{name}2"), format!("{name}1")]).collect();
        assert_eq!(kept, expected);
    }
}
