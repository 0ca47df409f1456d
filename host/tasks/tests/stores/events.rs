//! Creating, appending and reading back.

use std::time::{Duration, Instant};

use annex_protocol::{Message, StreamResponse, Task, TaskState};
use annex_tasks::{Creator, Place, StoreError, TaskEvent};

use crate::fixture::{OneByOne, Restart, Store, at, change, encoded, numbers, owner, working};

on_every_store! {
    a_new_task_is_its_own_first_event,
    events_come_back_in_order_and_in_pages,
    a_message_joins_the_log_without_being_shown,
    events_that_come_together_are_stored_together,
    a_stale_writer_changes_nothing,
    of_concurrent_writers_one_gets_each_number,
    tasks_that_come_at_the_same_time_are_each_answered_for_themselves,
    a_task_is_created_once,
    nothing_is_appended_to_an_unknown_task,
    a_task_is_found_by_its_owner_only,
    a_dropped_call_is_stored_whole_or_not_at_all,
    a_finished_task_is_whole_and_has_all_of_its_events_or_none,
    a_stored_task_tells_whether_it_waits_works_or_is_finished,
}

across_a_restart! {
    a_page_of_events_takes_so_many_bytes_and_one_event_in_any_case,
}

async fn a_page_of_events_takes_so_many_bytes_and_one_event_in_any_case(restart: &Restart) {
    let store = restart.open().await;
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let mut bytes = 0;
    for seq in 1..=9 {
        let event = change(&mut task, TaskState::Working, at(1_000));
        bytes = encoded(&event).len();
        store.add(&task.id, seq, &event, &task).await.unwrap();
    }
    let within = async |after, bytes| numbers(&store.events_within(&task.id, after, (4, bytes)).await.unwrap());
    assert_eq!(within(1, bytes * 3).await, [2, 3, 4]);
    assert_eq!(within(1, bytes * 9).await, [2, 3, 4, 5]);
    assert_eq!(within(5, 1).await, [6]);
    assert_eq!(within(9, bytes).await, [10]);
    assert!(within(10, bytes).await.is_empty());
}

async fn a_new_task_is_its_own_first_event(store: Store) {
    let task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();

    let stored = store.load(&owner("ada"), &task.id).await.unwrap().unwrap();
    assert_eq!(stored.seq, 1);
    assert_eq!(stored.json().unwrap(), serde_json::to_string(&task).unwrap());
    assert_eq!(*stored.decode().unwrap(), task);

    let events = store.events_after(&task.id, 0, 10).await.unwrap();
    assert_eq!(numbers(&events), [1]);
    let event = StreamResponse::Task(task);
    assert_eq!(events[0].stream_json().unwrap().unwrap(), serde_json::to_string(&event).unwrap());
    assert_eq!(events[0].decode().unwrap(), TaskEvent::from(event));
}

/// A store in memory keeps no events of a finished task, so readers of events must be able to read the task instead.
async fn a_finished_task_is_whole_and_has_all_of_its_events_or_none(store: Store) {
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    for (seq, state) in [(1, TaskState::Working), (2, TaskState::Completed)] {
        let event = change(&mut task, state, at(2_000));
        store.add(&task.id, seq, &event, &task).await.unwrap();
    }
    for after in 0..4 {
        let left = numbers(&store.events_after(&task.id, after, 10).await.unwrap());
        assert!(left.is_empty() || left == (after + 1..=3).collect::<Vec<_>>(), "behind {after}: {left:?}");
    }
    let stored = store.load(&owner("ada"), &task.id).await.unwrap().unwrap();
    assert_eq!((stored.seq, stored.decode().unwrap().into_task()), (3, task));
}

/// The state of a stored task is known without decoding the task.
async fn a_stored_task_tells_whether_it_waits_works_or_is_finished(store: Store) {
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    for (seq, state, told) in [
        (1, TaskState::Working, (false, true, false)),
        (2, TaskState::AuthRequired, (true, false, false)),
        (3, TaskState::Working, (false, true, false)),
        (4, TaskState::InputRequired, (true, false, false)),
        (5, TaskState::Completed, (false, false, true)),
    ] {
        let event = change(&mut task, state, at(2_000));
        store.add(&task.id, seq, &event, &task).await.unwrap();
        let stored = store.load(&owner("ada"), &task.id).await.unwrap().unwrap();
        assert_eq!((stored.waits(), stored.is_worked_on, stored.is_finished), told, "{state:?}");
    }
}

async fn events_come_back_in_order_and_in_pages(store: Store) {
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let mut sent = Vec::new();
    for seq in 1..=20 {
        let event = change(&mut task, TaskState::Working, at(1_000 + seq));
        let expected = u64::try_from(seq).unwrap();
        assert_eq!(store.add(&task.id, expected, &event, &task).await.unwrap(), expected + 1);
        sent.push(encoded(&event));
    }

    let page = store.events_after(&task.id, 1, 7).await.unwrap();
    assert_eq!(numbers(&page), (2..=8).collect::<Vec<_>>());
    let rest = store.events_after(&task.id, 8, 100).await.unwrap();
    assert_eq!(numbers(&rest), (9..=21).collect::<Vec<_>>());
    let read: Vec<_> = page.iter().chain(&rest).map(|event| event.stream_json().unwrap().unwrap()).collect();
    assert_eq!(read, sent);
    assert!(store.events_after(&task.id, 21, 10).await.unwrap().is_empty());
    assert!(store.events_after(&task.id, u64::MAX, 10).await.unwrap().is_empty());
    assert!(store.events_after(&task.id, 0, 0).await.unwrap().is_empty());
    assert!(store.events_after(&"t-2".into(), 0, 10).await.unwrap().is_empty());
    assert_eq!(*store.load(&owner("ada"), &task.id).await.unwrap().unwrap().decode().unwrap(), task);
}

async fn a_message_joins_the_log_without_being_shown(store: Store) {
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let message = Message::user_text("go on");
    task.history.push(message.clone());
    let event = TaskEvent::from(message);
    assert_eq!(store.add(&task.id, 1, &event, &task).await.unwrap(), 2);

    let stored = store.load(&owner("ada"), &task.id).await.unwrap().unwrap();
    assert_eq!((stored.seq, Task::clone(&stored.decode().unwrap())), (2, task.clone()));
    let events = store.events_after(&task.id, 1, 10).await.unwrap();
    assert_eq!(numbers(&events), [2]);
    assert_eq!(events[0].stream_json().unwrap(), None);
    assert_eq!(events[0].decode().unwrap(), event);
}

async fn events_that_come_together_are_stored_together(store: Store) {
    let mut task = working("t-1");
    let mut first = vec![StreamResponse::Task(task.clone()).into()];
    first.push(change(&mut task, TaskState::Working, at(2_000)));
    store.create(&owner("ada"), &first, &task.clone().into(), Creator::default()).await.unwrap();
    let before = task.clone();
    let events = [TaskState::Working, TaskState::InputRequired].map(|state| change(&mut task, state, at(3_000)));
    let refused = store.append(&task.id, &Place::after(1), &events, &task.clone().into()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Stale { expected: 1, found: 2 }), "{refused}");
    let stored = store.load(&owner("ada"), &task.id).await.unwrap().unwrap();
    assert_eq!((stored.seq, Task::clone(&stored.decode().unwrap())), (2, before));

    assert_eq!(store.append(&task.id, &Place::after(2), &events, &task.clone().into()).await.unwrap().seq, 4);
    let stored = store.load(&owner("ada"), &task.id).await.unwrap().unwrap();
    assert_eq!((stored.seq, Task::clone(&stored.decode().unwrap())), (4, task));
    let read = store.events_after(&stored.id, 0, 10).await.unwrap();
    assert_eq!(numbers(&read), [1, 2, 3, 4]);
    let read: Vec<TaskEvent> = read.iter().map(|event| event.decode().unwrap()).collect();
    assert_eq!(read, [first, events.to_vec()].concat());
}

async fn a_stale_writer_changes_nothing(store: Store) {
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let first = change(&mut task, TaskState::InputRequired, at(2_000));
    store.add(&task.id, 1, &first, &task).await.unwrap();

    let mut other = working("t-1");
    let event = change(&mut other, TaskState::Completed, at(3_000));
    for expected in [0, 1, 3, u64::MAX - 1] {
        let refused = store.add(&task.id, expected, &event, &other).await.unwrap_err();
        let StoreError::Stale { expected: named, found } = refused else { panic!("{refused}") };
        assert_eq!((named, found), (expected, 2));
    }
    let stored = store.load(&owner("ada"), &task.id).await.unwrap().unwrap();
    assert_eq!((stored.seq, Task::clone(&stored.decode().unwrap())), (2, task.clone()));
    assert_eq!(numbers(&store.events_after(&task.id, 0, 10).await.unwrap()), [1, 2]);
}

async fn of_concurrent_writers_one_gets_each_number(store: Store) {
    const WRITERS: i64 = 8;
    const EVENTS: i64 = 5;
    let task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        let mut task = task.clone();
        tokio::spawn(async move {
            for event in 0..EVENTS {
                let event = change(&mut task, TaskState::Working, at(writer * 100 + event));
                let mut expected = 1;
                while let Err(error) = store.add(&task.id, expected, &event, &task).await {
                    let StoreError::Stale { found, .. } = error else { panic!("{error}") };
                    expected = found;
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }

    let events = store.events_after(&task.id, 0, 1_000).await.unwrap();
    assert_eq!(numbers(&events), (1..=1 + (WRITERS * EVENTS) as u64).collect::<Vec<_>>());
    let mut contents: Vec<_> = events.iter().map(|event| event.stream_json().unwrap().unwrap()).collect();
    contents.sort_unstable();
    contents.dedup();
    assert_eq!(contents.len(), events.len(), "an event was stored twice");
    assert_eq!(store.load(&owner("ada"), &task.id).await.unwrap().unwrap().seq, events.len() as u64);
}

async fn tasks_that_come_at_the_same_time_are_each_answered_for_themselves(store: Store) {
    let ada = owner("ada");
    let tasks: Vec<Task> = (0..30).map(|number| working(&format!("t-{number}"))).collect();
    let twice = tasks.iter().chain(&tasks);
    let created = futures::future::join_all(twice.map(|task| store.begin(&ada, task))).await;
    let refused = created.iter().filter(|result| matches!(result, Err(StoreError::AlreadyExists { .. }))).count();
    assert_eq!((created.iter().filter(|result| result.is_ok()).count(), refused), (30, 30));
    let changes = (0_i64..).zip(&tasks).map(async |(number, task)| {
        let mut task = task.clone();
        let event = change(&mut task, TaskState::Completed, at(number));
        // Every third writer is late.
        store.add(&task.id, u64::from(number % 3 != 0), &event, &task).await
    });
    for (number, changed) in futures::future::join_all(changes).await.into_iter().enumerate() {
        let stored = store.load(&ada, &tasks[number].id).await.unwrap().unwrap();
        match number % 3 {
            0 => assert!(matches!(changed, Err(StoreError::Stale { found: 1, .. })) && stored.seq == 1, "{changed:?}"),
            _ => {
                assert_eq!((changed.unwrap(), stored.seq), (2, 2));
                assert_eq!(stored.decode().unwrap().status.timestamp, at(i64::try_from(number).unwrap()));
            }
        }
    }
}

async fn a_task_is_created_once(store: Store) {
    let task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    for other in ["ada", "bob"] {
        let refused = store.begin(&owner(other), &working("t-1")).await.unwrap_err();
        assert!(matches!(refused, StoreError::AlreadyExists { .. }), "{refused}");
    }
    assert!(store.load(&owner("ada"), &task.id).await.unwrap().is_some());
    assert!(store.load(&owner("bob"), &task.id).await.unwrap().is_none());
    assert!(store.exists(&owner("ada"), &task.id).await.unwrap());
    assert!(!store.exists(&owner("bob"), &task.id).await.unwrap());
    assert_eq!(store.events_after(&task.id, 0, 10).await.unwrap().len(), 1);
}

async fn nothing_is_appended_to_an_unknown_task(store: Store) {
    let mut task = working("t-1");
    let event = change(&mut task, TaskState::Completed, at(2_000));
    let refused = store.add(&task.id, 0, &event, &task).await.unwrap_err();
    assert!(matches!(refused, StoreError::NotFound { .. }), "{refused}");
    assert!(store.events_after(&task.id, 0, 10).await.unwrap().is_empty());
}

async fn a_task_is_found_by_its_owner_only(store: Store) {
    let task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let mut other_tenant = owner("ada");
    other_tenant.tenant = "globex".to_owned();
    let mut no_tenant = owner("ada");
    no_tenant.tenant.clear();
    for other in [owner("bob"), owner(""), other_tenant, no_tenant] {
        assert!(store.load(&other, &task.id).await.unwrap().is_none(), "{other:?}");
    }
    assert!(store.load(&owner("ada"), &task.id).await.unwrap().is_some());
}

async fn a_dropped_call_is_stored_whole_or_not_at_all(store: Store) {
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let mut seq = 1;
    for round in 0..60 {
        let mut dropped = task.clone();
        let event = change(&mut dropped, TaskState::Working, at(2_000 + round));
        // Each round gets a little further.
        let deadline = Instant::now() + Duration::from_micros(50) * u32::try_from(round).unwrap();
        tokio::select! {
            biased;
            _ = store.add(&task.id, seq, &event, &dropped) => {}
            () = pass(deadline) => {}
        }

        let event = change(&mut task, TaskState::Working, at(5_000 + round));
        while let Err(error) = store.add(&task.id, seq, &event, &task).await {
            let StoreError::Stale { found, .. } = error else { panic!("in round {round}: {error}") };
            assert_eq!(found, seq + 1);
            seq = found;
        }
        seq += 1;
        let stored = store.load(&owner("ada"), &task.id).await.unwrap().unwrap();
        assert_eq!((stored.seq, Task::clone(&stored.decode().unwrap())), (seq, task.clone()));
        assert_eq!(numbers(&store.events_after(&task.id, 0, 1_000).await.unwrap()), (1..=seq).collect::<Vec<_>>());
    }
}

/// Resolves at a time that timers are too coarse for.
async fn pass(time: Instant) {
    while Instant::now() < time {
        tokio::task::yield_now().await;
    }
}
