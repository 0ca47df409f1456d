//! JSON Schema validation for guests: each call stays within the guest's limits and does not delay others.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Turn, component, installation, log_of, refused, runtime, test_extension, with_parameters};
use annex_runtime::{Extension, Fault, Installation, LimitReached, Limits, LoadError};

/// Time limits for a busy machine.
fn patient() -> Installation {
    let cpu = Duration::from_secs(20);
    let wall = Duration::from_secs(60);
    Installation { limits: Limits { cpu, turn_cpu: cpu, wall, ..Limits::standard() }, ..installation() }
}

async fn misusing(extension: &Arc<Extension>, number: usize) -> Fault {
    Turn::commanding(&format!("\"schema {number}\"")).fault(std::slice::from_ref(extension)).await
}

#[tokio::test]
async fn schemas_without_a_bound_are_refused_with_the_reason() {
    let refusals = [
        (0, "the work of unevaluatedProperties has no bound beside anyOf"),
        (1, "the automata of its patterns take more than 524288 bytes together"),
        (2, "too large for this schema"),
        (3, "too large for this schema"),
    ];
    for (number, reason) in refusals {
        let log = log_of(Box::pin(async {
            let extension = test_extension(&runtime(), patient()).await;
            let fault = misusing(&extension, number).await;
            assert!(matches!(fault, Fault::Trapped { .. }), "{number}: {fault:?}");
        }))
        .await;
        assert!(log.contains(reason), "{number}: {log}");
    }
}

/// The epoch does not interrupt host calls. The time of a validation is charged to the guest, and it runs on a
/// worker.
#[tokio::test]
async fn a_schema_that_takes_long_ends_with_the_limits_of_the_call() {
    let short = Limits { cpu: Duration::from_millis(50), wall: Duration::from_secs(60), ..Limits::standard() };
    for number in [4, 5] {
        let extension = test_extension(&runtime(), Installation { limits: short, ..installation() }).await;
        let fault = misusing(&extension, number).await;
        assert!(matches!(fault, Fault::LimitReached { limit: LimitReached::Cpu, .. }), "{number}: {fault:?}");
    }
}

#[tokio::test]
async fn a_schema_that_takes_long_does_not_hold_the_thread_that_serves_others() {
    // One thread serves all. If the call blocked it, the other task could not run before the call ends.
    let extension = test_extension(&runtime(), installation()).await;
    let served = std::cell::Cell::new(0);
    let turn = misusing(&extension, 4);
    let neighbour = async {
        loop {
            served.set(served.get() + 1);
            tokio::task::yield_now().await;
        }
    };
    let fault = tokio::select! { fault = turn => fault, () = neighbour => unreachable!("it never ends") };
    assert!(matches!(fault, Fault::LimitReached { .. }), "{fault:?}");
    assert!(served.get() > 100, "the neighbour ran {} times", served.get());
}

#[tokio::test]
async fn a_neighbour_validates_while_one_extension_keeps_its_worker_busy() {
    let runtime = runtime();
    let greedy = test_extension(&runtime, installation()).await;
    let modest = test_extension(&runtime, patient()).await;
    // One more would start a quarantine.
    let turns = (0..4).map(|_| {
        let greedy = Arc::clone(&greedy);
        tokio::spawn(async move { misusing(&greedy, 4).await })
    });
    let turns: Vec<_> = turns.collect();
    for number in 0..20 {
        // A new schema each time must be compiled by a worker.
        Turn::commanding(&format!("\"new-schema {number}\""))
            .start(std::slice::from_ref(&modest))
            .await
            .expect("the neighbour is served");
    }
    for turn in turns {
        let fault = turn.await.expect("no panic");
        assert!(matches!(fault, Fault::LimitReached { .. }), "{fault:?}");
    }
}

#[tokio::test]
async fn a_parameter_schema_without_a_bound_refuses_the_load_and_the_next_one_is_served() {
    let parameters = r#"{"behaviour": {"describe": "schema"}}"#;
    let error = refused(component(annex_components::TEST_EXTENSION), with_parameters(parameters)).await;
    let LoadError::Description { reason } = error else { unreachable!("{error:?}") };
    assert!(reason.contains("its parameter schema") && reason.contains("no bound beside anyOf"), "{reason}");
    test_extension(&runtime(), installation()).await;
}
