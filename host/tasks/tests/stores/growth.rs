//! Tasks that grow: the stored task equals the result of its events, and each event costs only its own size.

use std::path::Path;

use annex_protocol::{Artifact, Message, Part, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState};
use annex_tasks::{Creator, Place, SqliteTaskStore, TaskEvent, TaskQuery, TaskSnapshot, TaskStore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use crate::fixture::{OneByOne, Restart, Store, at, change, on_sqlite, owner, working};

on_every_store! {
    whatever_is_appended_is_what_is_read,
    a_page_has_large_tasks_as_far_as_they_fit,
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn text(&mut self) -> String {
        let longest = [10, 200, 3_000, 30_000][self.below(4) as usize];
        let length = self.below(longest) as usize;
        ["x", "ö", "\"", "\u{1}"][self.below(4) as usize].repeat(length)
    }

    /// An event that does not end the task.
    fn event(&mut self, time: i64) -> TaskEvent {
        let parts = vec![Part::text(self.text())].into();
        match self.below(4) {
            0 => Message { parts, ..Message::default() }.into(),
            1 => {
                let states = [TaskState::Working, TaskState::InputRequired, TaskState::AuthRequired];
                let mut task = working("t-1");
                let TaskEvent::Stream(event) = change(&mut task, states[self.below(3) as usize], at(time)) else {
                    panic!("a change is shown to readers")
                };
                let StreamResponse::StatusUpdate(mut update) = (*event).clone() else { panic!("{event:?}") };
                update.status.message = (self.below(2) == 0).then(|| Message { parts, ..Message::default() });
                StreamResponse::StatusUpdate(update).into()
            }
            _ => {
                let artifact_id = format!("a-{}", self.below(3)).into();
                let artifact = Artifact { artifact_id, parts, ..Artifact::default() };
                let append = self.below(3) > 0;
                let task_id = "t-1".into();
                let update = TaskArtifactUpdateEvent { task_id, artifact, append, ..Default::default() };
                StreamResponse::ArtifactUpdate(update).into()
            }
        }
    }
}

/// Applies the event to the task in the simplest way.
fn applied(task: &mut Task, event: &TaskEvent) {
    match event {
        TaskEvent::Message(message) => task.apply_message((**message).clone()),
        TaskEvent::Stream(event) => match &**event {
            StreamResponse::StatusUpdate(update) => task.apply_status(update),
            StreamResponse::ArtifactUpdate(update) => task.apply_artifact(update),
            other => panic!("{other:?}"),
        },
    }
}

async fn whatever_is_appended_is_what_is_read(store: Store) {
    let ada = owner("ada");
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let mut made = working(&format!("t-{seed}"));
        made.history = vec![Message::user_text(&dice.text())];
        let mut snapshot = TaskSnapshot::from(made.clone());
        let mut expected = made.clone();
        let mut last =
            store.create(&ada, &[StreamResponse::Task(made).into()], &snapshot, Creator::default()).await.unwrap();
        for step in 0..30 {
            let events: Vec<TaskEvent> = (0..=dice.below(3)).map(|_| dice.event(2_000 + step)).collect();
            events.iter().for_each(|event| applied(&mut expected, event));
            snapshot = snapshot.with(&events);
            last = store.append(snapshot.id(), &last, &events, &snapshot).await.unwrap();
            if dice.below(3) == 0 {
                let stored = store.load(&ada, &expected.id).await.unwrap().unwrap();
                let read = stored.decode().unwrap();
                assert_eq!((stored.seq, &*read), (last.seq, &expected), "seed {seed}, step {step}");
                assert_eq!(*stored.json().unwrap(), serde_json::to_string(&expected).unwrap());
                // Whoever opens a task goes on with what was read.
                snapshot = read;
            }
        }
        let end = change(&mut expected, TaskState::Completed, at(9_000));
        snapshot = snapshot.with(std::slice::from_ref(&end));
        store.append(snapshot.id(), &last, &[end], &snapshot).await.unwrap();
        let stored = store.load(&ada, &expected.id).await.unwrap().unwrap();
        assert_eq!(*stored.decode().unwrap(), expected, "seed {seed}");
    }
}

/// A task of `pieces` messages of `bytes` bytes each, and the place behind its last event.
async fn grow(store: &dyn TaskStore, id: &str, pieces: usize, bytes: usize) -> (TaskSnapshot, Place) {
    let mut task = working(id);
    task.history = vec![Message::user_text("begin")];
    let mut snapshot = TaskSnapshot::from(task.clone());
    let mut last =
        store.create(&owner("ada"), &[StreamResponse::Task(task).into()], &snapshot, Creator::default()).await.unwrap();
    for _ in 0..pieces {
        let events = [TaskEvent::from(Message::user_text(&"x".repeat(bytes)))];
        snapshot = snapshot.with(&events);
        last = store.append(snapshot.id(), &last, &events, &snapshot).await.unwrap();
    }
    (snapshot, last)
}

across_a_restart! {
    a_large_task_of_a_crashed_process_fails_with_all_that_it_had,
}

async fn a_large_task_of_a_crashed_process_fails_with_all_that_it_had(restart: &Restart) {
    let store = restart.open().await;
    let (snapshot, last) = grow(&*store, "t-1", 5, 20_000).await;
    let store = restart.after(store).await;
    assert_eq!(store.recover("the server was restarted").await.unwrap(), ["t-1".into()]);
    let stored = store.load(&owner("ada"), &"t-1".into()).await.unwrap().unwrap();
    let failed = stored.decode().unwrap();
    assert_eq!((stored.seq, failed.status.state), (last.seq + 1, TaskState::Failed));
    assert_eq!(failed.history, snapshot.history);
}

async fn a_page_has_large_tasks_as_far_as_they_fit(store: Store) {
    for id in ["t-1", "t-2", "t-3"] {
        grow(&*store, id, 3, 1 << 20).await;
    }
    store.begin(&owner("ada"), &working("t-0")).await.unwrap();
    let mut query = TaskQuery { limit: 10, ..TaskQuery::default() };
    let first = store.list(&owner("ada"), &query).await.unwrap();
    let ids = |tasks: &[annex_tasks::StoredTask]| tasks.iter().map(|task| task.id.to_string()).collect::<Vec<_>>();
    assert_eq!((ids(&first.tasks), first.total), (vec!["t-3".to_owned(), "t-2".to_owned()], 4));
    assert_eq!(first.tasks[0].decode().unwrap().history.len(), 4);
    query.after = first.next;
    let second = store.list(&owner("ada"), &query).await.unwrap();
    assert_eq!((ids(&second.tasks), second.next), (vec!["t-1".to_owned(), "t-0".to_owned()], None));
}

/// Bytes that SQLite writes for a task that grows by `pieces` pieces of `bytes` bytes, and for its end.
async fn written(pieces: usize, bytes: usize) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let store = SqliteTaskStore::open(&file).await.unwrap();
    store.begin(&owner("ada"), &working("other")).await.unwrap();
    // Who reads an old state keeps the log from being begun again, so that it has all that is written.
    let mut reader = SqliteConnectOptions::new().filename(&file).connect().await.unwrap();
    sqlx::query("BEGIN").execute(&mut reader).await.unwrap();
    sqlx::query("SELECT count(*) FROM task").fetch_one(&mut reader).await.unwrap();
    let size = |file: &Path| std::fs::metadata(file.with_extension("db-wal")).unwrap().len();
    let before = size(&file);
    let (snapshot, last) = grow(&store, "t-1", pieces, bytes).await;
    let grown = size(&file) - before;
    let end = [change(&mut snapshot.clone().into_task(), TaskState::Completed, at(9_000))];
    store.append(snapshot.id(), &last, &end, &snapshot.with(&end)).await.unwrap();
    let ended = size(&file) - before - grown;
    reader.close().await.unwrap();
    (grown, ended)
}

#[tokio::test]
async fn a_task_that_grows_costs_what_is_added() {
    for (pieces, bytes) in [(62, 50_000), (124, 50_000), (400, 2_000)] {
        let added = (pieces * bytes) as u64;
        let (grown, ended) = written(pieces, bytes).await;
        // A piece takes whole pages, and the row of its task with what it began with.
        let overhead = pieces as u64 * 50_000;
        assert!(grown < 2 * added + overhead, "{pieces} times {bytes}: {grown}");
        // A finished task is one text.
        assert!(ended < 2 * added + overhead, "{pieces} times {bytes}: {ended}");
    }
}

#[tokio::test]
async fn a_large_task_of_an_older_version_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let store = SqliteTaskStore::open(&file).await.unwrap();
    let (snapshot, last) = grow(&store, "t-1", 5, 20_000).await;
    // As older versions stored it.
    let mut connection = SqliteConnectOptions::new().filename(&file).connect().await.unwrap();
    let json = serde_json::to_string(&*snapshot).unwrap();
    let older = sqlx::query("UPDATE task SET json = ?, json_seq = NULL").bind(json);
    assert_eq!(older.execute(&mut connection).await.unwrap().rows_affected(), 1);
    let stored = store.load(&owner("ada"), &"t-1".into()).await.unwrap().unwrap();
    assert_eq!(*stored.decode().unwrap(), *snapshot);
    let events = [TaskEvent::from(Message::user_text("go on"))];
    let snapshot = snapshot.with(&events);
    store.append(snapshot.id(), &last, &events, &snapshot).await.unwrap();
    let stored = store.load(&owner("ada"), &"t-1".into()).await.unwrap().unwrap();
    assert_eq!(*stored.decode().unwrap(), *snapshot);
    let kept = sqlx::query_scalar::<_, i64>("SELECT length(json) FROM task").fetch_one(&mut connection).await.unwrap();
    assert_eq!(kept, 0, "the text is written again with each event");
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_task_that_is_deleted_while_it_is_read_is_not_there() {
    on_sqlite(|store| async move {
        let (snapshot, last) = grow(&*store, "t-1", 3, 20_000).await;
        let end = [change(&mut snapshot.clone().into_task(), TaskState::Completed, at(9_000))];
        let reads = async {
            for _ in 0..50 {
                let stored = store.load(&owner("ada"), &"t-1".into()).await.unwrap();
                let Some(stored) = stored else { break };
                assert!(stored.decode().unwrap().history.len() >= 4);
            }
        };
        let delete = async {
            store.append(snapshot.id(), &last, &end, &snapshot.with(&end)).await.unwrap();
            let none = annex_tasks::Retention { age: std::time::Duration::MAX, count: 0 };
            assert_eq!(store.sweep(&none).await.unwrap(), 1);
        };
        tokio::join!(reads, delete);
        assert!(store.load(&owner("ada"), &"t-1".into()).await.unwrap().is_none());
    })
    .await;
}
