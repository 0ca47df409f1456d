//! The scopes of state: the readers of each key, and the effect of a change.

use std::time::Duration;

use annex_conversation::{ConversationKey, Holdings, Owner, Scope, Window};
use annex_protocol::Json;

use crate::support::{
    Backend, add, create, delta, event, events, find, key, make, next_millisecond, refusal, state_of,
    sweep_conversations,
};

on_every_store!(
    initial_state_is_kept_by_scope_and_temp_is_dropped,
    only_the_first_known_prefix_in_lower_case_is_a_scope,
    a_failed_create_applies_nothing,
    one_context_id_under_two_users_is_two_conversations,
    shared_keys_reach_exactly_their_scope,
    a_later_conversation_overrides_what_it_shares,
    a_context_id_with_white_space_around_it_or_without_a_character_is_refused,
    a_conversation_that_was_read_is_a_copy,
    a_delta_replaces_whole_values,
    null_is_a_value,
    values_and_keys_keep_their_text_and_order,
    keys_that_differ_in_case_or_normalisation_are_different_keys,
    deleting_a_conversation_leaves_shared_state,
    what_an_anonymous_user_keeps_goes_with_the_conversation,
    deleting_what_is_missing_or_foreign_does_nothing,
    what_a_tenant_holds_is_counted,
    the_users_of_a_context_are_named_in_order,
);

async fn what_a_tenant_holds_is_counted(backend: Backend) {
    let store = backend.store().await;
    let of = |tenant: &str, context: &str| ConversationKey::new(tenant, "a", "u", context);
    make(&store, &of("t", "one"), delta(r#"{"k":"abc","user:shared":1,"app:all":true}"#)).await.unwrap();
    make(&store, &of("t", "two"), delta(r#"{"user:shared":22}"#)).await.unwrap();
    make(&store, &of("u", "one"), delta(r#"{"k":1}"#)).await.unwrap();
    let held = store.holdings("t").await.unwrap();
    // `k` and "abc", `shared` and 22, `all` and true.
    assert_eq!(held, Holdings { conversations: 2, tasks: 0, turns: 0, state_bytes: (1 + 5) + (6 + 2) + (3 + 4) });
    assert_eq!(store.holdings("u").await.unwrap(), Holdings { conversations: 1, tasks: 0, turns: 0, state_bytes: 2 });
    assert!(store.delete(&of("t", "one")).await.unwrap());
    assert_eq!(
        store.holdings("t").await.unwrap(),
        Holdings { conversations: 1, tasks: 0, turns: 0, state_bytes: 8 + 7 }
    );
    assert_eq!(store.holdings("none").await.unwrap(), Holdings::default());
}

async fn the_users_of_a_context_are_named_in_order(backend: Backend) {
    let store = backend.store().await;
    for path in ["t/a/mia/c", "t/a/ada/c", "t/a/bob/other", "t/b/eve/c", "u/a/zoe/c"] {
        create(&store, path, "{}").await;
    }
    let users = async |context: &str, limit| store.users_in("t", "a", &context.into(), limit).await.unwrap();
    assert_eq!(users("c", 9).await, ["ada", "mia"]);
    assert_eq!(users("c", 1).await, ["ada"]);
    assert_eq!(users("none", 9).await, Vec::<String>::new());
}

async fn initial_state_is_kept_by_scope_and_temp_is_dropped(backend: Backend) {
    let store = backend.store().await;
    let created = create(&store, "s", r#"{"k":1,"app:k":2,"user:k":3,"temp:k":4}"#).await;
    assert_eq!(created.state.merged().to_json_string(), r#"{"k":1,"app:k":2,"user:k":3}"#);
    assert_eq!(created.number, 1);
    assert_eq!(find(&store, "s").await, Some(created));
}

async fn only_the_first_known_prefix_in_lower_case_is_a_scope(backend: Backend) {
    let cases = [
        ("foo:bar", Scope::Conversation, "foo:bar"),
        ("App:y", Scope::Conversation, "App:y"),
        ("app:app:z", Scope::App, "app:z"),
        ("user:", Scope::User, ""),
        ("temp:x", Scope::Temp, "x"),
        ("temperature", Scope::Conversation, "temperature"),
    ];
    for (full_key, scope, name) in cases {
        assert_eq!(Scope::of(full_key), (scope, name), "{full_key}");
    }
    let store = backend.store().await;
    create(&store, "s", r#"{"foo:bar":1,"App:y":2,"app:":3,"app:app:z":4}"#).await;
    assert_eq!(state_of(&store, "s").await, r#"{"foo:bar":1,"App:y":2,"app:":3,"app:app:z":4}"#);
}

async fn a_failed_create_applies_nothing(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", r#"{"a":1}"#).await;
    let again = make(&store, &key("s"), delta(r#"{"a":2,"user:b":2,"app:b":2}"#)).await;
    assert_eq!(refusal(again), "the writer has seen 0 entries, and 1 are stored");
    assert_eq!(state_of(&store, "s").await, r#"{"a":1}"#);
}

async fn one_context_id_under_two_users_is_two_conversations(backend: Backend) {
    let store = backend.store().await;
    create(&store, "ann/s", r#"{"a":"ann"}"#).await;
    create(&store, "bob/s", r#"{"a":"bob"}"#).await;
    assert_eq!(state_of(&store, "ann/s").await, r#"{"a":"ann"}"#);
    assert_eq!(state_of(&store, "bob/s").await, r#"{"a":"bob"}"#);
}

async fn shared_keys_reach_exactly_their_scope(backend: Backend) {
    let store = backend.store().await;
    create(&store, "acme/agent/ann/one", r#"{"k":0,"user:k":1,"app:k":2}"#).await;
    let cases = [
        ("acme/agent/ann/two", r#"{"app:k":2,"user:k":1}"#),
        ("acme/agent/bob/one", r#"{"app:k":2}"#),
        ("acme/other/ann/one", "{}"),
        ("globex/agent/ann/one", "{}"),
    ];
    for (path, expected) in cases {
        create(&store, path, "{}").await;
        assert_eq!(state_of(&store, path).await, expected, "{path}");
    }
}

async fn a_later_conversation_overrides_what_it_shares(backend: Backend) {
    let store = backend.store().await;
    create(&store, "ann/one", r#"{"user:k":1,"app:k":1}"#).await;
    create(&store, "ann/two", r#"{"user:k":2}"#).await;
    assert_eq!(state_of(&store, "ann/one").await, r#"{"app:k":1,"user:k":2}"#);
}

async fn a_context_id_with_white_space_around_it_or_without_a_character_is_refused(backend: Backend) {
    let store = backend.store().await;
    for context in ["  s1 ", " ", ""] {
        let expected = format!("context id {context:?} is empty or has white space around it");
        assert_eq!(refusal(make(&store, &key(context), delta("{}")).await), expected);
        assert_eq!(refusal(add(&store, context, 0, event("e", "{}")).await), expected);
        assert_eq!(find(&store, context).await, None);
    }
}

async fn a_conversation_that_was_read_is_a_copy(backend: Backend) {
    let store = backend.store().await;
    let copy = create(&store, "s", r#"{"a":1}"#).await;
    let mut changed = copy.clone().state.merged();
    changed.insert("a".to_owned(), Json::string("changed"));
    assert_eq!(state_of(&store, "s").await, r#"{"a":1}"#);
    add(&store, "s", 1, event("e", r#"{"a":2}"#)).await.unwrap();
    assert_eq!(copy.state.merged().to_json_string(), r#"{"a":1}"#);
    assert_eq!(state_of(&store, "s").await, r#"{"a":2}"#);
}

async fn a_delta_replaces_whole_values(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", r#"{"o":{"x":1,"y":2},"kept":true}"#).await;
    add(&store, "s", 1, event("e", r#"{"o":{"x":9}}"#)).await.unwrap();
    assert_eq!(state_of(&store, "s").await, r#"{"o":{"x":9},"kept":true}"#);
}

async fn null_is_a_value(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", r#"{"a":1}"#).await;
    add(&store, "s", 1, event("e", r#"{"a":null}"#)).await.unwrap();
    assert_eq!(state_of(&store, "s").await, r#"{"a":null}"#);
}

async fn values_and_keys_keep_their_text_and_order(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", "{}").await;
    let values = r#"{"big":9007199254740993,"sum":0.30000000000000004,"e":1e21,"huge":1e300,"one":1.0,"order":{"z":1,"a":2},"s":"\u00e9","nul":"\u0000","pair":"\ud83d\ude00"}"#;
    add(&store, "s", 1, event("e", values)).await.unwrap();
    assert_eq!(state_of(&store, "s").await, values);
    assert_eq!(events(&store, "s").await[0].state_delta, delta(values));
    add(&store, "s", 2, event("f", r#"{"new":1,"e":2}"#)).await.unwrap();
    let expected = values.replace("1e21", "2").strip_suffix('}').unwrap().to_owned() + r#","new":1}"#;
    assert_eq!(state_of(&store, "s").await, expected);
}

async fn keys_that_differ_in_case_or_normalisation_are_different_keys(backend: Backend) {
    let store = backend.store().await;
    let composed_and_not = "{\"k\":1,\"K\":2,\"\u{e9}\":3,\"e\u{301}\":4,\"k \":5,\"user:k\":6,\"user:K\":7}";
    create(&store, "s", composed_and_not).await;
    assert_eq!(find(&store, "s").await.unwrap().state.merged().len(), 7);
    create(&store, "S", "{}").await;
    assert_eq!(state_of(&store, "S").await, r#"{"user:k":6,"user:K":7}"#);
}

async fn deleting_a_conversation_leaves_shared_state(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", r#"{"a":1,"user:b":2,"app:c":3}"#).await;
    add(&store, "s", 1, event("e", "{}")).await.unwrap();
    assert!(store.delete(&key("s")).await.unwrap());
    assert_eq!(find(&store, "s").await, None);

    let again = create(&store, "s", "{}").await;
    assert_eq!(again.state.merged().to_json_string(), r#"{"app:c":3,"user:b":2}"#);
    assert_eq!(again.number, 1);
    assert!(events(&store, "s").await.is_empty());
}

async fn what_an_anonymous_user_keeps_goes_with_the_conversation(backend: Backend) {
    let store = backend.store().await;
    for is_swept in [false, true] {
        let anonymous = Owner { tenant: "t".to_owned(), principal: String::new() };
        let keys = ["c", "c_2"].map(|context| ConversationKey::of("a", &anonymous, &context.into()));
        for key in keys.iter().chain([&key("t/a/ann/c")]) {
            make(&store, key, delta(r#"{"a":1,"user:b":2,"app:c":3}"#)).await.unwrap();
        }
        if is_swept {
            // What was changed in this very millisecond is not old yet.
            next_millisecond().await;
            assert_eq!(sweep_conversations(&store, Duration::ZERO, 100).await, 3);
        } else {
            assert!(store.delete(&keys[0]).await.unwrap());
        }
        let left = async |key: &ConversationKey| store.conversation(key, Window::NONE).await.unwrap().state.merged();
        assert_eq!(left(&keys[0]).await.to_json_string(), r#"{"app:c":3}"#);
        let others = if is_swept { r#"{"app:c":3}"# } else { r#"{"a":1,"app:c":3,"user:b":2}"# };
        assert_eq!(left(&keys[1]).await.to_json_string(), others);
        assert_eq!(left(&key("t/a/ann/new")).await.to_json_string(), r#"{"app:c":3,"user:b":2}"#);
        for key in keys.iter().chain([&key("t/a/ann/c")]) {
            store.delete(key).await.unwrap();
        }
    }
}

async fn deleting_what_is_missing_or_foreign_does_nothing(backend: Backend) {
    let store = backend.store().await;
    create(&store, "ann/s", r#"{"a":1}"#).await;
    assert!(!store.delete(&key("bob/s")).await.unwrap());
    assert!(!store.delete(&key("ann/other")).await.unwrap());
    assert_eq!(state_of(&store, "ann/s").await, r#"{"a":1}"#);
}

#[test]
fn a_delta_names_the_scopes_it_touches_and_merges_by_key() {
    let mut first = delta(r#"{"a":1,"temp:t":1,"user:u":1}"#);
    assert_eq!(first.scopes().into_iter().collect::<Vec<_>>(), [Scope::Conversation, Scope::User, Scope::Temp]);
    first.merge(delta(r#"{"a":2,"app:b":3}"#));
    assert_eq!(first, delta(r#"{"a":2,"temp:t":1,"user:u":1,"app:b":3}"#));
}
