//! The bounds of the memory store.

use std::sync::Arc;

use annex_protocol::{
    Artifact, Json, Message, Metadata, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use annex_tasks::{MemoryBounds, MemoryTaskStore, MessageKey, Remembered, StoreError, TaskEvent, TaskStore};

use crate::fixture::{OneByOne, at, change, owner, task, working};

fn store(max_tasks: usize, max_bytes: usize) -> MemoryTaskStore {
    MemoryTaskStore::new(MemoryBounds { max_tasks, max_bytes })
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
    let refused = store.begin(&owner("ada"), &working("t-3")).await.unwrap_err();
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
    let events = [TaskState::Working, TaskState::Completed].map(|state| change(&mut growing, state, at(4_000)));
    let refused = store.append(&growing.id, seq, &events, &Arc::new(growing.clone())).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full), "more than the end found room: {refused}");
    let event = change(&mut growing, TaskState::Completed, at(4_000));
    assert_eq!(store.add(&growing.id, seq, &event, &growing).await.unwrap(), seq + 1);
    // And then it makes room.
    store.begin(&owner("ada"), &working("t-2")).await.unwrap();
    assert!(!has(&store, "t-1").await && has(&store, "t-2").await);
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
    let message = || Message { parts: part(), ..Message::default() };
    let artifact = |parts, metadata| {
        let artifact = Artifact { parts, metadata, ..Artifact::default() };
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
