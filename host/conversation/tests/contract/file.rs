//! The file of a SQLite store: who can read it, who has it, and what is written to it.

use std::path::Path;
use std::sync::Arc;

use annex_conversation::{
    AppendError, Arrival, Limits, OpenError, SqliteStore, StoreError, TaskSnapshot, Window, end_lost_turn,
};
use annex_protocol::{Message, StreamResponse, TaskState};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::concurrency::at_once;
use crate::program::Program;
use crate::support::{
    Backend, Says, Store, WritesTasks, arrive, at, change, create, event, events, find, ids, key, open, owner,
    state_of, submission, working,
};

/// A folder for one file.
struct Folder(TempDir);

impl Folder {
    fn create() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn backend(&self) -> Backend {
        Backend::Sqlite(self.0.path().join("conversations.db"))
    }

    /// Opens the file as a process of this name, or beside the process that has the file.
    async fn open(&self, process: Option<&str>) -> Result<Store, OpenError> {
        let process = process.map(Into::into);
        let store =
            SqliteStore::open(&self.0.path().join("conversations.db"), process.as_ref(), Limits::default()).await?;
        Ok(Arc::new(store))
    }
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_of_the_file_can_read_it() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::create();
    let store = folder.open(Some("one")).await.unwrap();
    create(&store, "s", "{}").await;
    let mut names = Vec::new();
    for file in std::fs::read_dir(folder.0.path()).unwrap().map(Result::unwrap) {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "{file:?}");
        names.push(file.file_name().into_string().unwrap());
    }
    assert!(names.contains(&"conversations.db-wal".to_owned()), "{names:?}");
}

#[tokio::test]
async fn a_file_that_cannot_be_created_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("missing").join("conversations.db");
    let refused = SqliteStore::open(&file, None, Limits::default()).await.err().unwrap();
    let expected = format!(
        "the database file {} cannot be written; it and its folder must be writable for the user who runs the server",
        file.display()
    );
    assert_eq!(refused.to_string(), expected);
}

#[tokio::test]
async fn a_file_of_a_later_version_is_refused_and_unchanged() {
    let folder = Folder::create();
    let store = folder.open(Some("one")).await.unwrap();
    create(&store, "s", r#"{"a":1}"#).await;
    store.close().await;
    let later = "INSERT INTO _sqlx_conversation_migrations (version, description, success, checksum, execution_time)
        VALUES (1000, 'later', TRUE, x'00', 0)";
    folder.backend().execute(later).await;
    for process in [Some("two"), None] {
        let refused = folder.open(process).await.err().unwrap();
        assert!(matches!(refused, OpenError::Migration(_)), "{refused}");
    }
    folder.backend().execute("DELETE FROM _sqlx_conversation_migrations WHERE version = 1000").await;
    assert_eq!(folder.backend().number("SELECT count(*) FROM process WHERE id = 'one'").await, 1);
    assert_eq!(state_of(&folder.open(None).await.unwrap(), "s").await, r#"{"a":1}"#);
}

#[tokio::test]
async fn a_file_of_the_first_migration_gets_the_indexes_of_retention() {
    let folder = Folder::create();
    let store = folder.open(Some("one")).await.unwrap();
    create(&store, "s", r#"{"a":1}"#).await;
    store.close().await;
    let back = "DROP INDEX conversation_kept; DROP INDEX conversation_empty; DROP INDEX task_ended;
        DROP INDEX conversation_of_tenant; CREATE INDEX conversation_changed ON conversation (tenant, changed_at, id);
        ALTER TABLE conversation DROP COLUMN receipt;
        DELETE FROM _sqlx_conversation_migrations WHERE version > 1";
    folder.backend().execute(back).await;
    let store = folder.open(Some("two")).await.unwrap();
    assert_eq!(state_of(&store, "s").await, r#"{"a":1}"#);
    let indexes = "SELECT name FROM sqlite_schema
        WHERE type = 'index' AND tbl_name = 'conversation' AND sql IS NOT NULL ORDER BY name";
    let expected = ["conversation_empty", "conversation_kept", "conversation_of_tenant"];
    assert_eq!(folder.backend().rows(indexes).await, expected);
    assert_eq!(store.conversation(&key("s"), Window::NONE).await.unwrap().receipt, None);
}

#[tokio::test]
async fn a_process_that_opens_the_file_takes_it_from_the_process_before() {
    let folder = Folder::create();
    let mut first = Program::with_turn(&folder.0.path().join("conversations.db"), ":");
    assert_eq!(first.ask("say"), "stored");
    let second = folder.open(Some("second")).await.unwrap();
    assert_eq!(first.ask("say"), "another turn or another process works on this by now");
    let lost = second.take_lost(&"second".into(), 10).await.unwrap();
    let [lost] = lost.as_slice() else { panic!("{lost:?}") };
    end_lost_turn(second.as_ref(), lost, "The server stopped.").await.unwrap().unwrap();
    let next = open_by(&second, "second").await;
    next.say(event("next", r#"{"n":1}"#)).await.unwrap();
    next.close().await;
    assert_eq!(ids(&events(&second, "s").await), ["0", "next"]);
    // The first process sees what the second one writes, and still runs no turn.
    assert_eq!(first.ask("read"), r#"2 2 {"n":1}"#);
    assert_ne!(first.ask("say"), "stored");
}

/// Begins a turn of a process in `s`.
async fn open_by(store: &Store, process: &str) -> annex_conversation::Conversation {
    let arrived = arrive(store, "s", submission(process, &format!("of {process}"))).await.unwrap();
    let Arrival::Runs(turn) = arrived else { panic!("another turn runs") };
    turn
}

#[tokio::test]
async fn whoever_opens_the_file_beside_its_process_reads_and_runs_no_turn() {
    let folder = Folder::create();
    let store = folder.open(Some("one")).await.unwrap();
    let turn = open(&store, "s").await;
    turn.say(event("first", r#"{"a":1,"b":2}"#)).await.unwrap();
    let beside = folder.open(None).await.unwrap();
    assert_eq!(ids(&events(&beside, "s").await), ["first"]);
    assert!(beside.delete_key(&key("s"), "a").await.unwrap());
    assert!(beside.take_lost(&"two".into(), 10).await.unwrap().is_empty());
    assert!(matches!(arrive(&beside, "t", submission("two", "t-2")).await, Err(AppendError::Fenced)));
    turn.say(event("second", "{}")).await.unwrap();
    turn.close().await;
    assert_eq!(state_of(&beside, "s").await, r#"{"b":2}"#);
}

/// Twenty turns at once, whose appends share a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_event_cannot_be_stored_keeps_no_other_turn_from_storing() {
    let folder = Folder::create();
    let store = folder.open(Some("one")).await.unwrap();
    let broken = "CREATE TRIGGER broken BEFORE INSERT ON log_entry WHEN NEW.json LIKE '%\"id\":\"7\"%'
        BEGIN SELECT RAISE(ABORT, 'broken'); END";
    folder.backend().execute(broken).await;
    let mut turns = Vec::new();
    for number in 0..20 {
        turns.push(open(&store, &format!("s{number}")).await);
    }
    // The turn has left the queue, and its process does not know.
    store.leave(turns[3].key(), turns[3].fence(), annex_conversation::Departure::Refused).await.unwrap();
    let said = at_once(20, |number| {
        let turn = turns[number].clone();
        let change = match number {
            5 => format!(r#"{{"a":"{}"}}"#, "x".repeat(Limits::default().state_bytes)),
            9 => r#"{"user:a":1,"app:a":1}"#.to_owned(),
            _ => r#"{"a":1}"#.to_owned(),
        };
        async move { (number, turn.say(event(&number.to_string(), &change)).await) }
    });
    for (number, said) in said.await {
        match number {
            3 => assert!(matches!(said, Err(AppendError::Fenced)), "{said:?}"),
            5 => assert!(matches!(said, Err(AppendError::TooLarge(_))), "{said:?}"),
            7 => assert!(matches!(said, Err(AppendError::Store(StoreError::Database(_)))), "{said:?}"),
            _ => assert_eq!(said.unwrap().number, 1, "{number}"),
        }
        let is_stored = ![3, 5, 7].contains(&number);
        assert_eq!(find(&store, &format!("s{number}")).await.is_some(), is_stored, "{number}");
        assert_eq!(store.task(turns[number].task().await.id()).await.unwrap().is_some(), is_stored, "{number}");
    }
}

/// A task of `pieces` messages of `bytes` bytes each, and the number of its last entry.
async fn grow(store: &Store, pieces: usize, bytes: usize) -> (TaskSnapshot, u64) {
    let task = working("t-1");
    let mut snapshot = TaskSnapshot::from(task.clone());
    let mut number = store.add_all(&task.id, 0, &[StreamResponse::Task(task.clone()).into()], &snapshot).await.unwrap();
    for _ in 0..pieces {
        let message = Message::user_text(&"x".repeat(bytes));
        let entries = [annex_conversation::Entry::said_by_user(message, "t-1", Default::default(), None)];
        snapshot = snapshot.with(&entries);
        number = store.add_all(&task.id, number, &entries, &snapshot).await.unwrap();
    }
    (snapshot, number)
}

/// The bytes that SQLite writes for a task that grows by so many pieces, and for the end of that task.
async fn written(pieces: usize, bytes: usize) -> (u64, u64) {
    let folder = Folder::create();
    let store = folder.open(Some("one")).await.unwrap();
    let file = folder.0.path().join("conversations.db");
    // A reader of an old state keeps SQLite from beginning the log again, so the log has everything that is written.
    let reader = Connection::open(&file).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM task").unwrap();
    let size = |file: &Path| std::fs::metadata(file.with_extension("db-wal")).unwrap().len();
    let before = size(&file);
    let (snapshot, number) = grow(&store, pieces, bytes).await;
    let grown = size(&file) - before;
    let end = [change(&mut snapshot.clone().into_task(), TaskState::Completed, at(9_000))];
    store.add_all(snapshot.id(), number, &end, &snapshot.with(&end)).await.unwrap();
    let ended = size(&file) - before - grown;
    reader.close().unwrap();
    assert_eq!(store.load(&owner("ada"), snapshot.id()).await.unwrap().decode().unwrap().history.len(), pieces);
    (grown, ended)
}

#[tokio::test]
async fn a_task_that_grows_writes_what_is_added_and_not_the_whole_task() {
    for (pieces, bytes) in [(62, 50_000), (124, 50_000), (400, 2_000)] {
        let added = (pieces * bytes) as u64;
        let (grown, ended) = written(pieces, bytes).await;
        // A piece takes whole pages, with the row of its conversation and of its task.
        let overhead = pieces as u64 * 50_000;
        assert!(grown < 2 * added + overhead, "{pieces} times {bytes}: {grown}");
        // A finished task is one text.
        assert!(ended < 2 * added + overhead, "{pieces} times {bytes}: {ended}");
    }
}
