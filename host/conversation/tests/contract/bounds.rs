//! The memory store when it is full.

use annex_conversation::MemoryBounds;

use crate::support::{Says, add, create, event, find, key, memory, open, query, state_of};

#[tokio::test]
async fn the_conversation_that_was_idle_longest_goes_first() {
    let store = memory(MemoryBounds { max_conversations: 2, ..MemoryBounds::default() });
    create(&store, "one", "{}").await;
    create(&store, "two", "{}").await;
    find(&store, "one").await;
    create(&store, "three", "{}").await;
    assert!(find(&store, "two").await.is_none());
    assert!(find(&store, "one").await.is_some());
    assert!(find(&store, "three").await.is_some());
}

#[tokio::test]
async fn a_conversation_with_a_turn_stays() {
    let store = memory(MemoryBounds { max_conversations: 1, ..MemoryBounds::default() });
    let running = open(&store, "running").await;
    running.say(event("e", r#"{"a":1,"user:b":2}"#)).await.unwrap();
    create(&store, "next", "{}").await;
    assert_eq!(running.state().to_json_string(), r#"{"a":1,"user:b":2}"#);
    assert!(find(&store, "next").await.is_none(), "the new one is the only one that may go");

    let second = open(&store, "second").await;
    second.say(event("e", "{}")).await.unwrap();
    assert!(running.exists() && second.exists(), "running turns may exceed the bounds");
    running.close().await;
    assert!(second.exists());
    assert!(find(&store, "running").await.is_none());
}

#[tokio::test]
async fn bytes_count_and_shared_maps_go_after_their_conversations() {
    let store = memory(MemoryBounds { max_conversation_bytes: 68 * 1024, ..MemoryBounds::default() });
    // A conversation counts its state and the event that changed it.
    let large = "x".repeat(8 * 1024);
    create(&store, "ann/first", &format!(r#"{{"a":"{large}","user:k":"{large}"}}"#)).await;
    create(&store, "bob/first", &format!(r#"{{"a":"{large}"}}"#)).await;
    create(&store, "bob/second", &format!(r#"{{"a":"{large}"}}"#)).await;
    create(&store, "bob/third", &format!(r#"{{"a":"{large}"}}"#)).await;
    assert!(find(&store, "ann/first").await.is_none());

    create(&store, "ann/again", "{}").await;
    assert_eq!(find(&store, "ann/again").await.unwrap().state.merged().len(), 1, "the user's own map is still there");
    for index in 0..8 {
        create(&store, &format!("bob/{index}"), &format!(r#"{{"a":"{large}"}}"#)).await;
    }
    create(&store, "ann/last", "{}").await;
    assert_eq!(state_of(&store, "ann/last").await, "{}", "nothing of an idle user is kept forever");
}

#[tokio::test]
async fn shared_state_is_never_dropped_under_a_conversation_that_sees_it() {
    let store = memory(MemoryBounds { max_conversation_bytes: 8 * 1024, ..MemoryBounds::default() });
    let turn = open(&store, "ann/s").await;
    turn.say(event("e", r#"{"user:k":1}"#)).await.unwrap();
    turn.close().await;
    let mut rounds = 0;
    while let [found] = store.list(&query(Some("ann"))).await.unwrap().as_slice() {
        assert_eq!(found.state.merged().to_json_string(), r#"{"user:k":1}"#);
        create(&store, &format!("bob/{rounds}"), "{}").await;
        rounds += 1;
    }
    assert!(rounds > 5);
}

#[tokio::test]
async fn memory_is_given_back() {
    let store = memory(MemoryBounds { max_conversation_bytes: 64 * 1024, ..MemoryBounds::default() });
    let kilobyte = "x".repeat(1024);
    for round in 0..200 {
        let path = format!("ann/{round}");
        create(&store, &path, "{}").await;
        add(&store, &path, 1, event("e", &format!(r#"{{"a":"{kilobyte}"}}"#))).await.unwrap();
        store.delete(&key(&path)).await.unwrap();
    }
    create(&store, "ann/kept", "{}").await;
    for index in 0..10 {
        create(&store, &format!("ann/other-{index}"), &format!(r#"{{"a":"{kilobyte}"}}"#)).await;
    }
    assert!(find(&store, "ann/kept").await.is_some(), "deleted sessions no longer count");
}
