//! Databases, beyond what memory does: everything outlives the process, and several stores write to one place.

use std::sync::Arc;

use annex_conversation::{
    AppendError, Arrival, Claim, Conversation, ConversationStore, Entrance, Entry, Event, Limits, MessageKey, Note,
    Retention, StoreError, Submission, Window, end_lost_turn,
};
use annex_protocol::{Message, Part, TaskPushNotificationConfig, TaskState};

use crate::concurrency::at_once;
use crate::support::{
    Backend, Says, Store, WritesTasks, add, arrive, at, beginning, change, create, event, events, find, holder, ids,
    key, next_millisecond, numbers, open, owner, state_of, submission, sweep_conversations, sweep_tasks, task, working,
};

on_every_database!(
    everything_outlives_the_store,
    limits_that_were_lowered_hold_from_the_next_event_on,
    two_stores_on_one_conversation_do_not_interleave,
    turns_of_two_stores_that_set_shared_keys_lose_none,
    turns_of_two_stores_run_in_the_order_in_which_they_entered,
    two_sweeps_at_once_delete_no_more_than_one_would,
    queues_that_processes_have_left_behind_are_swept,
    an_entry_that_cannot_be_stored_changes_nothing_and_may_come_again,
    a_page_of_entries_takes_so_many_bytes_and_one_entry_in_any_case,
    a_large_task_whose_entries_go_while_it_is_read_is_not_there,
    a_lost_turn_that_cannot_be_read_keeps_no_other_from_its_end,
    a_large_task_of_a_lost_turn_fails_with_all_that_it_had,
);

async fn everything_outlives_the_store(backend: Backend) {
    let store = backend.store().await;
    let ada = owner("ada");
    let message = MessageKey { context: "c-1".into(), message: "m-1".into(), digest: [1; 32] };
    let config = TaskPushNotificationConfig { id: Some("p-1".to_owned()), ..TaskPushNotificationConfig::default() };
    let mut turn = store.run(&ada, &working("t-1")).await.unwrap();
    let change = r#"{"a":9007199254740993,"user:b":2,"app:c":3}"#;
    let artifacts = [("file".to_owned(), vec![Part::text("content")].into())].into();
    let said = Event { artifacts, ..event("e", change) };
    let note = |note: fn(Arc<str>) -> Note| Entry::Note(note("a note".into()));
    let notes = [note(Note::Pins), note(Note::UpstreamContext), note(Note::Receipt)];
    turn.write(&[vec![said.into()], notes.into()].concat(), false).await.unwrap();
    turn.end(TaskState::InputRequired, at(2_000)).await.unwrap();
    store.put_config(&"t-1".into(), &config).await.unwrap();
    store.claim(&ada, &message, &"t-1".into(), &holder("one")).await.unwrap();
    let answered = MessageKey { message: "m-2".into(), ..message.clone() };
    let turn_that_answers = open_for(&store, &answered).await;
    let answer = Message::agent("answered".into(), None, vec![Part::text("Hello")]);
    turn_that_answers.answer(vec![event("e", "{}").into()], &answer).await.unwrap();
    let Entrance::Runs(..) = store.enter(&key("queue"), submission("two", "t-2"), Window::NONE).await.unwrap() else {
        panic!("nobody else is there")
    };
    let waits = store.enter(&key("queue"), submission("two", "t-3"), Window::NONE).await.unwrap();
    assert!(matches!(waits, Entrance::Waits(_)));
    let before = (store.task(&"t-1".into()).await.unwrap(), store.task(&"t-3".into()).await.unwrap());
    store.close().await;
    assert!(store.probe().await.is_err());

    let store = backend.store().await;
    let found = store.conversation(&turn.key, Window::ALL).await.unwrap();
    let expected = r#"{"a":9007199254740993,"app:c":3,"user:b":2}"#;
    assert_eq!((found.number, found.state.merged().to_json_string()), (1, expected.to_owned()));
    assert_eq!((ids(&found.history), found.upstream.as_deref()), (vec!["e"], Some("a note")));
    assert_eq!(found.receipt.as_deref(), Some("a note"));
    let artifact = store.artifact(&turn.key, "file").await.unwrap().unwrap();
    assert_eq!((artifact.version, artifact.parts), (1, vec![Part::text("content")].into()));
    let stored = (store.task(&"t-1".into()).await.unwrap(), store.task(&"t-3".into()).await.unwrap());
    assert_eq!(stored, before);
    let [asked, waiting] = [stored.0.unwrap(), stored.1.unwrap()];
    assert_eq!((asked.pins.as_deref(), asked.waits(), asked.number), (Some("a note"), true, 6));
    assert_eq!(asked.decode().unwrap().state(), TaskState::InputRequired);
    assert_eq!(numbers(&store.entries_after(&"t-1".into(), 0, (10, usize::MAX)).await.unwrap()), [1, 2, 3, 4, 5, 6]);
    assert_eq!(store.configs(&"t-1".into(), "", 10).await.unwrap().configs, [config]);
    let repeated = store.claim(&ada, &message, &"t-9".into(), &holder("one")).await.unwrap();
    assert_eq!(repeated, Claim::Open("t-1".into()));
    let repeated = store.claim(key("answered").owner(), &answered, &"t-9".into(), &holder("one")).await.unwrap();
    assert_eq!(repeated, Claim::Answered(Box::new(answer)));
    assert!(waiting.is_worked_on, "the queue is as it was");
    let third = store.enter(&key("queue"), submission("two", "t-4"), Window::NONE).await.unwrap();
    assert!(matches!(third, Entrance::Waits(_)));
}

/// A turn in `answered` on a message.
async fn open_for(store: &Store, message: &MessageKey) -> Conversation {
    let any: Arc<dyn ConversationStore> = store.clone();
    let submission = Submission { message: Some(message.clone()), ..submission("one", "answered") };
    store.claim(key("answered").owner(), message, &submission.task, &holder("one")).await.unwrap();
    match Conversation::enter(&any, key("answered"), submission, beginning(0)).await.unwrap() {
        Arrival::Runs(turn) => turn,
        Arrival::Waits(_) => panic!("another turn runs"),
    }
}

async fn limits_that_were_lowered_hold_from_the_next_event_on(backend: Backend) {
    let store = backend.store().await;
    create(&store, "s", r#"{"a":1,"b":"12345678","user:c":1,"user:d":1}"#).await;
    for number in 1..10 {
        add(&store, "s", number, event(&number.to_string(), "{}")).await.unwrap();
    }
    let lowered = Limits { events: 3, state_keys: 1, state_bytes: 10, ..Limits::default() };
    let store = backend.within(lowered).await;
    assert_eq!(events(&store, "s").await.len(), 9);
    for too_much in [r#"{"e":1}"#, r#"{"b":"123456789"}"#, r#"{"user:c":2}"#] {
        let refused = add(&store, "s", 10, event("e", too_much)).await.unwrap_err();
        assert!(matches!(refused, AppendError::TooLarge(_)), "{too_much}: {refused}");
    }
    let turn = open(&store, "s").await;
    turn.say(event("10", r#"{"b":1}"#)).await.unwrap();
    turn.close().await;
    assert_eq!(ids(&events(&store, "s").await), ["8", "9", "10"]);
    assert_eq!(state_of(&store, "s").await, r#"{"a":1,"b":1,"user:c":1,"user:d":1}"#, "what is smaller is taken");
}

/// Writes thirty events as a writer that does not know of the other one. Returns how often the writer came too late.
async fn write_thirty(store: &Store, name: &str) -> u64 {
    let mut expected = 0;
    let mut stale = 0;
    for round in 0..30 {
        let sent = event(&format!("{name}-{round}"), &format!(r#"{{"{name}":{round},"user:{name}":{round}}}"#));
        expected = loop {
            match add(store, "s", expected, sent.clone()).await {
                Ok(number) => break number,
                Err(AppendError::Stale { found, .. }) => (expected, stale) = (found, stale + 1),
                Err(error) => panic!("{error}"),
            }
        };
    }
    stale
}

async fn two_stores_on_one_conversation_do_not_interleave(backend: Backend) {
    let [first, second] = [backend.store().await, backend.store().await];
    create(&first, "s", "{}").await;
    let (one, other) = tokio::join!(write_thirty(&first, "one"), write_thirty(&second, "other"));
    assert!(one + other > 0, "the two never met");
    let said = events(&second, "s").await;
    for name in ["one", "other"] {
        let of_one: Vec<_> = ids(&said).into_iter().filter(|id| id.starts_with(&format!("{name}-"))).collect();
        assert_eq!(of_one, (0..30).map(|round| format!("{name}-{round}")).collect::<Vec<_>>());
    }
    let found = find(&first, "s").await.unwrap();
    let state = found.state.merged();
    assert_eq!((found.number, state.len()), (61, 4));
    for key in ["one", "other", "user:one", "user:other"] {
        assert_eq!(state.get(key).unwrap().get(), "29");
    }
}

async fn turns_of_two_stores_that_set_shared_keys_lose_none(backend: Backend) {
    let stores = [backend.store().await, backend.store().await];
    let worked = at_once(8, |index| {
        let store = stores[index % 2].clone();
        async move {
            let path = format!("ann/{index}");
            for round in 0..5 {
                let turn = open(&store, &path).await;
                // In another order each time, so that locks in the order of the keys would cross.
                let shared = if (index + round) % 2 == 0 { ["a", "b", "c"] } else { ["c", "b", "a"] };
                let shared = shared.map(|key| format!(r#","user:{key}":{round},"app:{key}":{round}"#)).concat();
                let own = format!(r#""own":{round},"user:of-{index}":{round},"app:of-{index}":{round}"#);
                let artifacts = [("file".to_owned(), vec![Part::text("x")].into())].into();
                turn.say(Event { artifacts, ..event("e", &format!("{{{own}{shared}}}")) }).await.unwrap();
                turn.close().await;
            }
        }
    });
    worked.await;
    for index in 0..8 {
        let found = find(&stores[index % 2], &format!("ann/{index}")).await.unwrap();
        let state = found.state.merged();
        assert_eq!((found.number, state.len()), (5, 1 + 2 * (3 + 8)));
        assert!((0..8).all(|other| state.get(&format!("user:of-{other}")).unwrap().get() == "4"));
        assert!((0..8).all(|other| state.get(&format!("app:of-{other}")).unwrap().get() == "4"));
        let artifact = stores[0].artifact(&key(&format!("ann/{index}")), "file").await.unwrap();
        assert_eq!((artifact.unwrap().version, state.get("own").unwrap().get()), (5, "4"));
    }
}

async fn turns_of_two_stores_run_in_the_order_in_which_they_entered(backend: Backend) {
    let stores = [backend.store().await, backend.store().await];
    let first = open(&stores[0], "s").await;
    let mut waiting = Vec::new();
    for number in 0..6 {
        let arrived = arrive(&stores[number % 2], "s", submission("one", &format!("t-{number}"))).await.unwrap();
        let Arrival::Waits(turn) = arrived else { panic!("another turn runs") };
        waiting.push(tokio::spawn(async move {
            let turn = turn.runs().await.unwrap();
            turn.say(event(&number.to_string(), "{}")).await.unwrap();
            turn.close().await;
        }));
    }
    first.say(event("first", "{}")).await.unwrap();
    first.close().await;
    for turn in waiting {
        turn.await.unwrap();
    }
    assert_eq!(ids(&events(&stores[0], "s").await), ["first", "0", "1", "2", "3", "4", "5"]);
}

async fn queues_that_processes_have_left_behind_are_swept(backend: Backend) {
    let store = backend.store().await;
    let rows = async || backend.number("SELECT count(*) FROM conversation").await;
    for (context, replica) in [("left", "one"), ("alive", "two")] {
        let entered = store.enter(&key(context), submission(replica, context), Window::NONE).await.unwrap();
        assert!(matches!(entered, Entrance::Runs(..)));
    }
    backend.end_lease("one").await;
    store.sweep(&Retention::ALL).await.unwrap();
    assert_eq!(rows().await, 2, "a queue stays for an hour");
    backend.execute("UPDATE conversation SET changed_at = 0").await;
    store.sweep(&Retention::ALL).await.unwrap();
    assert_eq!(rows().await, 1);
    let next = store.enter(&key("alive"), submission("three", "next"), Window::NONE).await.unwrap();
    assert!(matches!(next, Entrance::Waits(_)), "the turn of a process that lives is in its queue");
}

async fn two_sweeps_at_once_delete_no_more_than_one_would(backend: Backend) {
    let stores = [backend.store().await, backend.store().await];
    for number in 0..250 {
        let finished = task(&format!("t-{number:03}"), TaskState::Completed, at(number));
        stores[0].begin(&owner("ada"), &finished).await.unwrap();
        if number < 30 {
            create(&stores[0], &format!("s-{number:02}"), "{}").await;
            next_millisecond().await;
        }
    }
    let age = std::time::Duration::MAX;
    let (one, other) = tokio::join!(sweep_tasks(&stores[0], age, 20), sweep_tasks(&stores[1], age, 20));
    assert_eq!(one + other, 230);
    let (one, other) = tokio::join!(sweep_conversations(&stores[0], age, 20), sweep_conversations(&stores[1], age, 20));
    assert_eq!(one + other, 10);
    assert!(find(&stores[0], "s-09").await.is_none() && find(&stores[0], "s-10").await.is_some());
}

async fn an_entry_that_cannot_be_stored_changes_nothing_and_may_come_again(backend: Backend) {
    let store = backend.store().await;
    let mut turn = store.run(&owner("ada"), &working("t-1")).await.unwrap();
    let place = "SELECT id, 't-1', 3, 'update', '{}' FROM conversation";
    backend.execute(format!("INSERT INTO log_entry (conversation_id, task_id, number, kind, json) {place}")).await;
    let before = store.task(&"t-1".into()).await.unwrap();
    let entries =
        [event("e", r#"{"a":1,"user:b":1}"#).into(), change(&mut working("t-1"), TaskState::Completed, at(2))];
    for _ in 0..2 {
        let failed = turn.write(&entries, true).await.unwrap_err();
        assert!(matches!(failed, AppendError::Store(StoreError::Database(_))), "{failed}");
        let found = store.conversation(&turn.key, Window::ALL).await.unwrap();
        assert_eq!((found.number, found.state.merged().len(), found.history.len()), (0, 0, 0));
        assert_eq!(store.task(&"t-1".into()).await.unwrap(), before);
    }
    backend.execute("DELETE FROM log_entry WHERE number = 3").await;
    assert_eq!(turn.write(&entries, true).await.unwrap().number, 3);
    let found = store.conversation(&turn.key, Window::ALL).await.unwrap();
    assert_eq!((ids(&found.history), found.state.merged().len()), (vec!["e"], 2));
    assert!(store.task(&"t-1".into()).await.unwrap().unwrap().is_finished);
}

async fn a_page_of_entries_takes_so_many_bytes_and_one_entry_in_any_case(backend: Backend) {
    let store = backend.store().await;
    let mut task = working("t-1");
    store.begin(&owner("ada"), &task).await.unwrap();
    for number in 1..=9 {
        let entry = change(&mut task, TaskState::Working, at(1_000));
        store.add(&task.id, number, &entry, &task).await.unwrap();
    }
    let last = store.entries_after(&task.id, 9, (1, usize::MAX)).await.unwrap();
    let bytes = last[0].update_json().unwrap().unwrap().len();
    let within = async |after, bytes| numbers(&store.entries_after(&task.id, after, (4, bytes)).await.unwrap());
    assert_eq!(within(1, bytes * 3).await, [2, 3, 4]);
    assert_eq!(within(1, bytes * 3 - 1).await, [2, 3]);
    assert_eq!(within(1, bytes * 9).await, [2, 3, 4, 5]);
    assert_eq!(within(5, 1).await, [6]);
    assert_eq!(within(9, bytes).await, [10]);
    assert!(within(10, bytes).await.is_empty());
}

/// A task is read in two steps if it is large, and may be deleted in between. What it has said stays in the history.
async fn a_large_task_whose_entries_go_while_it_is_read_is_not_there(backend: Backend) {
    let store = backend.store().await;
    let mut turn = store.run(&owner("ada"), &working("t-1")).await.unwrap();
    let large = Message::user_text(&"x".repeat(20_000));
    let large = Entry::said_by_user(large, "t-1", annex_conversation::StateDelta::new(), None);
    turn.write(&[large, event("e", "{}").into()], false).await.unwrap();
    turn.write(&[change(&mut working("t-1"), TaskState::Working, at(2_000)), event("f", "{}").into()], false)
        .await
        .unwrap();
    let stored = store.task(&"t-1".into()).await.unwrap().unwrap();
    assert_eq!((stored.number, stored.decode().unwrap().history.len()), (5, 1));
    backend.execute("DELETE FROM log_entry WHERE kind NOT IN ('message', 'event')").await;
    assert_eq!(store.task(&"t-1".into()).await.unwrap(), None);
}

async fn a_lost_turn_that_cannot_be_read_keeps_no_other_from_its_end(backend: Backend) {
    let store = backend.store().await;
    for id in ["t-1", "t-2", "t-3"] {
        store.run(&owner("ada"), &working(id)).await.unwrap();
    }
    backend.execute("UPDATE task SET json = '{' WHERE id = 't-2'").await;
    backend.end_lease("one").await;
    let lost = store.take_lost(&"two".into(), 10).await.unwrap();
    assert_eq!(lost.len(), 3);
    for turn in &lost {
        let ended = end_lost_turn(store.as_ref(), turn, "The server stopped.").await;
        match turn.task.as_str() {
            "t-2" => assert_eq!(ended.unwrap_err().to_string(), "task t-2 is stored in a form that cannot be read"),
            _ => assert_eq!(ended.unwrap().unwrap().task.state(), TaskState::Failed),
        }
    }
}

async fn a_large_task_of_a_lost_turn_fails_with_all_that_it_had(backend: Backend) {
    let store = backend.store().await;
    let mut turn = store.run(&owner("ada"), &working("t-1")).await.unwrap();
    for number in 0..5 {
        let message = Message::user_text(&number.to_string().repeat(20_000));
        turn.write(&[Entry::said_by_user(message, "t-1", Default::default(), None)], false).await.unwrap();
    }
    backend.end_lease("one").await;
    let lost = store.take_lost(&"two".into(), 10).await.unwrap();
    end_lost_turn(store.as_ref(), &lost[0], "The server stopped.").await.unwrap().unwrap();
    let failed = store.task(&"t-1".into()).await.unwrap().unwrap();
    let task = failed.decode().unwrap();
    assert_eq!((task.state(), &task.history), (TaskState::Failed, &turn.task.history));
    // The task with five messages, the event for the last message, and the end.
    assert_eq!((failed.number, task.history.len()), (8, 5));
}
