//! The memory store when it is full.

use annex_session::Bounds;

use crate::support::{add, create, event, find, key, memory, open, query, state_of};

#[tokio::test]
async fn the_session_that_was_idle_longest_goes_first() {
    let service = memory(Bounds { max_sessions: 2, ..Bounds::default() });
    create(&service, "one", "{}").await;
    create(&service, "two", "{}").await;
    find(&service, "one").await;
    create(&service, "three", "{}").await;
    assert!(find(&service, "two").await.is_none());
    assert!(find(&service, "one").await.is_some());
    assert!(find(&service, "three").await.is_some());
}

#[tokio::test]
async fn a_session_with_a_turn_running_stays() {
    let service = memory(Bounds { max_sessions: 1, ..Bounds::default() });
    let running = open(&service, "running").await;
    running.append(event("e", r#"{"a":1,"user:b":2}"#)).await.unwrap();
    create(&service, "next", "{}").await;
    assert_eq!(running.state().to_json_string(), r#"{"a":1,"user:b":2}"#);
    assert!(find(&service, "next").await.is_none(), "the new one is the only one that may go");

    let second = open(&service, "second").await;
    second.append(event("e", "{}")).await.unwrap();
    assert!(running.exists() && second.exists(), "running turns may exceed the bounds");
    drop(running);
    assert!(second.exists());
    assert!(find(&service, "running").await.is_none());
}

#[tokio::test]
async fn bytes_count_and_shared_maps_go_after_their_sessions() {
    let service = memory(Bounds { max_bytes: 7 * 1024, ..Bounds::default() });
    let kilobyte = "x".repeat(1024);
    create(&service, "ann/first", &format!(r#"{{"a":"{kilobyte}","user:k":"{kilobyte}"}}"#)).await;
    create(&service, "bob/first", &format!(r#"{{"a":"{kilobyte}"}}"#)).await;
    create(&service, "bob/second", &format!(r#"{{"a":"{kilobyte}"}}"#)).await;
    create(&service, "bob/third", &format!(r#"{{"a":"{kilobyte}"}}"#)).await;
    assert!(find(&service, "ann/first").await.is_none());

    create(&service, "ann/again", "{}").await;
    assert_eq!(find(&service, "ann/again").await.unwrap().state.merged().len(), 1, "the user's own map is still there");
    for index in 0..8 {
        create(&service, &format!("bob/{index}"), &format!(r#"{{"a":"{kilobyte}"}}"#)).await;
    }
    create(&service, "ann/last", "{}").await;
    assert_eq!(state_of(&service, "ann/last").await, "{}", "nothing of an idle user is kept forever");
}

#[tokio::test]
async fn shared_state_is_never_dropped_under_a_session_that_sees_it() {
    let service = memory(Bounds { max_bytes: 8 * 1024, ..Bounds::default() });
    open(&service, "ann/s").await.append(event("e", r#"{"user:k":1}"#)).await.unwrap();
    let mut rounds = 0;
    while let [session] = service.list(&query(Some("ann"))).await.unwrap().as_slice() {
        assert_eq!(session.state.merged().to_json_string(), r#"{"user:k":1}"#);
        create(&service, &format!("bob/{rounds}"), "{}").await;
        rounds += 1;
    }
    assert!(rounds > 5);
}

#[tokio::test]
async fn memory_is_given_back() {
    let service = memory(Bounds { max_bytes: 64 * 1024, ..Bounds::default() });
    let kilobyte = "x".repeat(1024);
    for round in 0..200 {
        let path = format!("ann/{round}");
        create(&service, &path, "{}").await;
        add(&service, &path, 1, event("e", &format!(r#"{{"a":"{kilobyte}"}}"#))).await.unwrap();
        service.delete(&key(&path)).await.unwrap();
    }
    create(&service, "ann/kept", "{}").await;
    for index in 0..10 {
        create(&service, &format!("ann/other-{index}"), &format!(r#"{{"a":"{kilobyte}"}}"#)).await;
    }
    assert!(find(&service, "ann/kept").await.is_some(), "deleted sessions no longer count");
}
