//! A process that is killed by `kill -9` while it writes: what it has acknowledged is stored, and everything is whole.

use std::ffi::OsStr;
use std::sync::Arc;

use annex_conversation::{
    Arrival, Claim, Conversation, ConversationStore, Departure, Entry, Event, MessageKey, Submission, Window,
    end_lost_turn,
};
use annex_protocol::{Message, Part, TaskState, Timestamp};

use crate::program::{Program, answer};
use crate::support::{Backend, Store, arrive, beginning, delta, find, holder, key, numbers, submission, update};

const PLACE: &str = "ANNEX_CONVERSATION_CRASH_PLACE";
const REPLICA: &str = "ANNEX_CONVERSATION_CRASH_REPLICA";

on_every_database!(a_killed_process_loses_nothing_that_it_acknowledged);

/// The process that is killed: one turn after the other. Otherwise this test does nothing.
#[tokio::test]
async fn writer() {
    let (Ok(place), Ok(replica)) = (std::env::var(PLACE), std::env::var(REPLICA)) else { return };
    let is_url = place.starts_with("postgres:");
    let backend = if is_url { Backend::Postgres(place) } else { Backend::Sqlite(place.into()) };
    let store = backend.store().await;
    for number in 0.. {
        run(&store, &replica, number).await;
    }
}

fn task(replica: &str, number: usize) -> String {
    format!("{replica}-{number}")
}

fn message(task: &str) -> MessageKey {
    MessageKey { context: "s".into(), message: task.into(), digest: [1; 32] }
}

/// The steps of a turn that the process acknowledges: the claim, the message, the answer, and the end.
const STEPS: usize = 4;
const ASKED: usize = 2;
const SAID: usize = 3;

async fn run(store: &Store, replica: &str, number: usize) {
    let task = task(replica, number);
    let claim = store.claim(key("s").owner(), &message(&task), &task.as_str().into(), &holder(replica)).await.unwrap();
    assert_eq!(claim, Claim::New(task.as_str().into()));
    answer("a claim");
    let submission = Submission { message: Some(message(&task)), ..submission(replica, &task) };
    let any: Arc<dyn ConversationStore> = store.clone();
    let Arrival::Runs(turn) = Conversation::enter(&any, key("s"), submission, beginning(0)).await.unwrap() else {
        panic!("another turn runs")
    };
    let change = delta(&format!(r#"{{"asked":"{task}","user:asked":"{task}"}}"#));
    let asked = Entry::said_by_user(Message::user_text("Hello"), task.as_str(), change, Some(Timestamp::now()));
    turn.append(vec![asked]).await.unwrap();
    answer("a message");
    let said = Event::new("agent", task.as_str(), Vec::new(), delta(&format!(r#"{{"said":"{task}"}}"#)));
    let said = Event { artifacts: [("file".to_owned(), vec![Part::text(&task)].into())].into(), ..said };
    let working = update(&turn.task().await.into_task(), TaskState::Working);
    turn.append(vec![said.into(), working]).await.unwrap();
    answer("an answer");
    let completed = update(&turn.task().await.into_task(), TaskState::Completed);
    turn.end(vec![completed]).await.unwrap();
    answer("an end");
}

/// The steps of a process that are stored.
async fn stored_steps(store: &Store, replica: &str) -> usize {
    let of = async |number| store.task(&task(replica, number).as_str().into()).await.unwrap();
    let mut number = 0;
    loop {
        let Some(stored) = of(number).await else { break };
        let entries = store.entries_after(&stored.id, 0, (10, usize::MAX)).await.unwrap();
        assert_eq!(numbers(&entries), (1..=stored.number).collect::<Vec<_>>());
        let state = stored.decode().unwrap().state();
        let expected = match stored.number {
            1 => TaskState::Submitted,
            3 => TaskState::Working,
            4 => TaskState::Completed,
            other => panic!("{other} entries"),
        };
        assert_eq!((state, stored.is_finished), (expected, expected == TaskState::Completed));
        match stored.number {
            1 => return STEPS * number + ASKED,
            3 => return STEPS * number + SAID,
            _ => number += 1,
        }
    }
    assert!(of(number + 1).await.is_none(), "a task is missing");
    STEPS * number
}

/// Checks that history, state and artifacts are those of the same entries.
async fn check_whole(store: &Store) {
    let found = store.conversation(&key("s"), Window::ALL).await.unwrap();
    assert_eq!(found.number, found.history.len() as u64);
    let turns: Vec<_> = found.history.chunks(2).collect();
    for turn in &turns {
        assert!(turn.iter().all(|event| event.invocation_id == turn[0].invocation_id));
        assert!(turn[0].is_from_user() && turn.get(1).is_none_or(|answer| !answer.is_from_user()));
    }
    let state = found.state.merged();
    let value = |key| state.get(key).map(|value| value.get().trim_matches('"').to_owned());
    let asked = turns.last().map(|turn| turn[0].invocation_id.to_string());
    assert_eq!((value("asked"), value("user:asked")), (asked.clone(), asked));
    let said: Vec<_> = found.history.iter().filter(|event| !event.is_from_user() && event.error.is_none()).collect();
    let last = said.last().map(|event| event.invocation_id.to_string());
    assert_eq!(value("said"), last);
    let file = store.artifact(&key("s"), "file").await.unwrap();
    assert_eq!(file.as_ref().map_or(0, |file| file.version), said.len() as u64);
    assert_eq!(file.map(|file| file.parts), last.map(|last| vec![Part::text(last)].into()));
}

async fn a_killed_process_loses_nothing_that_it_acknowledged(backend: Backend) {
    let place = match &backend {
        Backend::Sqlite(file) => file.as_os_str().to_owned(),
        Backend::Postgres(url) => url.into(),
        Backend::Memory(_) => unreachable!("it is a database"),
    };
    drop(backend.store().await);
    // Each process is killed behind another step.
    for (replica, steps) in [("one", 3), ("two", 50), ("three", 201)] {
        let variables = [(PLACE, place.as_os_str()), (REPLICA, OsStr::new(replica))];
        let mut writer = Program::start("crash::writer", ":", &variables);
        assert_eq!(writer.answers().take(steps).count(), steps, "the process ended by itself");
        writer.kill();
        // What the process had acknowledged before it died is still in the pipe.
        let acknowledged = steps + writer.answers().count();
        drop(writer);
        backend.disconnect().await;

        let store = backend.store().await;
        backend.end_lease(replica).await;
        let stored = stored_steps(&store, replica).await;
        let (ended, step) = (acknowledged / STEPS, acknowledged % STEPS);
        // A claim does not show in a task. One more step may be stored that was not acknowledged any more.
        let least = if step < ASKED { STEPS * ended } else { acknowledged };
        assert!((least..=acknowledged + 1).contains(&stored), "{acknowledged} {stored}");
        check_whole(&store).await;
        check_claims(&store, replica, (acknowledged, stored)).await;
        end_lost(&store, (replica, stored)).await;
        check_whole(&store).await;
    }
}

/// A repeated message goes to the task of its first claim.
async fn check_claims(store: &Store, replica: &str, (acknowledged, stored): (usize, usize)) {
    for number in 0..acknowledged.div_ceil(STEPS) {
        let task = task(replica, number);
        let claim = store.claim(key("s").owner(), &message(&task), &"another".into(), &holder("four")).await.unwrap();
        let is_accepted = stored >= STEPS * number + ASKED;
        let expected = if is_accepted { Claim::Repeated } else { Claim::New };
        assert_eq!(claim, expected(task.as_str().into()));
    }
}

/// Ends the turn of the killed process, if it had begun one.
async fn end_lost(store: &Store, (replica, stored): (&str, usize)) {
    let lost = store.take_lost(&"four".into(), 10).await.unwrap();
    assert_eq!(lost.len(), usize::from(stored % STEPS != 0), "{lost:?}");
    for turn in &lost {
        assert_eq!(turn.task.as_str(), task(replica, stored / STEPS));
        end_lost_turn(store.as_ref(), turn, "killed").await.unwrap().unwrap();
        let ended = store.task(&turn.task).await.unwrap().unwrap();
        assert_eq!(ended.decode().unwrap().state(), TaskState::Failed);
    }
    assert!(find(store, "s").await.unwrap().number.is_multiple_of(2), "a message has no answer");
    // A turn that had said nothing is still in the queue, and the next one removes it.
    let next = match arrive(store, "s", submission("four", &format!("after {replica}"))).await.unwrap() {
        Arrival::Runs(next) => next,
        Arrival::Waits(next) => next.runs().await.unwrap(),
    };
    next.leave(Departure::Refused).await.unwrap();
}
