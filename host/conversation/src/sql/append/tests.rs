use std::slice;

use annex_database::{Database, Sql, SqliteDatabase};
use annex_protocol::{Message, StreamResponse, Task, TaskState, TaskStatus, TaskStatusUpdateEvent};

use super::*;
use crate::SqliteStore;
use crate::claim::Claimant;
use crate::history::Window;
use crate::queue::{Entrance, Submission};
use crate::store::ConversationStore as _;
use crate::task::TaskSnapshot;

fn update(task: &Task, state: TaskState) -> Entry {
    let status = TaskStatus { state, message: None, timestamp: Some(Timestamp::now()) };
    let task_id = task.id.clone();
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent { task_id, status, ..Default::default() }).into()
}

/// Tests the steps of one round trip. If these steps fail, the append is made again statement by statement, so other tests
/// would not find a fault in the steps.
#[tokio::test]
async fn the_appends_of_a_common_turn_are_steps_that_go_in_one_trip() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits::default();
    let store = SqliteStore::open(&folder.path().join("c"), Some(&"one".into()), limits).await.unwrap();
    let key = ConversationKey::new("", "agent", "user", "c");
    let message = MessageKey { context: "c".into(), message: "m".into(), digest: [0; 32] };
    store.claim(key.owner(), &message, &"t".into(), &Claimant::new("one".into())).await.unwrap();
    let submission = Submission {
        replica: "one".into(),
        task: "t".into(),
        since: Timestamp::now(),
        message: Some(message),
        request: None,
        resume: Some("again".into()),
        max_waiting: 1,
    };
    let entered = store.enter(&key, submission.clone(), Window::NONE).await.unwrap();
    let Entrance::Runs(fence, _) = entered else { panic!("no other turn runs") };
    let mut task = TaskSnapshot::submitted("t".into(), "c".into(), Timestamp::now());
    let hello = Message::user_text("Hello");
    let delta = StateDelta::parse(r#"{"a":1,"b":2,"temp:t":3}"#).unwrap();
    let begin = vec![Entry::said_by_user(hello, "t", delta, task.status_at())];
    let mut answer = crate::entry::Event::new("agent", "t", Vec::new(), StateDelta::parse(r#"{"b":3}"#).unwrap());
    answer.artifacts.insert("note".to_owned(), vec![annex_protocol::Part::text("Hello")].into());
    let end = vec![answer.into(), update(&task, TaskState::Working), update(&task, TaskState::Completed)];
    let mut number = 0;
    for (entries, ends) in [(begin, false), (end, true)] {
        task = task.with(&entries);
        let submission = Some(&submission).filter(|_| !ends);
        let append =
            Append { by: Some(&fence), submission, entries: &entries, task: Some(&task), ends, outcome: Outcome::Task };
        let at = Position::of_task("t".into(), number);
        let write = Write::new::<SqliteDatabase>(&key, &at, &append, &limits).unwrap();
        let (steps, last) = write.steps().unwrap();
        let others = steps.get(1..).unwrap();
        assert!(others.iter().all(|step| matches!(step.sql, Sql::Rows(rows) if rows.of_first.is_some())));
        let (transaction, changed) = store.database.begin_with(&steps).await.unwrap();
        assert_eq!(changed.unwrap(), steps.iter().map(|step| step.changes).collect::<Vec<_>>());
        SqliteDatabase::commit(transaction).await.unwrap();
        number += entries.len() as u64;
        assert_eq!(last, number);
    }
    let found = store.conversation(&key, Window::ALL).await.unwrap();
    assert_eq!((found.number, found.state.merged().to_json_string()), (2, r#"{"a":1,"b":3}"#.to_owned()));
    assert_eq!(store.artifact(&key, "note").await.unwrap().unwrap().version, 1);
    let stored = store.task(&"t".into()).await.unwrap().unwrap();
    assert!(stored.is_finished && !stored.is_worked_on && stored.number == 4);
}

#[tokio::test]
async fn an_append_that_was_stored_in_a_failed_attempt_is_not_stored_again() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits::default();
    let store = SqliteStore::open(&folder.path().join("c"), Some(&"one".into()), limits).await.unwrap();
    let key = ConversationKey::new("", "agent", "user", "c");
    let task = TaskSnapshot::submitted("t".into(), "c".into(), Timestamp::now());
    let entry = update(&task, TaskState::Completed);
    let task = task.with(slice::from_ref(&entry));
    let append = Append { entries: slice::from_ref(&entry), task: Some(&task), ..Append::default() };
    let at = Position::of_task("t".into(), 0);
    let write = || Write::new::<SqliteDatabase>(&key, &at, &append, &limits).unwrap();
    assert_eq!(store.writer.store(write()).await.unwrap(), 1);
    assert!(matches!(store.writer.store(write()).await, Err(AppendError::Stale { expected: 0, found: 1 })));
    let doubtful = write();
    doubtful.doubt();
    assert_eq!(store.writer.store(doubtful).await.unwrap(), 1);
}
