//! Tasks: the projections of their entries, and reads of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use annex_conversation::{AppendError, Entry, Note, TaskSnapshot, UserMessage, Window};
use annex_protocol::{Artifact, Message, Part, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState};

use crate::support::{Backend, WritesTasks, at, change, event, numbers, owner, working};

on_every_store! {
    a_stored_task_tells_whether_it_waits_works_or_is_finished,
    entries_that_come_together_are_stored_together,
    a_message_joins_its_task_without_being_shown,
    what_is_said_takes_a_number_and_is_not_shown,
    notes_are_kept_with_their_task_and_their_conversation,
    whatever_is_appended_is_what_is_read,
    a_task_that_is_its_own_first_entry_is_read_as_it_was,
    entries_come_back_in_order_and_in_pages,
    a_stale_writer_changes_nothing,
    of_concurrent_writers_one_gets_each_number,
    a_task_is_created_once,
    nothing_is_appended_to_an_unknown_task,
    a_task_is_found_by_its_owner_only,
    a_dropped_call_is_stored_whole_or_not_at_all,
    a_finished_task_is_whole_and_has_all_of_its_entries_or_none,
}

async fn a_task_that_is_its_own_first_entry_is_read_as_it_was(backend: Backend) {
    let store = backend.store().await;
    let task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();

    let stored = store.load(&owner("ada"), &task.id).await.unwrap();
    assert_eq!(stored.number, 1);
    assert_eq!(stored.json().unwrap(), serde_json::to_string(&task).unwrap());
    assert_eq!(*stored.decode().unwrap(), task);

    let events = store.entries_after(&task.id, 0, (10, usize::MAX)).await.unwrap();
    assert_eq!(numbers(&events), [1]);
    let event = StreamResponse::Task(task);
    assert_eq!(events[0].update_json().unwrap().unwrap(), serde_json::to_string(&event).unwrap());
    assert_eq!(events[0].decode().unwrap(), Entry::from(event));
}

/// A store in memory has no entries of a finished task, so a reader of events must be able to read the task instead.
async fn a_finished_task_is_whole_and_has_all_of_its_entries_or_none(backend: Backend) {
    let store = backend.store().await;
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    for (seq, state) in [(1, TaskState::Working), (2, TaskState::Completed)] {
        let event = change(&mut task, state, at(2_000));
        store.add(&task.id, seq, &event, &task).await.unwrap();
    }
    for after in 0..4 {
        let left = numbers(&store.entries_after(&task.id, after, (10, usize::MAX)).await.unwrap());
        assert!(left.is_empty() || left == (after + 1..=3).collect::<Vec<_>>(), "behind {after}: {left:?}");
    }
    let stored = store.load(&owner("ada"), &task.id).await.unwrap();
    assert_eq!((stored.number, stored.decode().unwrap().into_task()), (3, task));
}

async fn entries_come_back_in_order_and_in_pages(backend: Backend) {
    let store = backend.store().await;
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let mut sent = Vec::new();
    for seq in 1..=20 {
        let event = change(&mut task, TaskState::Working, at(1_000 + seq));
        let expected = u64::try_from(seq).unwrap();
        assert_eq!(store.add(&task.id, expected, &event, &task).await.unwrap(), expected + 1);
        sent.push(encoded(&event));
    }

    let page = store.entries_after(&task.id, 1, (7, usize::MAX)).await.unwrap();
    assert_eq!(numbers(&page), (2..=8).collect::<Vec<_>>());
    let rest = store.entries_after(&task.id, 8, (100, usize::MAX)).await.unwrap();
    assert_eq!(numbers(&rest), (9..=21).collect::<Vec<_>>());
    let read: Vec<_> = page.iter().chain(&rest).map(|event| event.update_json().unwrap().unwrap()).collect();
    assert_eq!(read, sent);
    assert!(store.entries_after(&task.id, 21, (10, usize::MAX)).await.unwrap().is_empty());
    assert!(store.entries_after(&task.id, u64::MAX, (10, usize::MAX)).await.unwrap().is_empty());
    assert!(store.entries_after(&task.id, 0, (0, usize::MAX)).await.unwrap().is_empty());
    assert!(store.entries_after(&"t-2".into(), 0, (10, usize::MAX)).await.unwrap().is_empty());
    assert_eq!(*store.load(&owner("ada"), &task.id).await.unwrap().decode().unwrap(), task);
}

async fn a_stale_writer_changes_nothing(backend: Backend) {
    let store = backend.store().await;
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let first = change(&mut task, TaskState::InputRequired, at(2_000));
    store.add(&task.id, 1, &first, &task).await.unwrap();

    let mut other = working("t-1");
    let event = change(&mut other, TaskState::Completed, at(3_000));
    for expected in [0, 1, 3, u64::MAX - 1] {
        let refused = store.add(&task.id, expected, &event, &other).await.unwrap_err();
        let AppendError::Stale { expected: named, found } = refused else { panic!("{refused}") };
        assert_eq!((named, found), (expected, 2));
    }
    let stored = store.load(&owner("ada"), &task.id).await.unwrap();
    assert_eq!((stored.number, Task::clone(&stored.decode().unwrap())), (2, task.clone()));
    assert_eq!(numbers(&store.entries_after(&task.id, 0, (10, usize::MAX)).await.unwrap()), [1, 2]);
}

async fn of_concurrent_writers_one_gets_each_number(backend: Backend) {
    let store = backend.store().await;
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
                    let AppendError::Stale { found, .. } = error else { panic!("{error}") };
                    expected = found;
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }

    let events = store.entries_after(&task.id, 0, (1_000, usize::MAX)).await.unwrap();
    assert_eq!(numbers(&events), (1..=1 + (WRITERS * EVENTS) as u64).collect::<Vec<_>>());
    let mut contents: Vec<_> = events.iter().map(|event| event.update_json().unwrap().unwrap()).collect();
    contents.sort_unstable();
    contents.dedup();
    assert_eq!(contents.len(), events.len(), "an event was stored twice");
    assert_eq!(store.load(&owner("ada"), &task.id).await.unwrap().number, events.len() as u64);
}

async fn a_task_is_created_once(backend: Backend) {
    let store = backend.store().await;
    let task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    for other in ["ada", "bob"] {
        let refused = store.begin(&owner(other), &working("t-1")).await.unwrap_err();
        assert!(matches!(refused, AppendError::Missing | AppendError::Stale { .. }), "{refused}");
    }
    assert!(store.load(&owner("ada"), &task.id).await.is_some());
    assert!(store.load(&owner("bob"), &task.id).await.is_none());
    assert_eq!(store.entries_after(&task.id, 0, (10, usize::MAX)).await.unwrap().len(), 1);
}

async fn nothing_is_appended_to_an_unknown_task(backend: Backend) {
    let store = backend.store().await;
    let mut task = working("t-1");
    let event = change(&mut task, TaskState::Completed, at(2_000));
    let refused = store.add(&task.id, 1, &event, &task).await.unwrap_err();
    assert!(matches!(refused, AppendError::Missing), "{refused}");
    assert!(store.entries_after(&task.id, 0, (10, usize::MAX)).await.unwrap().is_empty());
}

async fn a_task_is_found_by_its_owner_only(backend: Backend) {
    let store = backend.store().await;
    let task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let mut other_tenant = owner("ada");
    other_tenant.tenant = "globex".to_owned();
    let mut no_tenant = owner("ada");
    no_tenant.tenant.clear();
    for other in [owner("bob"), owner(""), other_tenant, no_tenant] {
        assert!(store.load(&other, &task.id).await.is_none(), "{other:?}");
    }
    assert!(store.load(&owner("ada"), &task.id).await.is_some());
}

async fn a_dropped_call_is_stored_whole_or_not_at_all(backend: Backend) {
    let store = backend.store().await;
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
            let AppendError::Stale { found, .. } = error else { panic!("in round {round}: {error}") };
            assert_eq!(found, seq + 1);
            seq = found;
        }
        seq += 1;
        let stored = store.load(&owner("ada"), &task.id).await.unwrap();
        assert_eq!((stored.number, Task::clone(&stored.decode().unwrap())), (seq, task.clone()));
        assert_eq!(
            numbers(&store.entries_after(&task.id, 0, (1_000, usize::MAX)).await.unwrap()),
            (1..=seq).collect::<Vec<_>>()
        );
    }
}

/// Waits until a time that timers are too coarse for.
async fn pass(time: Instant) {
    while Instant::now() < time {
        tokio::task::yield_now().await;
    }
}

/// A stored task tells its state without being decoded.
async fn a_stored_task_tells_whether_it_waits_works_or_is_finished(backend: Backend) {
    let store = backend.store().await;
    let ada = owner("ada");
    let mut turn = store.run(&ada, &working("t-1")).await.unwrap();
    let seen = async || {
        let stored = store.load(&ada, &"t-1".into()).await.unwrap();
        (stored.waits(), stored.is_worked_on, stored.is_finished)
    };
    assert_eq!(seen().await, (false, true, false));
    turn.end(TaskState::InputRequired, at(2_000)).await.unwrap();
    assert_eq!(seen().await, (true, false, false));
    let next = crate::support::submission("one", "t-1");
    let entered = store.enter(&turn.key, next, Window::NONE).await.unwrap();
    assert_eq!(seen().await, (false, true, false), "a turn has begun");
    let annex_conversation::Entrance::Runs(fence, _) = entered else { panic!("no other turn runs") };
    turn.fence = fence;
    turn.end(TaskState::Completed, at(3_000)).await.unwrap();
    assert_eq!(seen().await, (false, false, true));
}

async fn entries_that_come_together_are_stored_together(backend: Backend) {
    let store = backend.store().await;
    let mut task = working("t-1");
    let mut first = vec![StreamResponse::Task(task.clone()).into()];
    first.push(change(&mut task, TaskState::Working, at(2_000)));
    let before = task.clone();
    assert_eq!(store.add_all(&task.id, 0, &first, &task.clone().into()).await.unwrap(), 2);
    let entries = [TaskState::Working, TaskState::InputRequired].map(|state| change(&mut task, state, at(3_000)));
    let refused = store.add_all(&task.id, 1, &entries, &task.clone().into()).await.unwrap_err();
    assert!(matches!(refused, AppendError::Stale { expected: 1, found: 2 }), "{refused}");
    let stored = store.load(&owner("ada"), &task.id).await.unwrap();
    assert_eq!((stored.number, Task::clone(&stored.decode().unwrap())), (2, before));

    assert_eq!(store.add_all(&task.id, 2, &entries, &task.clone().into()).await.unwrap(), 4);
    let stored = store.load(&owner("ada"), &task.id).await.unwrap();
    assert_eq!((stored.number, Task::clone(&stored.decode().unwrap())), (4, task));
    let read = store.entries_after(&stored.id, 0, (10, usize::MAX)).await.unwrap();
    assert_eq!(numbers(&read), [1, 2, 3, 4]);
    let read: Vec<Entry> = read.iter().map(|entry| entry.decode().unwrap()).collect();
    assert_eq!(read, [first, entries.to_vec()].concat());
}

fn joins(message: Message) -> Entry {
    Entry::Message(Arc::new(UserMessage { message, event: None, opens: None }))
}

async fn a_message_joins_its_task_without_being_shown(backend: Backend) {
    let store = backend.store().await;
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    let message = Message::user_text("go on");
    task.history.push(message.clone());
    let entry = joins(message);
    assert_eq!(store.add(&task.id, 1, &entry, &task).await.unwrap(), 2);

    let stored = store.load(&owner("ada"), &task.id).await.unwrap();
    assert_eq!((stored.number, Task::clone(&stored.decode().unwrap())), (2, task.clone()));
    let entries = store.entries_after(&task.id, 1, (10, usize::MAX)).await.unwrap();
    assert_eq!(numbers(&entries), [2]);
    assert_eq!(entries[0].update_json().unwrap(), None);
    assert!(entries[0].is(&entry));
}

async fn what_is_said_takes_a_number_and_is_not_shown(backend: Backend) {
    let store = backend.store().await;
    let mut turn = store.run(&owner("ada"), &working("t-1")).await.unwrap();
    turn.write(&[event("e", "{}").into()], false).await.unwrap();
    let done = change(&mut working("t-1"), TaskState::InputRequired, at(2_000));
    turn.write(&[done], true).await.unwrap();
    assert_eq!(store.task(&"t-1".into()).await.unwrap().unwrap().number, 3);
    let shown = store.entries_after(&"t-1".into(), 1, (10, usize::MAX)).await.unwrap();
    let shown: Vec<_> = shown.iter().filter(|entry| entry.update_json().unwrap().is_some()).collect();
    assert_eq!(shown.iter().map(|entry| entry.number).collect::<Vec<_>>(), [3]);
}

async fn notes_are_kept_with_their_task_and_their_conversation(backend: Backend) {
    let store = backend.store().await;
    let mut turn = store.run(&owner("ada"), &working("t-1")).await.unwrap();
    let note = |note: fn(Arc<str>) -> Note, text: &str| Entry::Note(note(text.into()));
    turn.write(&[event("e", "{}").into(), note(Note::UpstreamContext, "c"), note(Note::UpstreamTask, "t")], false)
        .await
        .unwrap();
    turn.write(&[note(Note::Receipt, "1 first")], false).await.unwrap();
    turn.write(&[note(Note::Pins, "old"), note(Note::Pins, "new"), note(Note::Receipt, "2 second")], true)
        .await
        .unwrap();
    let stored = store.task(&"t-1".into()).await.unwrap().unwrap();
    assert_eq!((stored.pins.as_deref(), stored.upstream.as_deref()), (Some("new"), Some("t")));
    let found = store.conversation(&turn.key, Window::NONE).await.unwrap();
    assert_eq!((found.upstream.as_deref(), found.receipt.as_deref()), (Some("c"), Some("2 second")));
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

    /// An entry that does not end the task.
    fn entry(&mut self, time: i64) -> Entry {
        let parts = vec![Part::text(self.text())].into();
        match self.below(4) {
            0 => joins(Message { parts, ..Message::default() }),
            1 => {
                let states = [TaskState::Working, TaskState::InputRequired, TaskState::AuthRequired];
                let mut task = working("t-1");
                let Entry::Update(event) = change(&mut task, states[self.below(3) as usize], at(time)) else {
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

/// Applies the entry to the task in the simplest way.
fn applied(task: &mut Task, entry: &Entry) {
    match entry {
        Entry::Message(message) => task.apply_message(message.message.clone()),
        Entry::Update(update) => match &**update {
            StreamResponse::StatusUpdate(update) => task.apply_status(update),
            StreamResponse::ArtifactUpdate(update) => task.apply_artifact(update),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

async fn whatever_is_appended_is_what_is_read(backend: Backend) {
    let store = backend.store().await;
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let mut made = working(&format!("t-{seed}"));
        made.history = vec![Message::user_text(&dice.text())];
        let mut snapshot = TaskSnapshot::from(made.clone());
        let mut expected = made.clone();
        let id = made.id.clone();
        let mut last = store.add_all(&id, 0, &[StreamResponse::Task(made).into()], &snapshot).await.unwrap();
        for step in 0..30 {
            let entries: Vec<Entry> = (0..=dice.below(3)).map(|_| dice.entry(2_000 + step)).collect();
            entries.iter().for_each(|entry| applied(&mut expected, entry));
            snapshot = snapshot.with(&entries);
            last = store.add_all(&id, last, &entries, &snapshot).await.unwrap();
            if dice.below(3) == 0 {
                let stored = store.task(&id).await.unwrap().unwrap();
                let read = stored.decode().unwrap();
                assert_eq!((stored.number, &*read), (last, &expected), "seed {seed}, step {step}");
                assert_eq!(*stored.json().unwrap(), serde_json::to_string(&expected).unwrap());
                // Whoever opens a task goes on with what was read.
                snapshot = read;
            }
        }
        let end = change(&mut expected, TaskState::Completed, at(9_000));
        snapshot = snapshot.with(std::slice::from_ref(&end));
        store.add_all(&id, last, &[end], &snapshot).await.unwrap();
        assert_eq!(*store.task(&id).await.unwrap().unwrap().decode().unwrap(), expected, "seed {seed}");
    }
}

/// The JSON that serde makes of an update.
fn encoded(entry: &Entry) -> String {
    let Entry::Update(update) = entry else { panic!("{entry:?} is no update") };
    serde_json::to_string(&**update).unwrap()
}
