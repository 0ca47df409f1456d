//! Stored tasks and entries come back as they were, byte for byte.

use annex_conversation::Entry;
use annex_protocol::{Artifact, Json, Part, PartContent, StreamResponse, Task, TaskArtifactUpdateEvent};

use crate::support::{Backend, Store, WritesTasks, owner, working};

on_every_store! {
    numbers_and_the_order_of_keys_survive,
    a_mebibyte_in_one_entry_survives,
}

/// Stores a task with an artifact of one part, and compares texts.
async fn check(store: &Store, content: PartContent) {
    let mut task: Task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let artifact =
        Artifact { artifact_id: "a-1".into(), parts: vec![Part::from(content)].into(), ..Artifact::default() };
    let task_id = task.id.clone();
    let context_id = task.context_id.clone();
    let event = TaskArtifactUpdateEvent { task_id, context_id, artifact, ..TaskArtifactUpdateEvent::default() };
    task.apply_artifact(&event);
    let event: Entry = StreamResponse::ArtifactUpdate(event).into();
    store.add(&task.id, 1, &event, &task).await.unwrap();

    let stored = store.load(&owner("ada"), &task.id).await.unwrap();
    assert!(stored.json().unwrap() == serde_json::to_string(&task).unwrap(), "the task is another text");
    let events = store.entries_after(&task.id, 1, (10, usize::MAX)).await.unwrap();
    assert!(events[0].update_json().unwrap().unwrap() == encoded(&event), "the event is another text");
    assert!(events[0].decode().unwrap() == event, "the event is another one");
}

async fn numbers_and_the_order_of_keys_survive(backend: Backend) {
    let store = backend.store().await;
    let json = r#"{"z":9007199254740993,"a":1.0,"m":1e300,"b":{"ü":-0.0,"\u0000":[ 1 ,2],"A":"\ud83d\ude00"},"":null}"#;
    check(&store, PartContent::Data(Json::parse(json.to_owned()).unwrap())).await;
    let stored = store.load(&owner("ada"), &"t-1".into()).await.unwrap();
    let stored = stored.json().unwrap();
    assert!(stored.contains(json), "{stored}");
}

async fn a_mebibyte_in_one_entry_survives(backend: Backend) {
    let store = backend.store().await;
    check(&store, PartContent::Text("0123456789abcdeé\u{0}".repeat(1 << 16))).await;
}

/// The JSON that serde makes of an update.
fn encoded(entry: &Entry) -> String {
    let Entry::Update(update) = entry else { panic!("{entry:?} is no update") };
    serde_json::to_string(&**update).unwrap()
}
