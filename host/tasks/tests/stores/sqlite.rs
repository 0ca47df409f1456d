//! Cases of SQLite alone: the file.

use std::path::Path;

use annex_protocol::{Task, TaskPushNotificationConfig, TaskState};
use annex_tasks::{MessageKey, Remembered, SqliteTaskStore, StoreError, TaskStore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use crate::fixture::{OneByOne, at, change, numbers, owner, working};

async fn execute(file: &Path, sql: &'static str) {
    let mut connection = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
    sqlx::query(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn everything_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let mut task = working("t-1");
    let config = TaskPushNotificationConfig { id: Some("p-1".to_owned()), ..TaskPushNotificationConfig::default() };
    let message = MessageKey { context: "c-1".into(), message: "m-1".into(), digest: [1; 32] };
    {
        let store = SqliteTaskStore::open(&file).await.unwrap();
        store.begin(&owner("ada"), &task).await.unwrap();
        let event = change(&mut task, TaskState::InputRequired, at(2_000));
        store.add(&task.id, 1, &event, &task).await.unwrap();
        store.put_config(&task.id, &config).await.unwrap();
        store.remember(&owner("ada"), &message, &task.id).await.unwrap();
        store.close().await;
    }
    let store = SqliteTaskStore::open(&file).await.unwrap();
    let stored = store.load(&owner("ada"), &task.id).await.unwrap().unwrap();
    assert_eq!((stored.seq, Task::clone(&stored.decode().unwrap())), (2, task.clone()));
    assert_eq!(numbers(&store.events_after(&task.id, 0, 10).await.unwrap()), [1, 2]);
    assert_eq!(store.configs(&task.id, "", 10).await.unwrap().configs, [config]);
    let again = store.remember(&owner("ada"), &message, &"t-2".into()).await.unwrap();
    assert_eq!(again, Remembered::Same(task.id.clone()));
    // One whose task never came to be is nobody else's.
    let lost = MessageKey { message: "m-2".into(), ..message };
    assert_eq!(store.remember(&owner("ada"), &lost, &"t-3".into()).await.unwrap(), Remembered::New);
    assert_eq!(store.remember(&owner("ada"), &lost, &"t-4".into()).await.unwrap(), Remembered::Own("t-3".into()));
}

#[tokio::test]
async fn a_task_does_not_change_when_its_event_cannot_be_stored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let store = SqliteTaskStore::open(&file).await.unwrap();
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    execute(&file, "INSERT INTO task_event (task_id, seq, kind, json) VALUES ('t-1', 2, 'stream', '{}')").await;

    let before = task.clone();
    let event = change(&mut task, TaskState::Completed, at(2_000));
    let failed = store.add(&task.id, 1, &event, &task).await.unwrap_err();
    assert!(matches!(failed, StoreError::Database(_)), "{failed}");
    let stored = store.load(&owner("ada"), &task.id).await.unwrap().unwrap();
    assert_eq!((stored.seq, Task::clone(&stored.decode().unwrap())), (1, before));

    execute(&file, "DELETE FROM task_event WHERE seq = 2").await;
    assert_eq!(store.add(&task.id, 1, &event, &task).await.unwrap(), 2);
}

#[tokio::test]
async fn what_cannot_be_stored_does_not_keep_from_it_what_came_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let store = SqliteTaskStore::open(&file).await.unwrap();
    let broken = "CREATE TRIGGER broken BEFORE INSERT ON task_event WHEN NEW.task_id = 't-7' \
                  BEGIN SELECT RAISE(ABORT, 'broken'); END";
    execute(&file, broken).await;
    let tasks: Vec<Task> = (0..20).map(|number| working(&format!("t-{number}"))).collect();
    let ada = owner("ada");
    let stored = futures::future::join_all(tasks.iter().map(|task| store.begin(&ada, task))).await;
    for (task, stored) in tasks.iter().zip(stored) {
        let expected = task.id.as_str() != "t-7";
        assert_eq!(stored.is_ok(), expected, "{}: {stored:?}", task.id);
        assert_eq!(store.load(&ada, &task.id).await.unwrap().is_some(), expected, "{}", task.id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_on_one_file_do_not_interleave() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let task = working("t-1");
    let first = SqliteTaskStore::open(&file).await.unwrap();
    first.begin(&owner("ada"), &task).await.unwrap();
    let second = SqliteTaskStore::open(&file).await.unwrap();
    let write = async |store: &SqliteTaskStore| {
        let mut task = task.clone();
        let event = change(&mut task, TaskState::Working, at(2_000));
        let mut expected = 1;
        for _ in 0..50 {
            while let Err(error) = store.add(&task.id, expected, &event, &task).await {
                let StoreError::Stale { found, .. } = error else { panic!("{error}") };
                expected = found;
            }
        }
    };
    tokio::join!(write(&first), write(&second));
    let events = first.events_after(&task.id, 0, 1_000).await.unwrap();
    assert_eq!(numbers(&events), (1..=101).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_task_that_cannot_be_read_does_not_stop_recovery() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let store = SqliteTaskStore::open(&file).await.unwrap();
    for id in ["t-1", "t-2", "t-3"] {
        store.begin(&owner("ada"), &working(id)).await.unwrap();
    }
    execute(&file, "UPDATE task SET json = '{' WHERE id = 't-2'").await;
    let recovered = store.recover("the server was restarted").await.unwrap();
    assert_eq!(recovered, ["t-1".into(), "t-3".into()]);
    let broken = store.load(&owner("ada"), &"t-2".into()).await.unwrap().unwrap();
    assert!(matches!(broken.decode(), Err(StoreError::Unreadable { .. })));
}

#[tokio::test]
async fn a_file_of_a_later_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    SqliteTaskStore::open(&file).await.unwrap().close().await;
    let later = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
        VALUES (1000, 'later', TRUE, x'00', 0)";
    execute(&file, later).await;
    let refused = SqliteTaskStore::open(&file).await.unwrap_err();
    assert!(matches!(refused, StoreError::Migration(_)), "{refused}");
}

#[tokio::test]
async fn a_file_that_cannot_be_created_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let refused = SqliteTaskStore::open(&folder.path().join("missing").join("tasks.db")).await.unwrap_err();
    assert!(matches!(refused, StoreError::File { .. }) && refused.to_string().contains("tasks.db"), "{refused}");
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_of_the_file_can_read_it() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let store = SqliteTaskStore::open(&folder.path().join("tasks.db")).await.unwrap();
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    let mut names = Vec::new();
    for file in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "{file:?}");
        names.push(file.file_name().into_string().unwrap());
    }
    assert!(names.contains(&"tasks.db-wal".to_owned()), "{names:?}");
}

#[tokio::test]
async fn what_earlier_versions_have_stored_is_given_as_everybody_can_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let store = SqliteTaskStore::open(&file).await.unwrap();
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let event = change(&mut task, TaskState::InputRequired, at(2_000));
    store.add(&task.id, 1, &event, &task).await.unwrap();
    for sql in [
        r#"UPDATE task SET json = substr(json, 1, length(json) - 1) || ',"metadata":{"k":["x\ud800",1e999,{"a":1,"a":2}]}}'"#,
        r#"UPDATE task_event SET json = replace(json, '"state":', '"x":1e999,"state":') WHERE seq = 2"#,
    ] {
        execute(&file, sql).await;
    }
    let stored = store.load(&owner("ada"), &task.id).await.unwrap().unwrap();
    let expected = r#""metadata":{"k":["x\ufffd","1e999",{"a":2}]}"#;
    assert!(stored.json().unwrap().contains(expected), "{}", stored.json().unwrap());
    let metadata = stored.decode().unwrap().metadata.clone();
    assert_eq!(metadata.get("k").unwrap().get(), r#"["x\ufffd","1e999",{"a":2}]"#);
    let events = store.events_after(&task.id, 1, 10).await.unwrap();
    assert!(events[0].stream_json().unwrap().unwrap().contains(r#""x":"1e999""#));
}
