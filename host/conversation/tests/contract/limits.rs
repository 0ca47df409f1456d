//! Limits, which refuse some events and drop what is old.

use std::time::Duration;

use annex_conversation::{Limits, MAX_KEY_BYTES, Scope};
use annex_protocol::Timestamp;

use crate::support::{
    Backend, add, create, delta, event, event_at, events, find, ids, key, make, next_millisecond, refusal, state_of,
    sweep_conversations,
};

on_every_store!(
    state_beyond_the_limit_is_refused_and_nothing_is_stored,
    too_many_keys_are_refused,
    a_value_that_nests_too_deep_is_refused,
    a_key_that_is_too_long_is_refused,
    a_state_key_with_characters_that_nobody_sees_is_refused,
    a_name_with_a_nul_is_refused,
    old_events_are_dropped_and_their_state_stays,
    a_sweep_deletes_what_is_old_and_what_is_too_much,
    a_sweep_counts_the_conversations_of_each_tenant,
);

async fn state_beyond_the_limit_is_refused_and_nothing_is_stored(backend: Backend) {
    let store = backend.within(Limits { state_bytes: 16, ..Limits::default() }).await;
    create(&store, "s", r#"{"a":"12345678"}"#).await;
    let cases = [
        (r#"{"b":"12345678"}"#, Scope::Conversation, 22),
        (r#"{"c":1,"user:b":"1234567890123456"}"#, Scope::User, 19),
        (r#"{"c":1,"user:d":1,"app:b":"1234567890123456"}"#, Scope::App, 19),
    ];
    for (change, scope, bytes) in cases {
        let expected = format!(
            "{scope} state would take {bytes} bytes, the limit is 16; set smaller values, or ask the operator to delete keys \
             or raise sessions.max_state_bytes"
        );
        assert_eq!(refusal(add(&store, "s", 1, event("e", change)).await), expected, "{change}");
        let created = make(&store, &key("new"), delta(change)).await;
        assert_eq!(created.err().map(|error| error.to_string()), (scope != Scope::Conversation).then_some(expected));
        store.delete(&key("new")).await.unwrap();
    }
    assert_eq!(state_of(&store, "s").await, r#"{"a":"12345678"}"#);
    assert!(events(&store, "s").await.is_empty());
    let replaced = add(&store, "s", 1, event("e", r#"{"a":"1234567890123"}"#)).await;
    assert!(replaced.is_ok(), "a value that is replaced no longer counts");
}

async fn too_many_keys_are_refused(backend: Backend) {
    let store = backend.within(Limits { state_keys: 3, ..Limits::default() }).await;
    create(&store, "s", r#"{"a":1,"b":1,"c":1,"user:a":1}"#).await;
    add(&store, "s", 1, event("same", r#"{"a":2,"b":2}"#)).await.unwrap();
    let way_out = "use keys that are there, or ask the operator to delete some or raise sessions.max_state_keys";
    let expected = format!("conversation state would have 4 keys, the limit is 3; {way_out}");
    assert_eq!(refusal(add(&store, "s", 2, event("e", r#"{"user:b":1,"d":1}"#)).await), expected);
    let many: String = (0..1_000_000).map(|number| format!(r#","app:{number}":1"#)).collect();
    let many = make(&store, &key("t"), delta(&format!("{{{}}}", &many[1..]))).await;
    assert_eq!(refusal(many), format!("app state would have 1000000 keys, the limit is 3; {way_out}"));
    assert_eq!(state_of(&store, "s").await, r#"{"a":2,"b":2,"c":1,"user:a":1}"#);
}

async fn a_value_that_nests_too_deep_is_refused(backend: Backend) {
    let store = backend.within(Limits { state_depth: 3, ..Limits::default() }).await;
    add(&store, "s", 0, event("e", r#"{"a":[[{}]]}"#)).await.unwrap();
    let deep = add(&store, "s", 1, event("f", r#"{"b":1,"user:a":[[[[]]]]}"#)).await;
    assert_eq!(refusal(deep), r#"the value of state key "user:a" nests deeper than 3 levels"#);
    assert_eq!(state_of(&store, "s").await, r#"{"a":[[{}]]}"#);
}

async fn a_key_that_is_too_long_is_refused(backend: Backend) {
    let store = backend.store().await;
    let longest = "k".repeat(MAX_KEY_BYTES - 2);
    add(&store, "s", 0, event("e", &format!(r#"{{"{longest}":1}}"#))).await.unwrap();
    let longer = add(&store, "s", 1, event("f", &format!(r#"{{"{longest}k":1}}"#))).await;
    assert_eq!(refusal(longer), "the state key is longer than 600 bytes or contains a NUL character");
}

async fn a_state_key_with_characters_that_nobody_sees_is_refused(backend: Backend) {
    let store = backend.store().await;
    let unseen = [
        "\0",
        "a\n",
        "\t",
        "\u{1b}[2J",
        "\u{7f}",
        "\u{85}",
        "\u{9b}31m",
        "\u{ad}",
        "\u{200b}",
        "\u{200d}",
        "\u{202e}admin",
        "user_info\u{2028}",
        "\u{2029}",
        "\u{2066}",
        "\u{feff}user_info",
        "\u{e0041}",
    ];
    for key in unseen.into_iter().flat_map(|key| [key.to_owned(), format!("user:{key}")]) {
        let delta = serde_json::json!({ &key: 1 }).to_string();
        let expected =
            format!("the state key {key:?} has control or format characters or line separators; leave them out");
        assert_eq!(refusal(add(&store, "s", 0, event("e", &delta)).await), expected);
        assert_eq!(refusal(make(&store, &self::key("t"), self::delta(&delta)).await), expected);
    }
    assert_eq!(find(&store, "s").await, None);
    let seen = r#"{"user_info":1,"user:größe":2,"名前":3,"a b":4,"__proto__":5,"😀":6,"":7,"e\u0301":8}"#;
    add(&store, "s", 0, event("e", seen)).await.unwrap();
}

async fn a_name_with_a_nul_is_refused(backend: Backend) {
    let store = backend.store().await;
    let long = format!("{}/s", "u".repeat(MAX_KEY_BYTES + 1));
    for (path, field) in [("a\0/s", "user id"), ("s\0t", "context id"), ("b\0/-/s", "agent's name"), (&long, "user id")]
    {
        let expected = format!("the {field} is longer than 600 bytes or contains a NUL character");
        assert_eq!(refusal(add(&store, path, 0, event("e", "{}")).await), expected, "{path:?}");
        assert_eq!(find(&store, path).await, None);
        assert!(!store.delete(&key(path)).await.unwrap());
    }
}

async fn old_events_are_dropped_and_their_state_stays(backend: Backend) {
    let store = backend.within(Limits { events: 2, ..Limits::default() }).await;
    create(&store, "s", "{}").await;
    for (index, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
        add(&store, "s", 1 + index as u64, event(id, &format!(r#"{{"{id}":1}}"#))).await.unwrap();
    }
    assert_eq!(ids(&events(&store, "s").await), ["c", "d"]);
    assert_eq!(state_of(&store, "s").await, r#"{"a":1,"b":1,"c":1,"d":1}"#);
    assert_eq!(find(&store, "s").await.unwrap().number, 5, "dropped events count");
}

async fn a_sweep_counts_the_conversations_of_each_tenant(backend: Backend) {
    let store = backend.store().await;
    for path in ["one/app/ada/s", "other/app/ada/1", "other/app/bob/2", "other/app/ada/3"] {
        create(&store, path, "{}").await;
        next_millisecond().await;
    }
    assert_eq!(sweep_conversations(&store, Duration::MAX, 2).await, 1);
    assert!(find(&store, "one/app/ada/s").await.is_some(), "it is the oldest, and its tenant's only one");
    assert!(find(&store, "other/app/ada/1").await.is_none());
}

async fn a_sweep_deletes_what_is_old_and_what_is_too_much(backend: Backend) {
    let store = backend.store().await;
    let for_ever = Duration::MAX;
    for number in 0..5 {
        // By its own time it is the newest.
        let ahead = Timestamp::now().as_millis() + 1_000_000 - number;
        add(&store, &format!("s{number}"), 0, event_at("e", ahead, r#"{"a":1,"user:a":1}"#)).await.unwrap();
        next_millisecond().await;
    }
    assert_eq!(sweep_conversations(&store, for_ever, u64::MAX).await, 0);
    assert_eq!(sweep_conversations(&store, for_ever, 3).await, 2);
    assert!(find(&store, "s1").await.is_none());
    assert!(find(&store, "s2").await.is_some());
    assert_eq!(sweep_conversations(&store, Duration::from_secs(60), u64::MAX).await, 0);
    assert_eq!(sweep_conversations(&store, Duration::ZERO, u64::MAX).await, 3);
    create(&store, "new", "{}").await;
    assert_eq!(state_of(&store, "new").await, r#"{"user:a":1}"#);
}
