//! Quotas of tenants.

use annex_operations::quota::{CallerQuota, TenantQuota};
use annex_protocol::A2aError;

use crate::fixture::{Door, Settings, anonymous, by, door, door_with, say};
use crate::in_words::status;

async fn with_quota(quota: TenantQuota) -> Door {
    door_with(Settings { quota: Some(quota), ..Settings::default() }).await
}

fn quota_of(error: &A2aError) -> (&str, u64, u64) {
    match error {
        A2aError::QuotaExceeded { quota, used, limit, .. } => (quota, *used, *limit),
        other => panic!("another error: {other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_quota_is_admitted_always() {
    let door = door().await;
    for _ in 0..1_000 {
        door.handler.admit("").expect("no quota");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_quota_of_a_second_are_refused() {
    let door = with_quota(TenantQuota { requests_per_second: Some(2), ..TenantQuota::default() }).await;
    let refused = (0..100).find_map(|_| door.handler.admit("").err()).expect("a refusal");
    assert_eq!(quota_of(&refused), ("requests_per_second", 2, 2));
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_caller_beyond_its_quota_are_refused_and_those_of_others_are_not() {
    let caller = CallerQuota { requests_per_second: Some(2), ..CallerQuota::default() };
    let door = with_quota(TenantQuota { caller, ..TenantQuota::default() }).await;
    let refused = (0..100).find_map(|_| door.handler.admit("ada").err()).expect("a refusal");
    assert_eq!(quota_of(&refused), ("caller.requests_per_second", 2, 2));
    for other in ["bob", ""] {
        door.handler.admit(other).expect("a quota of its own");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_beyond_the_places_of_a_process_share_one_quota() {
    let caller = CallerQuota { requests_per_second: Some(2), ..CallerQuota::default() };
    let door = with_quota(TenantQuota { caller, ..TenantQuota::default() }).await;
    for number in 0..10_000 {
        door.handler.admit(&format!("p-{number}")).expect("a quota of its own");
    }
    let refused = (0..10).find_map(|number| door.handler.admit(&format!("q-{number}")).err()).expect("a refusal");
    assert_eq!(quota_of(&refused), ("caller.requests_per_second", 2, 2));
    door.handler.admit("p-9999").expect("a place is not taken away");
}

#[tokio::test(start_paused = true)]
async fn a_changed_quota_of_callers_counts_from_the_next_request_on() {
    let quota = |limit| {
        let caller = CallerQuota { requests_per_second: Some(limit), ..CallerQuota::default() };
        TenantQuota { caller, ..TenantQuota::default() }
    };
    let door = with_quota(quota(1)).await;
    while door.handler.admit("ada").is_ok() {}
    let quotas = &door.handler.process.quotas;
    let raised = quotas.begin(quotas.ledger("tenant"), quota(1_000_000)).await;
    raised.admit("ada").expect("the debt is small at the new rate");
    let none = quotas.begin(quotas.ledger("tenant"), TenantQuota::default()).await;
    for _ in 0..1_000 {
        none.admit("ada").expect("no quota");
    }
}

#[tokio::test(start_paused = true)]
async fn turns_beyond_the_quota_are_refused_whoever_the_caller_is() {
    let door = with_quota(TenantQuota { turns: Some(1), ..TenantQuota::default() }).await;
    let task = door.waiting_turn(say("work, wait").by("ada")).await;
    for other in [say("work").by("bob"), say("work")] {
        assert_eq!(quota_of(&door.refusal(other).await), ("turns", 1, 1));
    }
    door.cancel(&by("ada"), &task.id).await.expect("a cancelled task");
    door.turns_over().await;
    assert_eq!(status(&door.task("work").await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn conversations_beyond_the_quota_are_refused_and_those_that_exist_go_on() {
    let door = with_quota(TenantQuota { sessions: Some(1), ..TenantQuota::default() }).await;
    door.task(say("work").context("c")).await;
    for other in [say("work"), say("work").context("d")] {
        assert_eq!(quota_of(&door.refusal(other).await), ("sessions", 1, 1));
    }
    assert_eq!(status(&door.task(say("work").context("c")).await), "COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn a_message_beyond_a_quota_counts_as_overloaded_and_reaches_no_agent() {
    let door = with_quota(TenantQuota { sessions: Some(1), ..TenantQuota::default() }).await;
    door.task("work").await;
    door.refusal("work").await;
    assert_eq!((door.received("overloaded"), door.agent.turns()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_quota_on_conversations_stops_no_reader() {
    let door = with_quota(TenantQuota { sessions: Some(1), ..TenantQuota::default() }).await;
    let task = door.task("work").await;
    assert_eq!(door.get(&anonymous(), &task.id).await.expect("a task"), task);
}
