//! The queue of turns of a conversation: order, fences, and who may write.

use annex_conversation::{
    Append, AppendError, Arrival, Departure, Entrance, Entry, Fence, Position, StateDelta, Submission, TaskSnapshot,
    UserMessage, Window,
};
use annex_protocol::{Message, TaskState, Timestamp};
use std::sync::Arc;

use crate::concurrency::at_once;
use crate::support::{
    Backend, Says, Store, WritesTasks, arrive, change, event, events, find, ids, key, open, owner, refusal, submission,
    task, update,
};

on_every_store!(
    turns_run_in_the_order_in_which_they_entered,
    a_turn_that_waits_is_accepted_and_its_task_is_submitted,
    a_waiting_turn_sees_what_the_one_before_has_said,
    a_full_queue_refuses_at_once,
    conversations_do_not_wait_for_each_other,
    a_task_has_one_turn,
    of_turns_that_enter_for_a_task_at_once_one_enters,
    a_queue_is_gone_with_its_last_turn,
    only_the_turn_that_runs_says_something,
    a_turn_writes_to_a_task,
    a_turn_that_has_ended_writes_nothing_more,
    a_writer_without_a_turn_writes_where_no_turn_works,
    a_waiting_task_is_cancelled_while_another_turn_runs,
    a_turn_that_waits_can_be_ended,
    a_message_its_state_and_its_task_are_one_step,
    a_vetoed_message_is_no_part_of_the_conversation,
    a_deleted_conversation_is_not_brought_back_by_its_turn,
    a_turn_whose_lease_is_over_writes_nothing,
    a_turn_whose_lease_is_over_does_not_begin,
    a_turn_that_is_dropped_before_it_wrote_was_never_there,
    a_turn_whose_lease_is_over_leaves_its_place_to_others,
);

async fn enter(store: &Store, path: &str, task: &str) -> Result<Entrance, AppendError> {
    store.enter(&key(path), submission("one", task), Window::ALL).await
}

async fn running(store: &Store, path: &str, task: &str) -> Fence {
    match enter(store, path, task).await.unwrap() {
        Entrance::Runs(fence, _) => fence,
        Entrance::Waits(_) => panic!("{task} has to wait"),
    }
}

async fn waiting(store: &Store, path: &str, task: &str) -> Fence {
    match enter(store, path, task).await.unwrap() {
        Entrance::Waits(fence) => fence,
        Entrance::Runs(..) => panic!("{task} runs at once"),
    }
}

fn submitted(task: &str, path: &str) -> TaskSnapshot {
    TaskSnapshot::submitted(task.into(), key(path).context.clone(), Timestamp::from_millis(1))
}

/// Appends to a new task of the conversation.
async fn write(
    store: &Store,
    path: &str,
    (fence, task): (&Fence, &str),
    (entries, ends): (&[Entry], bool),
) -> Result<u64, AppendError> {
    let at = Position::of_task(task.into(), store.task(&task.into()).await.unwrap().map_or(0, |task| task.number));
    let snapshot = submitted(task, path).with(entries);
    let append = Append { by: Some(fence), entries, task: Some(&snapshot), ends, ..Append::default() };
    store.append(&key(path), &at, append).await.map(|appended| appended.number)
}

fn says(id: &str) -> [Entry; 1] {
    [event(id, "{}").into()]
}

async fn end(store: &Store, path: &str, turn: (&Fence, &str)) -> Result<u64, AppendError> {
    let done = [update(&submitted(turn.1, path), TaskState::Completed)];
    write(store, path, turn, (&done, true)).await
}

async fn turns_run_in_the_order_in_which_they_entered(backend: Backend) {
    let store = backend.store().await;
    let mut fence = running(&store, "s", "t-0").await;
    let mut queue = Vec::new();
    for number in 1..5 {
        queue.push(waiting(&store, "s", &format!("t-{number}")).await);
    }
    for (number, next) in (1..).zip(queue) {
        let mut waits = Box::pin(async { store.wait(&key("s"), &next, Window::ALL).await });
        let is_pending = futures_pending(waits.as_mut()).await;
        assert!(is_pending, "turn {number} runs too early");
        end(&store, "s", (&fence, &format!("t-{}", number - 1))).await.unwrap();
        waits.await.unwrap();
        fence = next;
    }
}

/// True if a future is not ready after a few looks.
async fn futures_pending<T>(mut future: std::pin::Pin<&mut (impl Future<Output = T> + ?Sized)>) -> bool {
    for _ in 0..3 {
        tokio::task::yield_now().await;
        let ready = std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context).is_ready()));
        if ready.await {
            return false;
        }
    }
    true
}

async fn a_turn_that_waits_is_accepted_and_its_task_is_submitted(backend: Backend) {
    let store = backend.store().await;
    let first = running(&store, "s", "t-1").await;
    assert!(store.task(&"t-1".into()).await.unwrap().is_none(), "nobody was told of it yet");
    waiting(&store, "s", "t-2").await;
    let stored = store.task(&"t-2".into()).await.unwrap().unwrap();
    assert_eq!((stored.number, stored.is_worked_on, stored.is_finished), (0, true, false));
    assert_eq!(stored.decode().unwrap().state(), TaskState::Submitted);
    assert!(find(&store, "s").await.is_none(), "nobody has said anything");
    end(&store, "s", (&first, "t-1")).await.unwrap();
}

async fn a_waiting_turn_sees_what_the_one_before_has_said(backend: Backend) {
    let store = backend.store().await;
    let first = running(&store, "s", "t-1").await;
    let second = waiting(&store, "s", "t-2").await;
    write(&store, "s", (&first, "t-1"), (&[event("e", r#"{"a":1}"#).into()], false)).await.unwrap();
    end(&store, "s", (&first, "t-1")).await.unwrap();
    let found = store.wait(&key("s"), &second, Window::ALL).await.unwrap();
    assert_eq!((ids(&found.history), found.state.merged().to_json_string()), (vec!["e"], r#"{"a":1}"#.to_owned()));
}

async fn a_full_queue_refuses_at_once(backend: Backend) {
    let store = backend.store().await;
    let bounded = |task: &str, max_waiting| Submission { max_waiting, ..submission("one", task) };
    running(&store, "s", "t-0").await;
    for (task, most) in [("t-1", 0), ("t-2", 1), ("t-3", 1)] {
        let entered = store.enter(&key("s"), bounded(task, most), Window::NONE).await;
        match task {
            "t-2" => assert!(matches!(entered, Ok(Entrance::Waits(_)))),
            _ => assert_eq!(refusal(entered), format!("{most} turns are waiting in this context already")),
        }
    }
    assert!(store.task(&"t-3".into()).await.unwrap().is_none());
}

async fn conversations_do_not_wait_for_each_other(backend: Backend) {
    let store = backend.store().await;
    for (number, path) in (0..).zip(["ann/s", "ann/other", "bob/s", "app/ann/s", "tenant/-/ann/s"]) {
        running(&store, path, &format!("t-{number}")).await;
    }
}

async fn a_task_has_one_turn(backend: Backend) {
    let store = backend.store().await;
    let fence = running(&store, "s", "t-1").await;
    write(&store, "s", (&fence, "t-1"), (&says("e"), false)).await.unwrap();
    assert!(matches!(enter(&store, "s", "t-1").await, Err(AppendError::Fenced)));
    end(&store, "s", (&fence, "t-1")).await.unwrap();
    assert!(matches!(enter(&store, "other", "t-1").await, Err(AppendError::Missing)), "it is of another conversation");
}

async fn of_turns_that_enter_for_a_task_at_once_one_enters(backend: Backend) {
    let store = backend.store().await;
    let fence = running(&store, "s", "t-1").await;
    write(&store, "s", (&fence, "t-1"), (&says("e"), true)).await.unwrap();
    for round in 0..20 {
        let entrances = at_once(8, |_| {
            let store = store.clone();
            async move { enter(&store, "s", "t-1").await }
        })
        .await;
        let mut entered = Vec::new();
        for entrance in entrances {
            match entrance {
                Ok(Entrance::Runs(fence, _) | Entrance::Waits(fence)) => entered.push(fence),
                Err(refused) => assert!(matches!(refused, AppendError::Fenced), "{refused}"),
            }
        }
        let [fence] = entered.as_slice() else { panic!("round {round}: {entered:?}") };
        store.wait(&key("s"), fence, Window::NONE).await.unwrap();
        store.leave(&key("s"), fence, annex_conversation::Departure::Refused).await.unwrap();
        assert_eq!(store.task(&"t-1".into()).await.unwrap().unwrap().number, 1);
    }
}

async fn a_queue_is_gone_with_its_last_turn(backend: Backend) {
    let store = backend.store().await;
    let first = running(&store, "s", "t-1").await;
    let second = waiting(&store, "s", "t-2").await;
    store.leave(&key("s"), &second, Departure::Refused).await.unwrap();
    assert!(store.task(&"t-2".into()).await.unwrap().is_none());
    store.leave(&key("s"), &first, Departure::Refused).await.unwrap();
    running(&store, "s", "t-3").await;
}

async fn only_the_turn_that_runs_says_something(backend: Backend) {
    let store = backend.store().await;
    let first = running(&store, "s", "t-1").await;
    let second = waiting(&store, "s", "t-2").await;
    for ends in [false, true] {
        let early = write(&store, "s", (&second, "t-2"), (&says("early"), ends)).await;
        assert!(matches!(early, Err(AppendError::Fenced)));
    }
    end(&store, "s", (&first, "t-1")).await.unwrap();
    write(&store, "s", (&second, "t-2"), (&says("now"), false)).await.unwrap();
    assert_eq!(ids(&events(&store, "s").await), ["now"]);
}

async fn a_turn_writes_to_a_task(backend: Backend) {
    let store = backend.store().await;
    let fence = running(&store, "s", "t-1").await;
    let append = Append { by: Some(&fence), entries: &says("e"), ..Append::default() };
    let nowhere = store.append(&key("s"), &Position::of_conversation(0), append).await;
    assert!(matches!(nowhere, Err(AppendError::Fenced)));
}

async fn a_turn_that_has_ended_writes_nothing_more(backend: Backend) {
    let store = backend.store().await;
    let fence = running(&store, "s", "t-1").await;
    write(&store, "s", (&fence, "t-1"), (&says("e"), true)).await.unwrap();
    for entries in [says("f"), [update(&submitted("t-1", "s"), TaskState::Completed)]] {
        assert!(matches!(write(&store, "s", (&fence, "t-1"), (&entries, false)).await, Err(AppendError::Fenced)));
    }
    assert_eq!(ids(&events(&store, "s").await), ["e"]);
}

async fn a_writer_without_a_turn_writes_where_no_turn_works(backend: Backend) {
    let store = backend.store().await;
    let fence = running(&store, "s", "t-1").await;
    write(&store, "s", (&fence, "t-1"), (&says("e"), false)).await.unwrap();
    let at = Position::of_conversation(1);
    let append = || Append { entries: &[], ..Append::default() };
    assert!(matches!(store.append(&key("s"), &at, append()).await, Err(AppendError::Fenced)));
    let task = submitted("t-1", "s");
    let to_task = Append { task: Some(&task), ..append() };
    let late = store.append(&key("s"), &Position::of_task("t-1".into(), 1), to_task).await;
    assert!(matches!(late, Err(AppendError::Fenced)));
    end(&store, "s", (&fence, "t-1")).await.unwrap();
    store.append(&key("s"), &at, append()).await.unwrap();
}

/// Two tasks of one conversation: the first waits for its client while a turn works on the second.
async fn a_waiting_task_is_cancelled_while_another_turn_runs(backend: Backend) {
    let store = backend.store().await;
    let ada = owner("ada");
    let mut asked = task("t-1", TaskState::InputRequired, Some(Timestamp::from_millis(1)));
    store.begin(&ada, &asked).await.unwrap();
    let key = crate::support::key_of(&ada, &asked);
    let Entrance::Runs(fence, _) = store.enter(&key, submission("one", "t-2"), Window::NONE).await.unwrap() else {
        panic!("nobody works on the first task")
    };
    let canceled = change(&mut asked, TaskState::Canceled, Some(Timestamp::from_millis(2)));
    assert_eq!(store.add(&"t-1".into(), 1, &canceled, &asked).await.unwrap(), 2);
    let entries = says("e");
    let task = TaskSnapshot::submitted("t-2".into(), key.context.clone(), Timestamp::now());
    let append = Append { by: Some(&fence), entries: &entries, task: Some(&task), ..Append::default() };
    store.append(&key, &Position::of_task("t-2".into(), 0), append).await.unwrap();
}

async fn a_turn_that_waits_can_be_ended(backend: Backend) {
    let store = backend.store().await;
    let first = open(&store, "s").await;
    let Arrival::Waits(second) = arrive(&store, "s", submission("one", "t-2")).await.unwrap() else {
        panic!("another turn runs")
    };
    let asked = store.cancel(&"t-2".into()).await.unwrap().unwrap();
    assert!(asked.is_alive && asked.fence == *second.fence());
    let running = [("t-2".into(), asked.fence)];
    assert_eq!(store.turns_to_stop(&running).await.unwrap(), ["t-2".into()]);
    second.end(vec![update(&submitted("t-2", "s"), TaskState::Canceled)]).await.unwrap();
    let stored = store.task(&"t-2".into()).await.unwrap().unwrap();
    assert_eq!((stored.decode().unwrap().state(), stored.is_worked_on), (TaskState::Canceled, false));
    assert_eq!(store.cancel(&"t-2".into()).await.unwrap(), None);
    first.say(event("e", "{}")).await.unwrap();
    first.close().await;
}

async fn a_message_its_state_and_its_task_are_one_step(backend: Backend) {
    let store = backend.store().await;
    let fence = running(&store, "s", "t-1").await;
    let message = Message::user_text("Hello");
    let too_deep = format!(r#"{{"a":1,"b":{}1{}}}"#, "[".repeat(37), "]".repeat(37));
    let opens = Some(Timestamp::from_millis(1));
    for (delta, is_stored) in [(too_deep.as_str(), false), (r#"{"a":1}"#, true)] {
        let delta = StateDelta::parse(delta).unwrap();
        let entries = [Entry::said_by_user(message.clone(), "t-1", delta, opens)];
        let stored = write(&store, "s", (&fence, "t-1"), (&entries, false)).await;
        assert_eq!(stored.is_ok(), is_stored, "{stored:?}");
        let found = find(&store, "s").await;
        assert_eq!(
            found.map(|found| found.state.merged().to_json_string()),
            is_stored.then(|| r#"{"a":1}"#.to_owned())
        );
        let task = store.task(&"t-1".into()).await.unwrap();
        assert_eq!(task.map(|task| task.decode().unwrap().history.clone()), is_stored.then(|| vec![message.clone()]));
    }
    assert_eq!(events(&store, "s").await[0].parts, message.parts);
}

async fn a_vetoed_message_is_no_part_of_the_conversation(backend: Backend) {
    let store = backend.store().await;
    let fence = running(&store, "s", "t-1").await;
    let message = Message::user_text("Hello");
    let vetoed = UserMessage { message: message.clone(), event: None, opens: Some(Timestamp::from_millis(1)) };
    let rejected = update(&submitted("t-1", "s"), TaskState::Rejected);
    write(&store, "s", (&fence, "t-1"), (&[Entry::Message(Arc::new(vetoed)), rejected], true)).await.unwrap();
    assert!(find(&store, "s").await.is_none());
    let task = store.task(&"t-1".into()).await.unwrap().unwrap().decode().unwrap();
    assert_eq!((task.state(), task.history.as_slice()), (TaskState::Rejected, [message].as_slice()));
}

async fn a_deleted_conversation_is_not_brought_back_by_its_turn(backend: Backend) {
    let store = backend.store().await;
    let turn = open(&store, "s").await;
    turn.say(event("one", "{}")).await.unwrap();
    assert!(store.delete(&key("s")).await.unwrap());
    for id in ["two", "three"] {
        assert_eq!(refusal(turn.say(event(id, "{}")).await), "the conversation or the task is not stored");
    }
    turn.close().await;
    assert!(find(&store, "s").await.is_none());
    let next = open(&store, "s").await;
    next.say(event("four", "{}")).await.unwrap();
    assert_eq!(ids(&events(&store, "s").await), ["four"]);
}

async fn a_turn_whose_lease_is_over_writes_nothing(backend: Backend) {
    let store = backend.store().await;
    let fence = running(&store, "s", "t-1").await;
    write(&store, "s", (&fence, "t-1"), (&says("e"), false)).await.unwrap();
    backend.end_lease("one").await;
    for ends in [false, true] {
        assert!(matches!(write(&store, "s", (&fence, "t-1"), (&says("f"), ends)).await, Err(AppendError::Fenced)));
    }
    assert_eq!(ids(&events(&store, "s").await), ["e"]);
}

async fn a_turn_whose_lease_is_over_does_not_begin(backend: Backend) {
    let store = backend.store().await;
    backend.end_lease("one").await;
    assert!(matches!(enter(&store, "s", "t-1").await, Err(AppendError::Fenced)));
    assert!(store.take_lost(&"two".into(), 10).await.unwrap().is_empty());
}

async fn a_turn_that_is_dropped_before_it_wrote_was_never_there(backend: Backend) {
    let store = backend.store().await;
    drop(open(&store, "s").await);
    // What leaves the queue does so in the background.
    let next = match arrive(&store, "s", submission("one", "t-2")).await.unwrap() {
        Arrival::Runs(next) => next,
        Arrival::Waits(next) => next.runs().await.unwrap(),
    };
    assert!(!next.exists());
    next.say(event("e", "{}")).await.unwrap();
}

/// An append of the turn may be stored although its process did not learn that.
async fn a_turn_whose_lease_is_over_leaves_its_place_to_others(backend: Backend) {
    let store = backend.store().await;
    let turn = open(&store, "s").await;
    backend.end_lease("one").await;
    assert!(matches!(turn.say(event("e", "{}")).await, Err(AppendError::Fenced)));
    turn.leave(Departure::Refused).await.unwrap();
    let next = store.enter(&key("s"), submission("two", "t-2"), Window::NONE).await.unwrap();
    assert!(matches!(next, Entrance::Waits(_)), "{next:?}");
}
