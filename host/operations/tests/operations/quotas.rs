//! Quotas of tenants.

use annex_operations::quota::TenantQuota;
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
        door.handler.admit().expect("no quota");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_quota_of_a_second_are_refused() {
    let door = with_quota(TenantQuota { requests_per_second: Some(2), ..TenantQuota::default() }).await;
    let refused = (0..100).find_map(|_| door.handler.admit().err()).expect("a refusal");
    assert_eq!(quota_of(&refused), ("requests_per_second", 2, 2));
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
