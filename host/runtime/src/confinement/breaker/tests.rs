use std::sync::Arc;
use std::time::Duration;

use tokio::time::advance;

use super::{Admission, Breaker, FAULTS, FIRST, LONGEST, NoAdmission, TRIALS};
use crate::error::Fault;
use crate::hook::Hook;

fn breaker() -> Breaker {
    Breaker::new("https://annex.example/test/v1".into(), true)
}

fn fault() -> Fault {
    Fault::Failed {
        uri: "https://annex.example/test/v1".into(),
        error_id: uuid::Uuid::nil(),
        hook: Hook::State,
        message: "no".to_owned(),
    }
}

/// A breaker after enough failures to open it.
fn opened() -> Breaker {
    let breaker = breaker();
    fail(&breaker, FAULTS);
    breaker
}

fn fail(breaker: &Breaker, times: u32) {
    for _ in 0..times {
        breaker.failed(admitted(breaker), &fault());
    }
}

/// Begins turns that end without a result.
fn begin(breaker: &Breaker, times: u32) {
    for _ in 0..times {
        admitted(breaker);
    }
}

fn admitted(breaker: &Breaker) -> Admission {
    breaker.admit().expect("the extension may run")
}

/// The time until the next trial of a quarantined extension.
fn next_trial(breaker: &Breaker) -> Duration {
    match breaker.admit() {
        Err(NoAdmission::Quarantined { next_trial }) => next_trial,
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_open_a_quarantine() {
    let breaker = breaker();
    fail(&breaker, FAULTS - 1);
    assert_eq!(breaker.health().quarantined, None);
    fail(&breaker, 1);
    let left = next_trial(&breaker);
    assert!(FIRST.mul_f64(0.9) <= left && left <= FIRST, "{left:?}");
    let health = breaker.health();
    assert_eq!((health.quarantined, health.failures_in_a_row), (Some(left), FAULTS));
}

#[tokio::test(start_paused = true)]
async fn a_good_turn_in_between_starts_the_count_again() {
    let breaker = breaker();
    for _ in 0..3 {
        fail(&breaker, FAULTS - 1);
        breaker.succeeded(admitted(&breaker));
    }
    let health = breaker.health();
    assert_eq!((health.quarantines, health.failures_in_a_row), (0, 0));
    assert_eq!(health.failures, u64::from(FAULTS - 1) * 3);
}

#[tokio::test(start_paused = true)]
async fn a_few_turns_try_a_quarantined_extension() {
    let breaker = opened();
    for _ in 0..2 {
        advance(FIRST).await;
        begin(&breaker, TRIALS);
        assert!(breaker.admit().is_err(), "there are trials already");
        // The trials ended without a result, so another round follows.
    }
}

#[tokio::test(start_paused = true)]
async fn one_good_trial_outweighs_failed_trials() {
    let breaker = opened();
    advance(FIRST).await;
    fail(&breaker, TRIALS - 2);
    let bad = admitted(&breaker);
    breaker.succeeded(admitted(&breaker));
    assert_eq!(breaker.health().quarantined, None);
    breaker.failed(bad, &fault());
    assert_eq!(breaker.health().quarantined, None, "a single failure opens nothing");
}

#[tokio::test(start_paused = true)]
async fn a_good_trial_ends_the_quarantine_and_a_bad_one_doubles_it() {
    let breaker = opened();
    let mut length = FIRST;
    for _ in 0..8 {
        advance(length).await;
        fail(&breaker, TRIALS);
        length = (length * 2).min(LONGEST);
        let left = next_trial(&breaker);
        assert!(length.mul_f64(0.9) <= left && left <= length, "{left:?} of {length:?}");
    }
    assert_eq!(length, LONGEST);
    advance(length).await;
    breaker.succeeded(admitted(&breaker));
    let health = breaker.health();
    assert_eq!((health.quarantined, health.failures_in_a_row, health.quarantines), (None, 0, 1));
    // The next quarantine has the initial length again.
    fail(&breaker, FAULTS);
    assert!(breaker.health().quarantined.is_some_and(|left| left <= FIRST));
}

#[tokio::test(start_paused = true)]
async fn turns_that_began_before_a_trial_decide_nothing() {
    let breaker = breaker();
    let early = admitted(&breaker);
    fail(&breaker, FAULTS);
    breaker.succeeded(early);
    assert!(breaker.admit().is_err(), "a turn from before does not end the quarantine");
    breaker.failed(early, &fault());
    assert!(breaker.health().quarantined.is_some_and(|left| left <= FIRST), "nor does it make it longer");

    advance(FIRST).await;
    let slow = admitted(&breaker);
    begin(&breaker, TRIALS - 1);
    advance(FIRST).await;
    fail(&breaker, TRIALS);
    breaker.succeeded(slow);
    let left = next_trial(&breaker);
    assert!(left > FIRST && left <= Duration::from_secs(2), "{left:?}");
}

fn revoked(reason: &str) -> NoAdmission {
    NoAdmission::Revoked { reason: Arc::from(reason) }
}

#[tokio::test(start_paused = true)]
async fn a_revoked_extension_is_never_admitted_until_it_is_reinstated() {
    // A breaker without quarantines can be revoked too.
    let breaker = Breaker::new("https://annex.example/test/v1".into(), false);
    let early = admitted(&breaker);
    assert!(breaker.revoke("bad") && !breaker.revoke("bad"), "the second call changes nothing");
    breaker.succeeded(early);
    for _ in 0..3 {
        assert_eq!(breaker.admit().expect_err("it is revoked"), revoked("bad"));
        advance(LONGEST * 2).await;
    }
    assert!(breaker.is_open() && breaker.revocation().as_deref() == Some("bad"));
    assert_eq!(breaker.health().revoked.as_deref(), Some("bad"));
    assert!(breaker.revoke("worse"));
    assert_eq!(breaker.admit().expect_err("it is revoked"), revoked("worse"));
    assert!(breaker.reinstate() && !breaker.reinstate());
    admitted(&breaker);
    assert!(!breaker.is_open() && breaker.revocation().is_none() && breaker.health().revoked.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_revocation_and_a_quarantine_end_independently() {
    let breaker = opened();
    assert!(breaker.revoke("bad"));
    assert_eq!(breaker.admit().expect_err("it is revoked"), revoked("bad"));
    assert!(breaker.reinstate() && breaker.is_open());
    assert!(next_trial(&breaker) <= FIRST, "the quarantine goes on");
    advance(FIRST).await;
    let trial = admitted(&breaker);
    assert!(breaker.revoke("bad"));
    breaker.succeeded(trial);
    assert_eq!(breaker.admit().expect_err("the trial ended only the quarantine"), revoked("bad"));
    assert!(breaker.reinstate() && !breaker.is_open());
}
