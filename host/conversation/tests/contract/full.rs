//! The memory store when it is full of tasks.

use annex_conversation::{
    Append, AppendError, Claim, Entrance, Entry, MemoryBounds, MessageKey, Outcome, Owner, Position, Submission,
    TaskQuery, TaskSnapshot, UserMessage, Window,
};
use annex_protocol::{
    Artifact, Json, Message, Metadata, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent, Timestamp,
};
use std::sync::Arc;

use crate::support::{Store, WritesTasks, at, change, holder, key_of, memory, owner, submission, task, working};

fn store(max_tasks: usize, max_task_bytes: usize) -> Store {
    memory(MemoryBounds { max_tasks, max_task_bytes, ..MemoryBounds::default() })
}

async fn has(store: &Store, id: &str) -> bool {
    store.task(&id.into()).await.unwrap().is_some()
}

#[tokio::test]
async fn a_full_store_drops_the_finished_task_that_is_oldest() {
    let store = store(3, 1 << 20);
    let ada = owner("ada");
    store.begin(&ada, &task("live", TaskState::InputRequired, at(1))).await.unwrap();
    store.begin(&ada, &task("new", TaskState::Completed, at(3))).await.unwrap();
    store.begin(&ada, &task("old", TaskState::Completed, at(2))).await.unwrap();
    store.run(&owner("bob"), &working("t-1")).await.unwrap();
    assert!(has(&store, "live").await && has(&store, "new").await && !has(&store, "old").await);
    store.run(&owner("eve"), &working("t-2")).await.unwrap();
    assert!(has(&store, "live").await && !has(&store, "new").await);
    store.run(&owner("mal"), &working("t-3")).await.unwrap();
    assert!(!has(&store, "live").await, "one that waits goes when no finished one is left");
    let refused = store.run(&owner("zoe"), &working("t-4")).await.err();
    assert!(matches!(refused, Some(AppendError::Full)), "{refused:?}");
}

#[tokio::test]
async fn a_store_without_room_lets_tasks_end_but_not_grow() {
    let store = store(10, 6_000);
    let ada = owner("ada");
    let mut turn = store.run(&ada, &working("t-1")).await.unwrap();
    let refused = loop {
        let still = change(&mut working("t-1"), TaskState::Working, at(2_000));
        match turn.write(&[still], false).await {
            Ok(_) => {}
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, AppendError::Full), "{refused}");
    assert!(turn.number > 2, "the store had room");
    // What is left of it at its end is less than it was.
    turn.end(TaskState::Completed, at(4_000)).await.unwrap();
    // And it goes when its room is wanted.
    store.run(&ada, &working("t-2")).await.unwrap();
    assert!(has(&store, "t-1").await && has(&store, "t-2").await);
    for number in 0..9 {
        store.begin(&ada, &task(&format!("f-{number}"), TaskState::Completed, at(5_000))).await.unwrap();
    }
    assert!(!has(&store, "t-1").await && has(&store, "t-2").await);
}

#[tokio::test]
async fn a_finished_task_is_kept_without_its_entries() {
    let store = store(10, 4_000);
    let mut finished = working("t-1");
    store.begin(&owner("ada"), &finished).await.unwrap();
    let entries = async || store.entries_after(&"t-1".into(), 0, (10, usize::MAX)).await.unwrap().len();
    assert_eq!(entries().await, 1);
    let entry = change(&mut finished, TaskState::Completed, at(2_000));
    assert_eq!(store.add(&finished.id, 1, &entry, &finished).await.unwrap(), 2);
    assert_eq!(entries().await, 0);
    let stored = store.load(&owner("ada"), &finished.id).await.unwrap();
    assert_eq!((stored.number, (*stored.decode().unwrap()).clone()), (2, finished));
}

#[tokio::test]
async fn a_task_larger_than_the_store_displaces_nothing() {
    let store = store(10, 2_000);
    store.begin(&owner("ada"), &task("old", TaskState::Completed, at(2))).await.unwrap();
    let mut large = working("large");
    large.history = vec![Message::user_text(&"x".repeat(2_000))];
    let refused = store.begin(&owner("ada"), &large).await.unwrap_err();
    assert!(matches!(refused, AppendError::Full), "{refused}");
    assert!(has(&store, "old").await);
}

#[tokio::test]
async fn what_an_entry_brings_counts_wherever_it_is() {
    let text = "x".repeat(10_000);
    let part = || vec![Part::text(text.clone())];
    let metadata = || Metadata::from_iter([("k".to_owned(), Json::string(&text))]);
    let task_id = || "t-1".into();
    let message = || Message { parts: part().into(), ..Message::default() };
    let artifact = |parts: Vec<Part>, metadata| {
        let artifact = Artifact { parts: parts.into(), metadata, ..Artifact::default() };
        StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent { task_id: task_id(), artifact, ..Default::default() })
    };
    let status = TaskStatus { message: Some(message()), ..TaskStatus::default() };
    let entries: [Entry; 4] = [
        artifact(part(), Metadata::new()).into(),
        artifact(Vec::new(), metadata()).into(),
        StreamResponse::StatusUpdate(TaskStatusUpdateEvent { task_id: task_id(), status, ..Default::default() }).into(),
        Entry::Message(Arc::new(UserMessage { message: message(), event: None, opens: None })),
    ];
    for entry in entries {
        let store = store(10, 10_000);
        let task = working("t-1");
        store.begin(&owner("ada"), &task).await.unwrap();
        let refused = store.add(&task.id, 1, &entry, &task).await.unwrap_err();
        assert!(matches!(refused, AppendError::Full), "{entry:?}: {refused}");
    }
}

fn message(id: &str) -> MessageKey {
    MessageKey { context: "c-1".into(), message: id.into(), digest: [0; 32] }
}

async fn claim(store: &Store, owner: &Owner, id: &str) -> Claim {
    store.claim(owner, &message(id), &"t-0".into(), &holder("one")).await.unwrap()
}

/// Claims a message and answers it with so many letters. Returns what its next delivery gets.
async fn ask(store: &Store, owner: &Owner, id: &str, length: usize) -> Claim {
    assert_eq!(claim(store, owner, id).await, Claim::New("t-0".into()));
    let task = TaskSnapshot::submitted("t-0".into(), "c-1".into(), Timestamp::now());
    let key = key_of(owner, &task);
    let submission = Submission { message: Some(message(id)), ..submission("one", "t-0") };
    let Entrance::Runs(fence, _) = store.enter(&key, submission, Window::NONE).await.unwrap() else {
        panic!("no other turn runs")
    };
    let answer = Message::agent("c-1".into(), None, vec![Part::text("x".repeat(length))]);
    let append = Append {
        by: Some(&fence),
        task: Some(&task),
        ends: true,
        outcome: Outcome::Answer(&answer),
        ..Append::default()
    };
    store.append(&key, &Position::of_task("t-0".into(), 0), append).await.unwrap();
    claim(store, owner, id).await
}

#[tokio::test]
async fn the_oldest_claim_is_forgotten_when_there_are_too_many() {
    let store = store(1, 1_000);
    let ada = owner("ada");
    for id in ["0", "1", "2", "3", "4"] {
        assert_eq!(claim(&store, &ada, id).await, Claim::New("t-0".into()));
    }
    assert_eq!(claim(&store, &ada, "4").await, Claim::Open("t-0".into()));
    assert_eq!(claim(&store, &ada, "0").await, Claim::New("t-0".into()));
}

#[tokio::test]
async fn answers_share_the_room_with_tasks_and_get_a_quarter_at_most() {
    let store = store(100, 2_000);
    let ada = owner("ada");
    for number in 0..20 {
        let id = format!("t-{number:02}");
        store.begin(&owner("bob"), &task(&id, TaskState::Completed, at(number))).await.unwrap();
    }
    assert!(matches!(ask(&store, &ada, "m-1", 200).await, Claim::Answered(_)));
    assert!(matches!(ask(&store, &ada, "m-2", 200).await, Claim::Answered(_)));
    // The oldest made room, tasks too, and one that is too long displaces nothing.
    assert_eq!(ask(&store, &ada, "m-3", 500).await, Claim::Repeated("t-0".into()));
    assert!(matches!(claim(&store, &ada, "m-2").await, Claim::Answered(_)));
    assert_eq!(claim(&store, &ada, "m-1").await, Claim::New("t-0".into()));
    assert!(has(&store, "t-19").await);
}

#[tokio::test]
async fn answers_are_forgotten_by_the_owner_that_has_most() {
    let store = store(1, 4_000);
    for (principal, id) in [("bob", "0"), ("ada", "1"), ("ada", "2"), ("ada", "3"), ("ada", "4")] {
        ask(&store, &owner(principal), id, 200).await;
    }
    let bobs = claim(&store, &owner("bob"), "0").await;
    assert!(matches!(bobs, Claim::Answered(_)), "{bobs:?}");
    assert_eq!(claim(&store, &owner("ada"), "1").await, Claim::New("t-0".into()));
}

#[tokio::test]
async fn room_is_made_by_the_owner_that_has_most() {
    let store = store(6, 1 << 20);
    let create = async |principal: &str, id: &str, time| {
        store.begin(&owner(principal), &task(id, TaskState::Completed, at(time))).await.unwrap();
    };
    let ids = async || {
        let mut found = Vec::new();
        for principal in ["ada", "bob"] {
            let query = TaskQuery { limit: 10, ..TaskQuery::default() };
            let page = store.tasks(&owner(principal), &query).await.unwrap();
            found.extend(page.tasks.into_iter().map(|task| String::from(task.id)));
        }
        found
    };
    // Bob's are the oldest, and stay.
    for number in 0..2 {
        create("bob", &format!("b-{number}"), number).await;
    }
    for number in 10..20 {
        create("ada", &format!("a-{number}"), number).await;
    }
    assert_eq!(ids().await, ["a-19", "a-18", "a-17", "a-16", "b-1", "b-0"]);
    create("bob", "b-2", 20).await;
    assert_eq!(ids().await, ["a-19", "a-18", "a-17", "b-2", "b-1", "b-0"]);
    // Of equals the oldest goes.
    create("eve", "e-0", 21).await;
    assert_eq!(ids().await, ["a-19", "a-18", "a-17", "b-2", "b-1"]);
    // Tasks that are worked on displace no more than an equal share.
    let mut refused = None;
    for number in 30..40 {
        let runs = task(&format!("a-{number}"), TaskState::Working, at(number));
        refused = store.run(&owner("ada"), &runs).await.err();
    }
    assert!(matches!(refused, Some(AppendError::Full)), "{refused:?}");
    let bobs = ids().await.into_iter().filter(|id| id.starts_with('b')).count();
    assert!(bobs >= 1 && has(&store, "e-0").await, "{bobs}");
}

#[tokio::test]
async fn the_owner_with_most_bytes_loses_tasks_when_bytes_are_short() {
    let store = store(100, 80_000);
    let mut large = task("large", TaskState::Completed, at(50));
    large.history = vec![Message::user_text(&"x".repeat(60_000))];
    store.begin(&owner("ada"), &large).await.unwrap();
    for number in 0..20 {
        store.begin(&owner("bob"), &task(&format!("b-{number}"), TaskState::Completed, at(number))).await.unwrap();
    }
    let mut wanted = task("wanted", TaskState::Completed, at(60));
    wanted.history = vec![Message::user_text(&"x".repeat(30_000))];
    store.begin(&owner("eve"), &wanted).await.unwrap();
    assert!(!has(&store, "large").await && has(&store, "b-0").await);
}
