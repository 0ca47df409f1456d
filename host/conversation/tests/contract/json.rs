//! Stored tasks and entries come back as they were, byte for byte.

use annex_conversation::{Entry, Event, Limits, Window};
use annex_protocol::{Artifact, Json, Part, PartContent, Parts, StreamResponse, Task, TaskArtifactUpdateEvent};

use crate::support::{Backend, Says, Store, WritesTasks, event, key, open, owner, working};

on_every_store! {
    numbers_and_the_order_of_keys_survive,
    a_mebibyte_in_one_entry_survives,
    a_mebibyte_in_one_event_and_its_artifact_survives,
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

async fn a_mebibyte_in_one_event_and_its_artifact_survives(backend: Backend) {
    let store = backend.store().await;
    let parts: Parts = vec![Part::text("0123456789abcdeé\u{0}".repeat(1 << 16))].into();
    let artifacts = [("file".to_owned(), parts.clone())].into();
    // The state is at its limit, together with the name of the key.
    let value = Json::string(&"x".repeat(Limits::default().state_bytes - "a".len() - 2));
    let turn = open(&store, "s").await;
    let said = Event { parts: parts.clone(), artifacts, ..event("e", &format!(r#"{{"a":{}}}"#, value.get())) };
    turn.say(said).await.unwrap();
    let found = store.conversation(&key("s"), Window::ALL).await.unwrap();
    assert!(found.history[0].parts == parts, "the event is another one");
    assert!(found.state.value("a") == Some(&value), "the value is another one");
    assert!(turn.artifact("file").await.unwrap() == Some(parts), "the artifact is another one");
}

/// The JSON that serde makes of an update.
fn encoded(entry: &Entry) -> String {
    let Entry::Update(update) = entry else { panic!("{entry:?} is no update") };
    serde_json::to_string(&**update).unwrap()
}
