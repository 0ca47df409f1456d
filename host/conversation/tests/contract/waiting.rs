//! Tasks that wait for their clients.

use std::time::Duration;

use annex_conversation::{AppendError, MemoryBounds, Retention, WaitingBounds};
use annex_protocol::{TaskState, Timestamp};

use crate::support::{Backend, Store, WritesTasks, at, change, memory, owner, submission, task, working};

on_every_store!(waiting_tasks_that_are_too_old_or_too_many_are_overdue);

async fn waiting_tasks_that_are_too_old_or_too_many_are_overdue(backend: Backend) {
    let store = backend.store().await;
    let now = Timestamp::now().as_millis();
    let hour = 3_600_000;
    let create = async |principal: &str, id: &str, state, hours: i64| {
        store.begin(&owner(principal), &task(id, state, at(now - hours * hour))).await.unwrap();
    };
    create("ada", "old", TaskState::InputRequired, 30).await;
    create("ada", "young", TaskState::AuthRequired, 1).await;
    store.run(&owner("ada"), &task("works", TaskState::Working, at(now - 40 * hour))).await.unwrap();
    create("ada", "done", TaskState::Completed, 50).await;
    for (id, hours) in [("b-1", 5), ("b-2", 4), ("b-3", 3)] {
        create("bob", id, TaskState::InputRequired, hours).await;
    }
    for (id, hours) in [("x-1", 9), ("x-2", 8), ("x-3", 7), ("x-4", 6)] {
        create("", id, TaskState::InputRequired, hours).await;
    }
    let bounds = WaitingBounds { age: Duration::from_secs(24 * 60 * 60), per_owner: 2, anonymous: 3 };
    let overdue = async |waiting| {
        let swept = store.sweep(&Retention { waiting, ..Retention::ALL }).await.unwrap();
        swept.overdue.into_iter().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(overdue(bounds).await, ["old", "x-1", "b-1"]);
    assert_eq!(overdue(WaitingBounds { age: Duration::MAX, ..bounds }).await, ["x-1", "b-1"]);
    assert!(overdue(WaitingBounds::UNBOUNDED).await.is_empty());
}

fn store(max_tasks: usize, max_task_bytes: usize) -> Store {
    memory(MemoryBounds { max_tasks, max_task_bytes, ..MemoryBounds::default() })
}

async fn has(store: &Store, principal: &str, id: &str) -> bool {
    store.load(&owner(principal), &id.into()).await.is_some()
}

/// Fills the store with so many tasks of one caller, and lets others have one each.
async fn others_have_room(store: &Store, from: &str, tasks: i64, state: TaskState) {
    for number in 0..tasks {
        let task = task(&format!("{from}-{number}"), state, at(number));
        let stored = match state {
            TaskState::Working => store.run(&owner(from), &task).await.map(drop),
            _ => store.begin(&owner(from), &task).await.map(drop),
        };
        match stored {
            Ok(()) | Err(AppendError::Full) => {}
            Err(error) => panic!("{error}"),
        }
    }
    for principal in ["bob", "eve", "mal", "zoe"] {
        let asked = task(&format!("{principal}-first"), TaskState::Working, at(0));
        let mut turn = store.run(&owner(principal), &asked).await.unwrap();
        turn.end(TaskState::InputRequired, at(1)).await.unwrap();
        assert!(has(store, principal, asked.id.as_str()).await, "{principal}");
    }
}

#[tokio::test]
async fn a_caller_who_fills_the_store_with_finished_tasks_keeps_nobody_out() {
    for from in ["ada", ""] {
        others_have_room(&store(1_000, 64 << 20), from, 1_500, TaskState::Completed).await;
    }
}

#[tokio::test]
async fn a_caller_who_fills_the_store_with_waiting_tasks_keeps_nobody_out() {
    for from in ["ada", ""] {
        let store = store(1_000, 64 << 20);
        others_have_room(&store, from, 1_500, TaskState::InputRequired).await;
        // Neither itself: its own oldest makes room.
        store.begin(&owner(from), &task("another", TaskState::InputRequired, at(20_000))).await.unwrap();
        assert!(!has(&store, from, &format!("{from}-0")).await && has(&store, "bob", "bob-first").await);
    }
}

#[tokio::test]
async fn a_caller_who_fills_the_store_with_running_tasks_keeps_nobody_out() {
    for from in ["ada", ""] {
        others_have_room(&store(1_000, 64 << 20), from, 1_500, TaskState::Working).await;
    }
}

#[tokio::test]
async fn a_waiting_task_goes_only_when_no_finished_one_is_left() {
    let store = store(6, 1 << 20);
    for (principal, id, state, time) in [
        ("bob", "b-1", TaskState::InputRequired, 1),
        ("ada", "a-1", TaskState::AuthRequired, 2),
        ("ada", "a-2", TaskState::InputRequired, 3),
        ("ada", "a-4", TaskState::InputRequired, 5),
        ("ada", "done", TaskState::Completed, 6),
    ] {
        store.begin(&owner(principal), &task(id, state, at(time))).await.unwrap();
    }
    store.run(&owner("ada"), &task("a-3", TaskState::Working, at(4))).await.unwrap();
    let next = async |id: &str| store.begin(&owner("eve"), &task(id, TaskState::InputRequired, at(9))).await.unwrap();
    assert_eq!(next("e-1").await.displaced, []);
    assert!(!has(&store, "ada", "done").await);
    assert_eq!(next("e-2").await.displaced, ["a-1".into()]);
    // Its client answers: then a turn works on it, and it stays.
    let key = store.task(&"a-2".into()).await.unwrap().unwrap().key;
    store.enter(&key, submission("one", "a-2"), annex_conversation::Window::NONE).await.unwrap();
    assert_eq!(next("e-3").await.displaced, ["a-4".into()]);
    assert!(has(&store, "bob", "b-1").await && has(&store, "ada", "a-2").await);
}

#[tokio::test]
async fn an_owner_with_too_many_waiting_tasks_is_named_its_oldest() {
    let waiting = WaitingBounds { per_owner: 2, anonymous: 3, ..WaitingBounds::UNBOUNDED };
    let store = memory(MemoryBounds { waiting, ..MemoryBounds::default() });
    let mut surplus = Vec::new();
    for (id, time) in [("1", 1), ("2", 2), ("3", 3)] {
        for principal in ["ada", "bob", ""] {
            // They begin to wait in different ways.
            let id = format!("{principal}-{id}");
            let appended = if principal == "bob" {
                let mut turn = store.run(&owner(principal), &working(&id)).await.unwrap();
                turn.end(TaskState::AuthRequired, at(time)).await.unwrap()
            } else {
                store.begin(&owner(principal), &task(&id, TaskState::InputRequired, at(time))).await.unwrap()
            };
            surplus.extend(appended.surplus);
        }
    }
    assert_eq!(surplus, ["ada-1".into(), "bob-1".into()]);
    let last = store.begin(&owner(""), &task("-4", TaskState::InputRequired, at(4))).await.unwrap();
    assert_eq!(last.surplus, Some("-1".into()));
    // It is still there, and the caller's to end.
    let mut oldest = task("ada-1", TaskState::InputRequired, at(1));
    let failed = change(&mut oldest, TaskState::Failed, at(5));
    store.add(&"ada-1".into(), 1, &failed, &oldest).await.unwrap();
}
