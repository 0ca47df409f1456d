//! The bounds of the memory store.

use annex_protocol::{
    Artifact, Json, Message, Metadata, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use annex_tasks::{
    MemoryBounds, MemoryTaskStore, MessageKey, Place, Remembered, StoreError, TaskEvent, TaskQuery, TaskStore,
    WaitingBounds,
};

use crate::fixture::{OneByOne, at, change, owner, task, working};

fn store(max_tasks: usize, max_bytes: usize) -> MemoryTaskStore {
    MemoryTaskStore::new(MemoryBounds { max_tasks, max_bytes, waiting: WaitingBounds::UNBOUNDED })
}

async fn has(store: &MemoryTaskStore, id: &str) -> bool {
    store.load(&owner("ada"), &id.into()).await.unwrap().is_some()
}

#[tokio::test]
async fn a_full_store_drops_the_finished_task_that_is_oldest() {
    let store = store(3, 1 << 20);
    store.begin(&owner("ada"), &task("live", TaskState::InputRequired, at(1))).await.unwrap();
    store.begin(&owner("ada"), &task("new", TaskState::Completed, at(3))).await.unwrap();
    store.begin(&owner("ada"), &task("old", TaskState::Completed, at(2))).await.unwrap();
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    assert!(has(&store, "live").await && has(&store, "new").await && !has(&store, "old").await);
    store.begin(&owner("ada"), &working("t-2")).await.unwrap();
    assert!(has(&store, "live").await && !has(&store, "new").await);
    store.begin(&owner("ada"), &working("t-3")).await.unwrap();
    assert!(!has(&store, "live").await, "one that waits goes when no finished one is left");
    let refused = store.begin(&owner("ada"), &working("t-4")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full), "{refused}");
}

#[tokio::test]
async fn a_store_without_room_lets_tasks_end_but_not_grow() {
    let store = store(10, 4_000);
    let mut growing = working("t-1");
    store.begin(&owner("ada"), &growing).await.unwrap();
    let mut seq = 1;
    let refused = loop {
        let event = change(&mut growing, TaskState::Working, at(2_000));
        match store.add(&growing.id, seq, &event, &growing).await {
            Ok(next) => seq = next,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, StoreError::Full), "{refused}");
    assert!(seq > 2, "the store had room");
    // What is left of it at its end is less than it was.
    let events = [TaskState::Working, TaskState::Completed].map(|state| change(&mut growing, state, at(4_000)));
    assert_eq!(
        store.append(&growing.id, &Place::after(seq), &events, &growing.clone().into()).await.unwrap().seq,
        seq + 2
    );
    // And it goes when its place is wanted.
    store.begin(&owner("ada"), &working("t-2")).await.unwrap();
    assert!(has(&store, "t-1").await && has(&store, "t-2").await);
    for number in 0..9 {
        store.begin(&owner("ada"), &task(&format!("f-{number}"), TaskState::Completed, at(5_000))).await.unwrap();
    }
    assert!(!has(&store, "t-1").await && has(&store, "t-2").await);
}

#[tokio::test]
async fn a_finished_task_is_kept_without_its_events() {
    let store = store(10, 4_000);
    let mut finished = working("t-1");
    store.begin(&owner("ada"), &finished).await.unwrap();
    assert_eq!(store.events_after(&finished.id, 0, 10).await.unwrap().len(), 1);
    let event = change(&mut finished, TaskState::Completed, at(2_000));
    assert_eq!(store.add(&finished.id, 1, &event, &finished).await.unwrap(), 2);
    assert!(store.events_after(&finished.id, 0, 10).await.unwrap().is_empty());
    let stored = store.load(&owner("ada"), &finished.id).await.unwrap().unwrap();
    assert_eq!((stored.seq, (*stored.decode().unwrap()).clone()), (2, finished));
}

#[tokio::test]
async fn a_task_larger_than_the_store_displaces_nothing() {
    let store = store(10, 1_000);
    store.begin(&owner("ada"), &task("old", TaskState::Completed, at(2))).await.unwrap();
    let mut large = working("large");
    large.context_id = "c".repeat(500).into();
    let refused = store.begin(&owner("ada"), &large).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full), "{refused}");
    assert!(has(&store, "old").await);
}

#[tokio::test]
async fn what_an_event_brings_counts_wherever_it_is() {
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
    let events: [TaskEvent; 4] = [
        artifact(part(), Metadata::new()).into(),
        artifact(Vec::new(), metadata()).into(),
        StreamResponse::StatusUpdate(TaskStatusUpdateEvent { task_id: task_id(), status, ..Default::default() }).into(),
        message().into(),
    ];
    for event in events {
        let store = store(10, 10_000);
        let task = working("t-1");
        store.begin(&owner("ada"), &task).await.unwrap();
        let refused = store.add(&task.id, 1, &event, &task).await.unwrap_err();
        assert!(matches!(refused, StoreError::Full), "{event:?}: {refused}");
    }
}

#[tokio::test]
async fn the_oldest_message_is_forgotten_when_there_are_too_many() {
    let store = store(1, 1_000);
    let ada = owner("ada");
    let message = |id: u8| MessageKey { context: "c-1".into(), message: id.to_string().into(), digest: [0; 32] };
    for id in 0..5 {
        assert_eq!(store.remember(&ada, &message(id), &"t-1".into()).await.unwrap(), Remembered::New);
    }
    let newest = store.remember(&ada, &message(4), &"t-2".into()).await.unwrap();
    assert_eq!(newest, Remembered::Same("t-1".into()));
    assert_eq!(store.remember(&ada, &message(0), &"t-2".into()).await.unwrap(), Remembered::New);
}

#[tokio::test]
async fn answers_share_the_room_with_tasks_and_get_a_quarter_at_most() {
    let store = store(100, 2_000);
    let ada = owner("ada");
    let message = |id: &str| MessageKey { context: "c-1".into(), message: id.into(), digest: [0; 32] };
    let answer = |length: usize| Message::agent("c-1".into(), None, vec![Part::text("x".repeat(length))]);
    let ask = async |id: &str, length: usize| {
        assert_eq!(store.remember(&ada, &message(id), &"t-0".into()).await.unwrap(), Remembered::New);
        store.answer(&ada, &message(id), &answer(length)).await.unwrap();
        store.remember(&ada, &message(id), &"t-0".into()).await.unwrap()
    };
    for number in 0..20 {
        let id = format!("t-{number:02}");
        store.begin(&ada, &task(&id, TaskState::Completed, at(number))).await.unwrap();
    }
    assert!(matches!(ask("m-1", 200).await, Remembered::Answered(_)));
    assert!(matches!(ask("m-2", 200).await, Remembered::Answered(_)));
    // The oldest made room, tasks too, and one that is too long displaces nothing.
    assert_eq!(ask("m-3", 500).await, Remembered::Same("t-0".into()));
    let second = store.remember(&ada, &message("m-2"), &"t-0".into()).await.unwrap();
    assert!(matches!(second, Remembered::Answered(_)));
    assert_eq!(store.remember(&ada, &message("m-1"), &"t-0".into()).await.unwrap(), Remembered::New);
    assert!(has(&store, "t-19").await);
}

#[tokio::test]
async fn room_is_made_by_the_owner_that_has_most() {
    let store = store(6, 1 << 20);
    let create =
        async |principal: &str, id: &str, state, time| store.begin(&owner(principal), &task(id, state, at(time))).await;
    let ids = async || {
        let mut found = Vec::new();
        for principal in ["ada", "bob"] {
            let query = TaskQuery { limit: 10, ..TaskQuery::default() };
            let page = store.list(&owner(principal), &query).await.unwrap();
            found.extend(page.tasks.into_iter().map(|task| String::from(task.id)));
        }
        found
    };
    // Bob's are the oldest, and stay.
    for number in 0..2 {
        create("bob", &format!("b-{number}"), TaskState::Completed, number).await.unwrap();
    }
    for number in 10..20 {
        create("ada", &format!("a-{number}"), TaskState::Completed, number).await.unwrap();
    }
    assert_eq!(ids().await, ["a-19", "a-18", "a-17", "a-16", "b-1", "b-0"]);
    create("bob", "b-2", TaskState::Completed, 20).await.unwrap();
    assert_eq!(ids().await, ["a-19", "a-18", "a-17", "b-2", "b-1", "b-0"]);
    // Of equals the oldest goes.
    create("eve", "e-0", TaskState::Completed, 21).await.unwrap();
    assert_eq!(ids().await, ["a-19", "a-18", "a-17", "b-2", "b-1"]);
    // Tasks that are worked on displace no more than an equal share.
    let mut refused = None;
    for number in 30..40 {
        refused = create("ada", &format!("a-{number}"), TaskState::Working, number).await.err();
    }
    assert!(matches!(refused, Some(StoreError::Full)), "{refused:?}");
    let bobs = ids().await.into_iter().filter(|id| id.starts_with('b')).count();
    assert!(bobs >= 1 && store.load(&owner("eve"), &"e-0".into()).await.unwrap().is_some(), "{bobs}");
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
    assert!(!has(&store, "large").await);
    assert!(store.load(&owner("bob"), &"b-0".into()).await.unwrap().is_some());
}

#[tokio::test]
async fn messages_and_answers_are_forgotten_by_the_owner_that_has_most() {
    let store = store(1, 4_000);
    let message = |id: u8| MessageKey { context: "c-1".into(), message: id.to_string().into(), digest: [0; 32] };
    let answer = Message::agent("c-1".into(), None, vec![Part::text("x".repeat(200))]);
    for (principal, id) in [("bob", 0), ("ada", 1), ("ada", 2), ("ada", 3), ("ada", 4)] {
        let who = owner(principal);
        assert_eq!(store.remember(&who, &message(id), &"t-1".into()).await.unwrap(), Remembered::New);
        store.answer(&who, &message(id), &answer).await.unwrap();
    }
    let bobs = store.remember(&owner("bob"), &message(0), &"t-2".into()).await.unwrap();
    assert!(matches!(bobs, Remembered::Answered(_)), "{bobs:?}");
    assert_eq!(store.remember(&owner("ada"), &message(1), &"t-2".into()).await.unwrap(), Remembered::New);
}
