//! A process that is killed while it writes to a SQLite file.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use annex_protocol::{Task, TaskState};
use annex_tasks::{SqliteTaskStore, TaskStore};

use crate::fixture::{OneByOne, Store, at, change, encoded, numbers, owner, working};

const FILE: &str = "ANNEX_TASKS_CRASH_FILE";
const ACKNOWLEDGED: &str = "acknowledged ";

/// The process that is killed: this test program with only this test and a file to write to. Otherwise it does nothing.
#[tokio::test]
async fn writer() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let store = SqliteTaskStore::open(Path::new(&file)).await.unwrap();
    let mut task = working("t-1");
    let mut seq = match store.load(&owner("ada"), &task.id).await.unwrap() {
        Some(stored) => {
            task = Task::clone(&stored.decode().unwrap());
            stored.seq
        }
        None => {
            store.begin(&owner("ada"), &task).await.unwrap();
            1
        }
    };
    loop {
        println!("{ACKNOWLEDGED}{seq}");
        let event = change(&mut task, TaskState::Working, at(i64::try_from(seq).unwrap() + 1));
        seq = store.add(&task.id, seq, &event, &task).await.unwrap();
    }
}

/// Starts the writer, kills it after `events` events, and returns the number of the last acknowledged event.
fn write_and_kill(file: &Path, events: usize) -> u64 {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["crash::writer", "--exact", "--nocapture", "--test-threads=1"])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(writer.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The name of the test may stand before the first number, on its line.
    let mut acknowledged = output.filter_map(|line| line.split_once(ACKNOWLEDGED).map(|(_, seq)| seq.parse().unwrap()));
    let before: Vec<u64> = acknowledged.by_ref().take(events).collect();
    assert_eq!(before.len(), events, "the writer ended by itself");
    writer.kill().unwrap();
    // What it had written before it died is still in the pipe.
    let last = acknowledged.last().unwrap_or(before[events - 1]);
    writer.wait().unwrap();
    last
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    for events in [1, 50, 400] {
        let killed = file.clone();
        let acknowledged = tokio::task::spawn_blocking(move || write_and_kill(&killed, events)).await.unwrap();

        let store: Store = std::sync::Arc::new(SqliteTaskStore::open(&file).await.unwrap());
        let stored = store.load(&owner("ada"), &"t-1".into()).await.unwrap().unwrap();
        // One more may have been stored that it could not acknowledge any more.
        assert!((acknowledged..=acknowledged + 1).contains(&stored.seq), "{acknowledged} {}", stored.seq);
        let read = store.events_after(&stored.id, 0, usize::MAX).await.unwrap();
        assert_eq!(numbers(&read), (1..=stored.seq).collect::<Vec<_>>());
        let mut task = working("t-1");
        for event in &read[1..] {
            let expected = change(&mut task, TaskState::Working, at(i64::try_from(event.seq).unwrap()));
            assert_eq!(event.stream_json().unwrap().unwrap(), encoded(&expected));
        }
        assert_eq!(*stored.decode().unwrap(), task, "the task is not what its events make it");
    }
}
