//! Keys that go: by `null` in a delta where that removes them, and by the operator.

use std::collections::BTreeMap;

use annex_conversation::{ConversationKey, Event, Limits, Window};
use annex_protocol::Part;

use crate::support::{Backend, Says, Store, add, append_all, create, delta, event, find, key, open, state_of};

on_every_store!(
    null_removes_keys_of_each_scope_where_it_is_told_to,
    a_scope_that_is_full_takes_new_keys_when_others_are_removed,
    a_turn_sees_no_key_that_it_has_removed,
    an_operator_deletes_one_key_of_the_scope_that_its_prefix_names,
    the_state_of_a_user_outlives_the_conversations_and_can_be_deleted,
    a_key_that_is_deleted_under_a_turn_stays_away,
);

async fn removing(backend: &Backend, limits: Limits) -> Store {
    backend.within(Limits { null_removes: true, ..limits }).await
}

async fn null_removes_keys_of_each_scope_where_it_is_told_to(backend: Backend) {
    let store = removing(&backend, Limits::default()).await;
    let created = create(&store, "s", r#"{"a":1,"b":null,"app:a":1,"app:b":1,"user:a":1,"user:b":1}"#).await;
    assert_eq!(created.state.merged().to_json_string(), r#"{"a":1,"app:a":1,"app:b":1,"user:a":1,"user:b":1}"#);
    // `null` deep in a value stays, and what is not there need not be.
    add(&store, "s", 1, event("e", r#"{"a":null,"none":null,"deep":{"x":null},"app:a":null,"user:a":null}"#))
        .await
        .unwrap();
    assert_eq!(state_of(&store, "s").await, r#"{"deep":{"x":null},"app:b":1,"user:b":1}"#);
    add(&store, "s", 2, event("f", r#"{"deep":null}"#)).await.unwrap();
    add(&store, "s", 3, event("g", r#"{"deep":2}"#)).await.unwrap();
    assert_eq!(state_of(&store, "s").await, r#"{"deep":2,"app:b":1,"user:b":1}"#);
    // Of events that are appended together the last word counts.
    let together = vec![event("h", r#"{"x":1,"deep":null}"#), event("i", r#"{"x":null,"deep":3,"app:b":null}"#)];
    append_all(&store, &key("s"), 4, together).await.unwrap();
    assert_eq!(state_of(&store, "s").await, r#"{"deep":3,"user:b":1}"#);
}

async fn a_scope_that_is_full_takes_new_keys_when_others_are_removed(backend: Backend) {
    let store = removing(&backend, Limits { state_keys: 2, ..Limits::default() }).await;
    create(&store, "s", r#"{"a":1,"b":1,"app:a":1,"app:b":1,"user:a":1,"user:b":1}"#).await;
    for (number, prefix) in (1..).zip(["", "app:", "user:"]) {
        let new = |json: &str| event(&format!("{prefix}e"), &json.replace('_', prefix));
        assert!(add(&store, "s", number, new(r#"{"_c":1}"#)).await.is_err(), "{prefix}");
        add(&store, "s", number, new(r#"{"_a":null,"_c":1}"#)).await.unwrap();
    }
    assert_eq!(state_of(&store, "s").await, r#"{"b":1,"c":1,"app:b":1,"app:c":1,"user:b":1,"user:c":1}"#);
}

async fn a_turn_sees_no_key_that_it_has_removed(backend: Backend) {
    let store = removing(&backend, Limits::default()).await;
    create(&store, "s", r#"{"a":1,"user:b":1,"app:c":1}"#).await;
    let turn = open(&store, "s").await;
    let says = |json: &str| Event::new("agent", "turn", vec![Part::text("x")], delta(json));
    turn.say(says(r#"{"temp:t":1,"temp:u":1}"#)).await.unwrap();
    turn.say(says(r#"{"a":null,"user:b":null,"app:c":null,"temp:t":null}"#)).await.unwrap();
    assert_eq!(turn.state().to_json_string(), r#"{"temp:u":1}"#);
    assert!(["a", "user:b", "app:c", "temp:t"].iter().all(|key| turn.value(key).is_none()));
    let made = Event { artifacts: BTreeMap::from([("f".to_owned(), vec![Part::text("x")].into())]), ..says("{}") };
    turn.say(made).await.unwrap();
    turn.close().await;
    assert_eq!(state_of(&store, "s").await, "{}");
}

async fn an_operator_deletes_one_key_of_the_scope_that_its_prefix_names(backend: Backend) {
    let store = backend.store().await;
    let all = r#"{"a":1,"é \"/":1,"app:a":1,"user:a":1}"#;
    create(&store, "t/agent/ann/s", all).await;
    create(&store, "t/agent/bob/s", all).await;
    create(&store, "t/other/ann/s", all).await;
    create(&store, "u/agent/ann/s", all).await;
    let delete = async |owner: ConversationKey, key: &str| store.delete_key(&owner, key).await.unwrap();
    // Keys that sessions share need no session to be found by.
    let nowhere = || ConversationKey::new("t", "agent", "ann", "");
    for (owner, full_key) in
        [(key("t/agent/ann/s"), "a"), (key("t/agent/ann/s"), "é \"/"), (nowhere(), "user:a"), (nowhere(), "app:a")]
    {
        assert!(delete(owner.clone(), full_key).await, "{full_key}");
        assert!(!delete(owner, full_key).await, "{full_key} is gone");
    }
    let long = "k".repeat(1_000);
    for (owner, full_key) in [
        (key("t/agent/ann/none"), "a"),
        (nowhere(), "a"),
        (key("t/agent/ann/s"), "none"),
        (key("t/agent/ann/s"), "temp:a"),
        (key("t/agent/ann/s"), &long),
        (ConversationKey::new("t\0", "agent", "ann", "s"), "app:a"),
    ] {
        assert!(!delete(owner, full_key).await, "{full_key}");
    }
    assert_eq!(state_of(&store, "t/agent/ann/s").await, "{}");
    assert_eq!(state_of(&store, "t/agent/bob/s").await, r#"{"a":1,"é \"/":1,"user:a":1}"#);
    assert_eq!(find(&store, "t/other/ann/s").await.unwrap().state.merged().len(), 4);
    assert_eq!(find(&store, "u/agent/ann/s").await.unwrap().state.merged().len(), 4);
    // The conversation goes on behind the event that it had.
    add(&store, "t/agent/ann/s", 1, event("e", r#"{"a":2}"#)).await.unwrap();
    assert_eq!(state_of(&store, "t/agent/ann/s").await, r#"{"a":2}"#);
}

async fn the_state_of_a_user_outlives_the_conversations_and_can_be_deleted(backend: Backend) {
    let store = backend.store().await;
    create(&store, "ann/s", r#"{"user:a":1,"user:b":1,"app:c":1}"#).await;
    create(&store, "bob/s", r#"{"user:a":1}"#).await;
    assert!(store.delete(&key("ann/s")).await.unwrap());
    let left = store.conversation(&key("ann/new"), Window::NONE).await.unwrap().state.shared();
    assert_eq!(left.to_json_string(), r#"{"app:c":1,"user:a":1,"user:b":1}"#);
    let ann = ConversationKey::new("-", "-", "ann", "");
    assert_eq!(store.delete_user_state(&ann).await.unwrap(), 2);
    assert_eq!(store.delete_user_state(&ann).await.unwrap(), 0);
    let left = store.conversation(&key("ann/new"), Window::NONE).await.unwrap().state.shared();
    assert_eq!(left.to_json_string(), r#"{"app:c":1}"#);
    assert_eq!(state_of(&store, "bob/s").await, r#"{"app:c":1,"user:a":1}"#);
}

async fn a_key_that_is_deleted_under_a_turn_stays_away(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", r#"{"a":1,"b":1,"app:c":1}"#).await;
    let turn = open(&store, "s").await;
    for full_key in ["a", "app:c"] {
        assert!(store.delete_key(&key("s"), full_key).await.unwrap());
    }
    assert_eq!(turn.value("a").unwrap().get(), "1", "the turn sees what it has read");
    turn.say(Event::new("agent", "turn", vec![Part::text("x")], delta(r#"{"b":2}"#))).await.unwrap();
    turn.close().await;
    assert_eq!(state_of(&store, "s").await, r#"{"b":2}"#);
}

/// A deletion looks for the rows that refer to the deleted one. Without an index it reads the tables of all tenants.
#[tokio::test]
async fn each_foreign_key_has_an_index_with_all_rows() {
    crate::backend::on_sqlite(async |backend: Backend| {
        backend.store().await;
        let without = "
            SELECT m.name || '.' || f.\"from\" FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f
            WHERE m.type = 'table' AND NOT EXISTS (
                SELECT 1 FROM pragma_index_list(m.name) AS l, pragma_index_info(l.name) AS i
                WHERE l.partial = 0 AND i.seqno = 0 AND i.name = f.\"from\")";
        assert_eq!(backend.rows(without).await, [] as [String; 0]);
        let all = "SELECT m.name FROM sqlite_master AS m, pragma_foreign_key_list(m.name)";
        assert!(backend.rows(all).await.len() >= 5, "foreign keys are found");
    })
    .await;
}
