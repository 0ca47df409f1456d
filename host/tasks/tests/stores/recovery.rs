//! Recovery of the tasks that a crash leaves behind.

use annex_protocol::{Message, StreamResponse, Task, TaskState};
use annex_tasks::{MessageKey, Remembered, TaskEvent};

use crate::fixture::{OneByOne, Restart, at, numbers, owner, task, working};

across_a_restart! {
    tasks_that_nobody_works_on_fail,
    the_log_of_a_recovered_task_says_that_it_failed,
    many_abandoned_tasks_are_all_recovered,
    messages_whose_task_was_never_created_can_come_again,
}

async fn tasks_that_nobody_works_on_fail(restart: &Restart) {
    let store = restart.open().await;
    let ada = owner("ada");
    let abandoned = [TaskState::Unspecified, TaskState::Submitted, TaskState::Working];
    for state in TaskState::ALL {
        store.begin(&ada, &task(state.name(), *state, at(1_000))).await.unwrap();
    }
    let mut names: Vec<&str> = abandoned.iter().map(|state| state.name()).collect();
    names.sort_unstable();
    let store = restart.after(store).await;
    let mut recovered = store.recover("the server was restarted").await.unwrap();
    // Processes that share a database take what they find, in no order.
    recovered.sort_unstable();
    assert_eq!(recovered.iter().map(|id| id.as_str()).collect::<Vec<_>>(), names);

    for state in TaskState::ALL {
        let stored = store.load(&ada, &state.name().into()).await.unwrap().unwrap();
        let task = stored.decode().unwrap();
        if !abandoned.contains(state) {
            assert_eq!((stored.seq, task.status.state), (1, *state));
            continue;
        }
        assert_eq!((stored.seq, task.status.state), (2, TaskState::Failed));
        let message = task.status.message.clone().unwrap();
        assert_eq!(message.text(), "the server was restarted");
        assert_eq!((message.task_id.as_ref(), message.context_id.as_ref()), (Some(&task.id), Some(&task.context_id)));
    }
    assert!(store.recover("again").await.unwrap().is_empty());
}

async fn the_log_of_a_recovered_task_says_that_it_failed(restart: &Restart) {
    let store = restart.open().await;
    store.begin(&owner("ada"), &working("t-1")).await.unwrap();
    let store = restart.after(store).await;
    store.recover("the server was restarted").await.unwrap();
    let stored = store.load(&owner("ada"), &"t-1".into()).await.unwrap().unwrap();
    let events = store.events_after(&stored.id, 0, 10).await.unwrap();
    assert_eq!(numbers(&events), [1, 2]);
    let TaskEvent::Stream(event) = events[1].decode().unwrap() else { panic!("not shown to readers") };
    let StreamResponse::StatusUpdate(update) = &*event else { panic!("{event:?}") };
    assert_eq!(update.status, stored.decode().unwrap().status);
}

async fn many_abandoned_tasks_are_all_recovered(restart: &Restart) {
    let store = restart.open().await;
    for number in 0..50 {
        store.begin(&owner("ada"), &working(&format!("t-{number:02}"))).await.unwrap();
    }
    let store = restart.after(store).await;
    assert_eq!(store.recover("the server was restarted").await.unwrap().len(), 50);
}

async fn messages_whose_task_was_never_created_can_come_again(restart: &Restart) {
    let store = restart.open().await;
    let ada = owner("ada");
    let message = |id: &str| MessageKey { context: "c-1".into(), message: id.into(), digest: [1; 32] };
    let begun = Message { message_id: "m-1".into(), ..Message::user_text("begin") };
    store.begin(&ada, &Task { history: vec![begun], ..working("t-1") }).await.unwrap();
    store.remember(&ada, &message("m-1"), &"t-1".into()).await.unwrap();
    store.remember(&ada, &message("m-2"), &"t-2".into()).await.unwrap();
    let store = restart.after(store).await;
    store.recover("the server was restarted").await.unwrap();
    let kept = store.remember(&ada, &message("m-1"), &"t-3".into()).await.unwrap();
    assert_eq!(kept, Remembered::Same("t-1".into()));
    let again = store.remember(&ada, &message("m-2"), &"t-3".into()).await.unwrap();
    assert!(matches!(again, Remembered::New | Remembered::Left(_)), "{again:?}");
}
