//! Messages that come more than once.

use std::time::Duration;

use annex_conversation::{
    Append, AppendError, Claim, Claimant, Departure, Entrance, MessageKey, Outcome, Owner, Position, Submission,
    TaskSnapshot, Window,
};
use annex_protocol::{Message, Part, TaskState};
use tokio::task::JoinSet;

use crate::support::{
    Backend, Store, WritesTasks, event, holder, ids, key_of, next_millisecond, owner, submission, sweep_tasks, update,
    working,
};

on_every_store!(
    a_message_is_new_once,
    another_message_under_the_same_id_is_told_apart,
    messages_of_others_are_others,
    a_message_that_was_released_is_new_again,
    a_late_release_leaves_the_next_claim_of_the_message,
    of_concurrent_claims_one_is_new,
    a_message_goes_to_its_task_once_it_is_appended,
    a_message_is_accepted_once_its_turn_waits,
    a_refused_turn_leaves_nothing,
    a_message_that_an_agent_refuses_is_new_again_and_its_events_stay,
    the_claim_of_a_process_that_is_gone_goes_over_with_its_task,
    a_process_releases_its_own_claims_only,
    an_answer_is_given_to_whoever_repeats_the_message,
    answers_go_when_they_are_old_or_too_many,
    answers_are_counted_by_tenant,
);

fn message(id: &str, content: u8) -> MessageKey {
    MessageKey { context: "c-1".into(), message: id.into(), digest: [content; 32] }
}

async fn claim(store: &Store, id: &str, task: &str) -> Claim {
    claim_by(store, (id, task), &holder("one")).await
}

async fn claim_by(store: &Store, (id, task): (&str, &str), by: &Claimant) -> Claim {
    store.claim(&owner("ada"), &message(id, 1), &task.into(), by).await.unwrap()
}

fn with_message(id: &str, task: &str) -> Submission {
    Submission { message: Some(message(id, 1)), ..submission("one", task) }
}

/// A turn of the owner on a message, which must not have to wait.
async fn enter(store: &Store, owner: &Owner, id: &str, task: &str) -> (Entrance, TaskSnapshot) {
    let task = working(task);
    let submission = with_message(id, task.id.as_str());
    let entered = store.enter(&key_of(owner, &task), submission, Window::NONE).await.unwrap();
    (entered, task.into())
}

/// Answers a claimed message with a message.
async fn answer(store: &Store, owner: &Owner, id: &str, answer: &Message) {
    let (entered, task) = enter(store, owner, id, &format!("task of {id} of {}", owner.tenant)).await;
    let Entrance::Runs(fence, _) = entered else { panic!("another turn runs") };
    let submission = with_message(id, task.id().as_str());
    let append = Append {
        by: Some(&fence),
        submission: Some(&submission),
        entries: &[],
        task: Some(&task),
        ends: true,
        outcome: Outcome::Answer(answer),
    };
    store.append(&key_of(owner, &task), &Position::of_task(task.id().clone(), 0), append).await.unwrap();
}

fn hello() -> Message {
    Message::agent("c-1".into(), None, vec![Part::text("hello")])
}

async fn a_message_is_new_once(backend: Backend) {
    let store = backend.store().await;
    assert_eq!(claim(&store, "m-1", "t-1").await, Claim::New("t-1".into()));
    for task in ["t-2", "t-1"] {
        assert_eq!(claim(&store, "m-1", task).await, Claim::Open("t-1".into()));
    }
    assert_eq!(claim(&store, "m-2", "t-1").await, Claim::New("t-1".into()));
}

async fn another_message_under_the_same_id_is_told_apart(backend: Backend) {
    let store = backend.store().await;
    claim(&store, "m-1", "t-1").await;
    let other = store.claim(&owner("ada"), &message("m-1", 2), &"t-2".into(), &holder("one")).await.unwrap();
    assert_eq!(other, Claim::Different);
    assert_eq!(claim(&store, "m-1", "t-3").await, Claim::Open("t-1".into()));
}

async fn messages_of_others_are_others(backend: Backend) {
    let store = backend.store().await;
    let mut globex = owner("ada");
    globex.tenant = "globex".to_owned();
    let elsewhere = MessageKey { context: "".into(), ..message("m-1", 1) };
    let cases = [
        (owner("ada"), message("m-1", 1)),
        (owner("bob"), message("m-1", 1)),
        (globex, message("m-1", 2)),
        (owner("ada"), elsewhere),
    ];
    for (owner, message) in cases {
        let claimed = store.claim(&owner, &message, &"t-1".into(), &holder("one")).await.unwrap();
        assert_eq!(claimed, Claim::New("t-1".into()), "{owner:?} {message:?}");
    }
}

async fn a_message_that_was_released_is_new_again(backend: Backend) {
    let store = backend.store().await;
    let by = holder("one");
    claim_by(&store, ("m-1", "t-1"), &by).await;
    store.release(&owner("bob"), &message("m-1", 1), &by).await.unwrap();
    store.release(&owner("ada"), &message("m-2", 1), &by).await.unwrap();
    assert_eq!(claim(&store, "m-1", "t-2").await, Claim::Open("t-1".into()));
    store.release(&owner("ada"), &message("m-1", 1), &by).await.unwrap();
    assert_eq!(claim(&store, "m-1", "t-2").await, Claim::New("t-2".into()));
}

async fn a_late_release_leaves_the_next_claim_of_the_message(backend: Backend) {
    let store = backend.store().await;
    let (first, second) = (holder("one"), holder("one"));
    claim_by(&store, ("m-1", "t-1"), &first).await;
    store.release(&owner("ada"), &message("m-1", 1), &first).await.unwrap();
    assert_eq!(claim_by(&store, ("m-1", "t-1"), &second).await, Claim::New("t-1".into()));
    store.release(&owner("ada"), &message("m-1", 1), &first).await.unwrap();
    assert_eq!(claim(&store, "m-1", "t-2").await, Claim::Open("t-1".into()), "the second claim holds");
    store.release(&owner("ada"), &message("m-1", 1), &second).await.unwrap();
    assert_eq!(claim(&store, "m-1", "t-2").await, Claim::New("t-2".into()));
}

async fn of_concurrent_claims_one_is_new(backend: Backend) {
    let store = backend.store().await;
    for round in 0..5 {
        let claims: JoinSet<_> = (0..32)
            .map(|caller| {
                let store = store.clone();
                async move { claim(&store, &format!("m-{round}"), &format!("t-{caller}")).await }
            })
            .collect();
        let claims = claims.join_all().await;
        let winners: Vec<_> = claims.iter().filter(|claim| matches!(claim, Claim::New(_))).collect();
        let [Claim::New(task)] = winners.as_slice() else { panic!("{winners:?}") };
        assert_eq!(claims.iter().filter(|claim| **claim == Claim::Open(task.clone())).count(), 31);
    }
}

async fn a_message_goes_to_its_task_once_it_is_appended(backend: Backend) {
    let store = backend.store().await;
    let ada = owner("ada");
    let by = holder("one");
    claim_by(&store, ("m-1", "t-1"), &by).await;
    let (entered, task) = enter(&store, &ada, "m-1", "t-1").await;
    let Entrance::Runs(fence, _) = entered else { panic!("another turn runs") };
    assert_eq!(claim(&store, "m-1", "t-2").await, Claim::Open("t-1".into()));
    let entries = [update(&task, TaskState::Working)];
    let submission = with_message("m-1", "t-1");
    let submission = Some(&submission);
    let append = Append { by: Some(&fence), submission, entries: &entries, task: Some(&task), ..Append::default() };
    store.append(&key_of(&ada, &task), &Position::of_task("t-1".into(), 0), append).await.unwrap();
    assert_eq!(claim(&store, "m-1", "t-2").await, Claim::Repeated("t-1".into()));
    store.release(&ada, &message("m-1", 1), &by).await.unwrap();
    assert_eq!(claim(&store, "m-1", "t-2").await, Claim::Repeated("t-1".into()), "it was accepted");
}

async fn a_message_is_accepted_once_its_turn_waits(backend: Backend) {
    let store = backend.store().await;
    let ada = owner("ada");
    for (id, task) in [("m-1", "t-1"), ("m-2", "t-2")] {
        claim(&store, id, task).await;
    }
    enter(&store, &ada, "m-1", "t-1").await;
    let (entered, _) = enter(&store, &ada, "m-2", "t-2").await;
    assert!(matches!(entered, Entrance::Waits(_)));
    assert_eq!(claim(&store, "m-1", "t-9").await, Claim::Open("t-1".into()));
    assert_eq!(claim(&store, "m-2", "t-9").await, Claim::Repeated("t-2".into()));
    let stored = store.load(&ada, &"t-2".into()).await.unwrap();
    assert_eq!((stored.decode().unwrap().state(), stored.number), (TaskState::Submitted, 0));
}

async fn a_refused_turn_leaves_nothing(backend: Backend) {
    let store = backend.store().await;
    let ada = owner("ada");
    let by = holder("one");
    claim_by(&store, ("m-1", "t-1"), &by).await;
    let (entered, task) = enter(&store, &ada, "m-1", "t-1").await;
    let Entrance::Runs(fence, _) = entered else { panic!("another turn runs") };
    let key = key_of(&ada, &task);
    for _ in 0..2 {
        store.leave(&key, &fence, Departure::Refused).await.unwrap();
    }
    store.release(&ada, &message("m-1", 1), &by).await.unwrap();
    assert!(store.task(&"t-1".into()).await.unwrap().is_none());
    assert!(!store.conversation(&key, Window::NONE).await.unwrap().exists());
    assert_eq!(claim(&store, "m-1", "t-2").await, Claim::New("t-2".into()));
    assert!(matches!(enter(&store, &ada, "m-1", "t-2").await.0, Entrance::Runs(..)));
}

async fn a_message_that_an_agent_refuses_is_new_again_and_its_events_stay(backend: Backend) {
    let store = backend.store().await;
    let ada = owner("ada");
    claim(&store, "m-1", "t-1").await;
    let (entered, task) = enter(&store, &ada, "m-1", "t-1").await;
    let Entrance::Runs(fence, _) = entered else { panic!("another turn runs") };
    let (key, submission) = (key_of(&ada, &task), with_message("m-1", "t-1"));
    let (by, submission) = (Some(&fence), Some(&submission));
    let entries = [update(&task, TaskState::Working)];
    let append = Append { by, submission, entries: &entries, task: Some(&task), ..Append::default() };
    store.append(&key, &Position::of_task("t-1".into(), 0), append).await.unwrap();
    let entries = [event("why", "{}").into()];
    let outcome = Outcome::Refusal;
    let append = Append { by, submission, entries: &entries, task: Some(&task), ends: true, outcome };
    store.append(&key, &Position::of_task("t-1".into(), 1), append).await.unwrap();
    assert!(store.task(&"t-1".into()).await.unwrap().is_none());
    assert_eq!(ids(&store.conversation(&key, Window::ALL).await.unwrap().history), ["why"]);
    assert_eq!(claim(&store, "m-1", "t-2").await, Claim::New("t-2".into()));
    assert!(matches!(enter(&store, &ada, "m-1", "t-2").await.0, Entrance::Runs(..)));
}

async fn the_claim_of_a_process_that_is_gone_goes_over_with_its_task(backend: Backend) {
    let store = backend.store().await;
    claim(&store, "m-1", "t-1").await;
    let by_two =
        async |task: &str| store.claim(&owner("ada"), &message("m-1", 1), &task.into(), &holder("two")).await.unwrap();
    assert_eq!(by_two("t-2").await, Claim::Open("t-1".into()));
    backend.end_lease("one").await;
    assert_eq!(by_two("t-2").await, Claim::New("t-1".into()), "only one of the two can create the task");
    assert_eq!(by_two("t-3").await, Claim::Open("t-1".into()));
}

async fn a_process_releases_its_own_claims_only(backend: Backend) {
    let store = backend.store().await;
    claim(&store, "m-1", "t-1").await;
    store.release(&owner("ada"), &message("m-1", 1), &holder("two")).await.unwrap();
    assert_eq!(claim(&store, "m-1", "t-2").await, Claim::Open("t-1".into()));
}

async fn an_answer_is_given_to_whoever_repeats_the_message(backend: Backend) {
    let store = backend.store().await;
    claim(&store, "m-1", "t-1").await;
    let hello = hello();
    answer(&store, &owner("ada"), "m-1", &hello).await;
    for _ in 0..2 {
        assert_eq!(claim(&store, "m-1", "t-9").await, Claim::Answered(Box::new(hello.clone())));
    }
    let other = store.claim(&owner("ada"), &message("m-1", 2), &"t-1".into(), &holder("one")).await.unwrap();
    assert_eq!(other, Claim::Different);
    assert!(store.task(&"task of m-1 of acme".into()).await.unwrap().is_none(), "an answer without a task");
}

async fn answers_go_when_they_are_old_or_too_many(backend: Backend) {
    let store = backend.store().await;
    for id in ["m-1", "m-2", "m-3"] {
        claim(&store, id, "t-1").await;
        answer(&store, &owner("ada"), id, &hello()).await;
        next_millisecond().await;
    }
    sweep_tasks(&store, Duration::MAX, 2).await;
    assert_eq!(claim(&store, "m-1", "t-9").await, Claim::New("t-9".into()));
    assert!(matches!(claim(&store, "m-2", "t-9").await, Claim::Answered(_)));
    sweep_tasks(&store, Duration::ZERO, u64::MAX).await;
    assert_eq!(claim(&store, "m-3", "t-9").await, Claim::New("t-9".into()));
}

async fn answers_are_counted_by_tenant(backend: Backend) {
    let store = backend.store().await;
    let of = |tenant: &str| Owner { tenant: tenant.to_owned(), principal: "ada".to_owned() };
    let claim = async |tenant: &str, id: &str| -> Result<Claim, AppendError> {
        store.claim(&of(tenant), &message(id, 1), &"t-1".into(), &holder("one")).await
    };
    for (tenant, id) in [("globex", "m-1"), ("initech", "m-1"), ("initech", "m-2"), ("initech", "m-3")] {
        claim(tenant, id).await.unwrap();
        answer(&store, &of(tenant), id, &hello()).await;
        next_millisecond().await;
    }
    sweep_tasks(&store, Duration::MAX, 2).await;
    let globex = claim("globex", "m-1").await.unwrap();
    assert!(matches!(globex, Claim::Answered(_)), "it is the oldest, and the tenant's only one");
    assert_eq!(claim("initech", "m-1").await.unwrap(), Claim::New("t-1".into()));
}
