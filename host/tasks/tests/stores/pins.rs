//! Pins of tasks that wait.

use std::sync::Arc;
use std::time::Duration;

use annex_protocol::{TaskState, Timestamp};
use annex_tasks::{Interruption, PinnedVersion, Retention, TaskPins};

use crate::fixture::{OneByOne, Restart, Store, at, change, owner, task};

across_a_restart! {
    pins_are_those_of_a_task_that_is_not_finished,
    an_interruption_is_ended_once,
    pins_go_with_their_task,
}

fn pins(number: u64) -> TaskPins {
    let uri = "https://annex.example/own/v1";
    let version = PinnedVersion { uri: uri.into(), digest: "sha256:1".to_owned(), settings: "\0".to_owned() };
    let requested = vec![uri.into(), "urn:\0".into()];
    TaskPins { versions: vec![version], interruption: Some(Interruption { by: uri.into(), requested, number }) }
}

async fn found(store: &Store, id: &str) -> Option<TaskPins> {
    let (of, pins) = store.pins().expect("pins are kept").find(&id.into()).await.unwrap()?;
    assert_eq!(of, owner("ada"));
    Some(pins)
}

async fn pins_are_those_of_a_task_that_is_not_finished(restart: &Restart) {
    let store = restart.open().await;
    let mut waits = task("t-1", TaskState::AuthRequired, at(1_000));
    // Before the task itself, and again.
    store.pins().unwrap().keep(&waits.id, &pins(7)).await.unwrap();
    assert_eq!(found(&store, "t-1").await, None);
    store.begin(&owner("ada"), &waits).await.unwrap();
    assert_eq!(found(&store, "t-1").await, Some(pins(7)));
    let largest = pins(i64::MAX.unsigned_abs());
    store.pins().unwrap().keep(&waits.id, &largest).await.unwrap();
    let store = restart.after(store).await;
    assert_eq!(found(&store, "t-1").await, Some(largest));
    for id in ["t-2", "", "\0"] {
        assert_eq!(found(&store, id).await, None);
    }
    let ended = change(&mut waits, TaskState::Canceled, at(2_000));
    store.add(&waits.id, 1, &ended, &waits).await.unwrap();
    assert_eq!(found(&store, "t-1").await, None);
}

async fn an_interruption_is_ended_once(restart: &Restart) {
    let [one, other] = [restart.open().await, restart.open().await];
    one.begin(&owner("ada"), &task("t-1", TaskState::AuthRequired, at(1_000))).await.unwrap();
    one.pins().unwrap().keep(&"t-1".into(), &pins(7)).await.unwrap();
    let end = |store: &Store, number| {
        let store = Arc::clone(store);
        async move { store.pins().unwrap().end_interruption(&"t-1".into(), number).await.unwrap() }
    };
    assert!(!end(&one, 8).await, "another one");
    let ends = [&one, &other, &one, &other].map(|store| tokio::spawn(end(store, 7)));
    let mut ended = 0;
    for end in ends {
        ended += usize::from(end.await.unwrap());
    }
    assert_eq!(ended, 1);
    let versions = pins(7).versions;
    assert_eq!(found(&other, "t-1").await, Some(TaskPins { versions, interruption: None }), "its versions stay");
}

async fn pins_go_with_their_task(restart: &Restart) {
    let store = restart.open().await;
    for id in ["t-1", "t-2"] {
        store.pins().unwrap().keep(&id.into(), &pins(7)).await.unwrap();
    }
    store.begin(&owner("ada"), &task("t-1", TaskState::Completed, at(1_000))).await.unwrap();
    // What was kept within this millisecond is not old yet.
    let kept = Timestamp::now();
    while Timestamp::now() <= kept {
        tokio::task::yield_now().await;
    }
    store.sweep(&Retention { age: Duration::ZERO, count: 0 }).await.unwrap();
    // Not known under the old id, nor under that of a task which never came to be.
    for id in ["t-1", "t-2"] {
        store.begin(&owner("ada"), &task(id, TaskState::AuthRequired, at(1_000))).await.unwrap();
        assert_eq!(found(&store, id).await, None, "{id}");
    }
}
