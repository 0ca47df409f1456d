//! Messages that come more than once.

use std::time::Duration;

use annex_protocol::{Message, Owner, Part, Timestamp};
use annex_tasks::{MessageKey, Remembered, Retention};

use crate::fixture::{Store, owner};

on_every_store! {
    a_message_is_new_once,
    another_message_under_the_same_id_is_told_apart,
    messages_of_others_are_others,
    a_forgotten_message_is_new_again,
    of_concurrent_messages_exactly_one_is_new,
    an_answer_is_told_to_whoever_repeats_the_message,
    answers_survive_a_crash,
    answers_go_when_they_are_old_or_too_many,
    answers_are_counted_by_tenant,
}

fn message(id: &str, content: u8) -> MessageKey {
    MessageKey { context: "c-1".into(), message: id.into(), digest: [content; 32] }
}

/// The task that this process has remembered the message with. Only a database tells whether the task has it.
pub(crate) fn task_of(remembered: &Remembered) -> Option<&str> {
    match remembered {
        Remembered::Same(task) | Remembered::Own(task) => Some(task.as_str()),
        _ => None,
    }
}

async fn a_message_is_new_once(store: Store) {
    let ada = owner("ada");
    assert_eq!(store.remember(&ada, &message("m-1", 1), &"t-1".into()).await.unwrap(), Remembered::New);
    for task in ["t-2", "t-1"] {
        let again = store.remember(&ada, &message("m-1", 1), &task.into()).await.unwrap();
        assert_eq!(task_of(&again), Some("t-1"));
    }
    assert_eq!(store.remember(&ada, &message("m-2", 1), &"t-1".into()).await.unwrap(), Remembered::New);
}

async fn another_message_under_the_same_id_is_told_apart(store: Store) {
    let ada = owner("ada");
    store.remember(&ada, &message("m-1", 1), &"t-1".into()).await.unwrap();
    let other = store.remember(&ada, &message("m-1", 2), &"t-2".into()).await.unwrap();
    assert_eq!(other, Remembered::Different);
    let again = store.remember(&ada, &message("m-1", 1), &"t-3".into()).await.unwrap();
    assert_eq!(task_of(&again), Some("t-1"));
}

async fn messages_of_others_are_others(store: Store) {
    let mut globex = owner("ada");
    globex.tenant = "globex".to_owned();
    let mut elsewhere = message("m-1", 1);
    elsewhere.context = "".into();
    let cases = [
        (owner("ada"), message("m-1", 1)),
        (owner("bob"), message("m-1", 1)),
        (globex, message("m-1", 2)),
        (owner("ada"), elsewhere),
    ];
    for (owner, message) in cases {
        let remembered = store.remember(&owner, &message, &"t-1".into()).await.unwrap();
        assert_eq!(remembered, Remembered::New, "{owner:?} {message:?}");
    }
}

async fn a_forgotten_message_is_new_again(store: Store) {
    let ada = owner("ada");
    store.remember(&ada, &message("m-1", 1), &"t-1".into()).await.unwrap();
    // Neither another's nor another content.
    store.forget(&owner("bob"), &message("m-1", 1)).await.unwrap();
    store.forget(&ada, &message("m-1", 2)).await.unwrap();
    let again = store.remember(&ada, &message("m-1", 1), &"t-2".into()).await.unwrap();
    assert_eq!(task_of(&again), Some("t-1"));
    store.forget(&ada, &message("m-1", 1)).await.unwrap();
    assert_eq!(store.remember(&ada, &message("m-1", 1), &"t-2".into()).await.unwrap(), Remembered::New);
}

async fn of_concurrent_messages_exactly_one_is_new(store: Store) {
    for round in 0..5 {
        let calls = (0..32).map(|caller| {
            let store = store.clone();
            let message = message(&format!("m-{round}"), 1);
            let task = format!("t-{caller}").into();
            tokio::spawn(async move { (store.remember(&owner("ada"), &message, &task).await.unwrap(), task) })
        });
        let outcomes = futures::future::join_all(calls.collect::<Vec<_>>()).await;
        let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
        let winners: Vec<_> = outcomes.iter().filter(|(outcome, _)| *outcome == Remembered::New).collect();
        assert_eq!(winners.len(), 1);
        let task = Some(winners[0].1.as_str());
        assert_eq!(outcomes.iter().filter(|(outcome, _)| task_of(outcome) == task).count(), 31);
    }
}

fn answer(text: &str) -> Message {
    Message::agent("c-1".into(), None, vec![Part::text(text)])
}

async fn repeat(store: &Store, id: &str) -> Remembered {
    store.remember(&owner("ada"), &message(id, 1), &"t-9".into()).await.unwrap()
}

async fn an_answer_is_told_to_whoever_repeats_the_message(store: Store) {
    let ada = owner("ada");
    let hello = answer("hello");
    store.remember(&ada, &message("m-1", 1), &"t-1".into()).await.unwrap();
    // Neither another's nor another content, nor one that is not remembered.
    store.answer(&owner("bob"), &message("m-1", 1), &answer("no")).await.unwrap();
    store.answer(&ada, &message("m-1", 2), &answer("no")).await.unwrap();
    store.answer(&ada, &message("m-2", 1), &answer("no")).await.unwrap();
    assert_eq!(task_of(&repeat(&store, "m-1").await), Some("t-1"));
    store.answer(&ada, &message("m-1", 1), &hello).await.unwrap();
    for _ in 0..2 {
        assert_eq!(repeat(&store, "m-1").await, Remembered::Answered(Box::new(hello.clone())));
    }
    let other = store.remember(&ada, &message("m-1", 2), &"t-1".into()).await.unwrap();
    assert_eq!(other, Remembered::Different);
    assert_eq!(repeat(&store, "m-2").await, Remembered::New);
}

async fn answers_survive_a_crash(store: Store) {
    store.remember(&owner("ada"), &message("m-1", 1), &"t-1".into()).await.unwrap();
    store.answer(&owner("ada"), &message("m-1", 1), &answer("hello")).await.unwrap();
    store.recover("the server was restarted").await.unwrap();
    assert!(matches!(repeat(&store, "m-1").await, Remembered::Answered(_)));
}

async fn answers_go_when_they_are_old_or_too_many(store: Store) {
    for id in ["m-1", "m-2", "m-3"] {
        store.remember(&owner("ada"), &message(id, 1), &"t-1".into()).await.unwrap();
        store.answer(&owner("ada"), &message(id, 1), &answer("hello")).await.unwrap();
        tick();
    }
    store.sweep(&Retention { age: Duration::MAX, count: 2 }).await.unwrap();
    assert_eq!(repeat(&store, "m-1").await, Remembered::New);
    assert!(matches!(repeat(&store, "m-2").await, Remembered::Answered(_)));
    store.sweep(&Retention { age: Duration::ZERO, count: u64::MAX }).await.unwrap();
    assert_eq!(repeat(&store, "m-3").await, Remembered::New);
}

async fn answers_are_counted_by_tenant(store: Store) {
    let of = |tenant: &str| Owner { tenant: tenant.to_owned(), principal: "ada".to_owned() };
    for (tenant, id) in [("globex", "m-1"), ("initech", "m-1"), ("initech", "m-2"), ("initech", "m-3")] {
        store.remember(&of(tenant), &message(id, 1), &"t-1".into()).await.unwrap();
        store.answer(&of(tenant), &message(id, 1), &answer("hello")).await.unwrap();
        tick();
    }
    store.sweep(&Retention { age: Duration::MAX, count: 2 }).await.unwrap();
    let repeat = async |tenant: &str| store.remember(&of(tenant), &message("m-1", 1), &"t-1".into()).await.unwrap();
    assert!(matches!(repeat("globex").await, Remembered::Answered(_)), "it is the oldest, and the tenant's only one");
    assert_eq!(repeat("initech").await, Remembered::New);
}

/// Messages are ordered by a clock of milliseconds.
fn tick() {
    let now = || Timestamp::now().as_millis();
    let before = now();
    while now() == before {
        std::thread::yield_now();
    }
}
