//! Tasks that wait for their clients: overdue tasks, and dropped tasks in a full memory store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use annex_protocol::{Message, Owner, TaskId, TaskState, Timestamp};
use annex_tasks::{
    Creator, MemoryBounds, MemoryTaskStore, Place, StoreError, TaskEvent, TaskSnapshot, TaskStore, WaitingBounds,
    WaitingWatcher,
};

use crate::fixture::{OneByOne, Store, at, change, owner, task, working};

on_every_store! {
    tasks_that_have_waited_too_long_or_are_too_many_are_overdue,
}

async fn tasks_that_have_waited_too_long_or_are_too_many_are_overdue(store: Store) {
    let now = Timestamp::now().as_millis();
    let hour = 60 * 60 * 1_000;
    let create = async |principal: &str, id: &str, state, hours: i64| {
        store.begin(&owner(principal), &task(id, state, at(now - hours * hour))).await.unwrap();
    };
    create("ada", "old", TaskState::InputRequired, 30).await;
    create("ada", "young", TaskState::AuthRequired, 1).await;
    create("ada", "works", TaskState::Working, 40).await;
    create("ada", "done", TaskState::Completed, 50).await;
    for (id, hours) in [("b-1", 5), ("b-2", 4), ("b-3", 3)] {
        create("bob", id, TaskState::InputRequired, hours).await;
    }
    for (id, hours) in [("x-1", 9), ("x-2", 8), ("x-3", 7), ("x-4", 6)] {
        create("", id, TaskState::InputRequired, hours).await;
    }
    let bounds = WaitingBounds { age: Duration::from_secs(24 * 60 * 60), per_owner: 2, anonymous: 3 };
    let overdue = async |bounds, limit| {
        let overdue = store.overdue(&bounds, 0, limit).await.unwrap();
        overdue.into_iter().map(|(owner, id)| format!("{}/{id}", owner.principal)).collect::<Vec<_>>()
    };
    assert_eq!(overdue(bounds, 10).await, ["ada/old", "/x-1", "bob/b-1"]);
    assert_eq!(overdue(bounds, 2).await, ["ada/old", "/x-1"]);
    assert_eq!(overdue(WaitingBounds { age: Duration::MAX, ..bounds }, 10).await, ["/x-1", "bob/b-1"]);
    assert!(overdue(WaitingBounds::UNBOUNDED, 10).await.is_empty());
}

/// Records each notice.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl WaitingWatcher for Heard {
    fn gone(&self, task: &TaskId) {
        self.0.lock().unwrap().push(format!("gone {task}"));
    }

    fn is_surplus(&self, owner: &Owner, task: &TaskId) {
        self.0.lock().unwrap().push(format!("surplus {}/{task}", owner.principal));
    }
}

fn store(max_tasks: usize, max_bytes: usize) -> MemoryTaskStore {
    MemoryTaskStore::new(MemoryBounds { max_tasks, max_bytes, waiting: WaitingBounds::UNBOUNDED })
}

async fn has(store: &MemoryTaskStore, principal: &str, id: &str) -> bool {
    store.exists(&owner(principal), &id.into()).await.unwrap()
}

/// Fills the store with `tasks` tasks of one caller, and checks that other callers can store one each.
async fn others_have_room(store: &MemoryTaskStore, from: &str, tasks: i64, state: TaskState) {
    for number in 0..tasks {
        match store.begin(&owner(from), &task(&format!("{from}-{number}"), state, at(number))).await {
            Ok(()) | Err(StoreError::Full) => {}
            Err(error) => panic!("{error}"),
        }
    }
    for principal in ["bob", "eve", "mal", "zoe"] {
        let asked = task(&format!("{principal}-first"), TaskState::Working, at(0));
        store.begin(&owner(principal), &asked).await.unwrap();
        let mut asked = asked;
        let event = change(&mut asked, TaskState::InputRequired, at(1));
        store.add(&asked.id, 1, &event, &asked).await.unwrap();
        assert!(has(store, principal, asked.id.as_str()).await, "{principal}");
    }
}

#[tokio::test]
async fn a_caller_who_fills_the_store_with_finished_tasks_keeps_nobody_out() {
    for from in ["ada", ""] {
        others_have_room(&store(10_000, 64 << 20), from, 10_500, TaskState::Completed).await;
    }
}

#[tokio::test]
async fn a_caller_who_fills_the_store_with_waiting_tasks_keeps_nobody_out() {
    for from in ["ada", ""] {
        let store = store(10_000, 64 << 20);
        others_have_room(&store, from, 10_500, TaskState::InputRequired).await;
        // Neither itself: its own oldest makes room.
        store.begin(&owner(from), &task("another", TaskState::InputRequired, at(20_000))).await.unwrap();
        assert!(!has(&store, from, &format!("{from}-0")).await && has(&store, "bob", "bob-first").await);
    }
}

#[tokio::test]
async fn a_caller_who_fills_the_store_with_running_tasks_keeps_nobody_out() {
    for from in ["ada", ""] {
        let store = store(1_000, 64 << 20);
        others_have_room(&store, from, 1_500, TaskState::Working).await;
    }
}

#[tokio::test]
async fn a_caller_whose_running_tasks_are_large_keeps_nobody_out() {
    let store = store(1_000, 4 << 20);
    let piece = [TaskEvent::from(Message::user_text(&"x".repeat(100_000)))];
    let mut refused = 0;
    for number in 0..30 {
        let mut snapshot = TaskSnapshot::from(working(&format!("ada-{number}")));
        let Ok(_) = store.create(&owner("ada"), &[], &snapshot, Creator::default()).await else { continue };
        for last in 0..3 {
            snapshot = snapshot.with(&piece);
            refused += usize::from(store.append(snapshot.id(), &Place::after(last), &piece, &snapshot).await.is_err());
        }
    }
    assert!(refused > 0, "the store never was full");
    others_have_room(&store, "ada", 0, TaskState::Working).await;
}

#[tokio::test]
async fn of_waiting_tasks_the_oldest_of_whoever_has_most_goes_after_all_finished_ones() {
    let store = store(6, 1 << 20);
    let heard = Arc::new(Heard::default());
    store.watch_waiting(heard.clone());
    for (principal, id, state, time) in [
        ("bob", "b-1", TaskState::InputRequired, 1),
        ("ada", "a-1", TaskState::AuthRequired, 2),
        ("ada", "a-2", TaskState::InputRequired, 3),
        ("ada", "a-3", TaskState::Working, 4),
        ("ada", "a-4", TaskState::InputRequired, 5),
        ("ada", "done", TaskState::Completed, 6),
    ] {
        store.begin(&owner(principal), &task(id, state, at(time))).await.unwrap();
    }
    store.begin(&owner("eve"), &working("e-1")).await.unwrap();
    assert!(!has(&store, "ada", "done").await && heard.0.lock().unwrap().is_empty());
    store.begin(&owner("eve"), &working("e-2")).await.unwrap();
    assert_eq!(*heard.0.lock().unwrap(), ["gone a-1"]);
    // Its client answers: then it is worked on, and stays.
    let snapshot = TaskSnapshot::from(task("a-2", TaskState::InputRequired, at(3)));
    let answer = [TaskEvent::from(Message::user_text("here"))];
    store.append(snapshot.id(), &Place::after(1), &answer, &snapshot.with(&answer)).await.unwrap();
    store.begin(&owner("eve"), &working("e-3")).await.unwrap();
    assert_eq!(*heard.0.lock().unwrap(), ["gone a-1", "gone a-4"]);
    // Bob has less than whoever wants more.
    let refused = store.begin(&owner("eve"), &working("e-4")).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full), "{refused}");
    assert!(has(&store, "bob", "b-1").await && has(&store, "ada", "a-2").await);
}

#[tokio::test]
async fn whoever_watches_hears_of_a_caller_with_too_many_waiting_tasks() {
    let waiting = WaitingBounds { per_owner: 2, anonymous: 3, ..WaitingBounds::UNBOUNDED };
    let store = MemoryTaskStore::new(MemoryBounds { max_tasks: 100, max_bytes: 1 << 20, waiting });
    let heard = Arc::new(Heard::default());
    store.watch_waiting(heard.clone());
    for (id, time) in [("1", 1), ("2", 2), ("3", 3)] {
        for principal in ["ada", "bob", ""] {
            // They begin to wait in different ways.
            let mut asked = task(&format!("{principal}-{id}"), TaskState::InputRequired, at(time));
            if principal == "bob" {
                asked = working(&format!("{principal}-{id}"));
            }
            store.begin(&owner(principal), &asked).await.unwrap();
            if principal == "bob" {
                let event = change(&mut asked, TaskState::AuthRequired, at(time));
                store.add(&asked.id, 1, &event, &asked).await.unwrap();
            }
        }
    }
    assert_eq!(*heard.0.lock().unwrap(), ["surplus ada/ada-1", "surplus bob/bob-1"]);
    store.begin(&owner(""), &task("-4", TaskState::InputRequired, at(4))).await.unwrap();
    assert_eq!(heard.0.lock().unwrap().last().map(String::as_str), Some("surplus /-1"));
}
