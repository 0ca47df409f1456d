//! What a guest may use, and that it is stopped there.

use std::time::{Duration, Instant};

use annex_protocol::A2aError;
use annex_runtime::{Fault, Hook, HookError, Installation, LimitReached, Limits, LoadError};

use crate::support::{Turn, component, installation, refused, respond, runtime, test_extension};

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(30);

fn limited(limits: Limits) -> Installation {
    Installation { limits, ..installation() }
}

/// What stops the test extension when `validate` does as told.
async fn fault(limits: Limits, command: &str) -> Fault {
    let extension = test_extension(&runtime(), limited(limits)).await;
    Turn::commanding(command).fault(&[extension]).await
}

async fn check(limits: Limits, command: &str, expected: LimitReached) {
    match fault(limits, command).await {
        Fault::LimitReached { hook: Hook::State, limit, .. } => assert_eq!(limit, expected, "{command}"),
        other => unreachable!("{command}: {other:?}"),
    }
}

#[tokio::test]
async fn a_loop_is_stopped_after_its_share_of_cpu_time_and_within_the_outer_limit() {
    let extension = test_extension(&runtime(), limited(Limits { cpu: SHORT, wall: LONG, ..Limits::standard() })).await;
    let started = Instant::now();
    let fault = Turn::commanding("\"loop\"").fault(&[extension]).await;
    let took = started.elapsed();
    assert!(matches!(fault, Fault::LimitReached { limit: LimitReached::Cpu, .. }), "{fault:?}");
    assert!(SHORT <= took && took < LONG, "{took:?}");
}

#[tokio::test]
async fn time_on_the_clock_is_limited_whatever_the_cpu_share() {
    check(Limits { cpu: LONG, wall: SHORT, ..Limits::standard() }, "\"loop\"", LimitReached::Wall).await;
}

#[tokio::test]
async fn a_memory_bomb_is_stopped_at_the_memory_limit() {
    check(Limits::standard(), "\"memory-bomb\"", LimitReached::Memory).await;
}

#[tokio::test]
async fn a_component_that_begins_with_more_than_its_limits_is_refused() {
    let expected = [
        (Limits { memory: 64 << 10, ..Limits::standard() }, LimitReached::Memory),
        (Limits { table_elements: 1, ..Limits::standard() }, LimitReached::TableElements),
    ];
    for (limits, reached) in expected {
        let error = refused(component(annex_components::TEST_EXTENSION), limited(limits)).await;
        let LoadError::SelfTest(Fault::LimitReached { limit, .. }) = error else { unreachable!("{error:?}") };
        assert_eq!(limit, reached);
    }
}

#[tokio::test]
async fn a_flood_of_host_calls_is_stopped_at_the_budget() {
    check(Limits::standard(), "\"log-flood 1001\"", LimitReached::HostCalls).await;
}

#[tokio::test]
async fn the_budget_of_host_calls_is_for_the_whole_turn() {
    let extension = test_extension(&runtime(), installation()).await;
    let flood = r#"{"validate": "log-flood 600", "respond": "log-flood 600"}"#;
    let mut chain = Turn::commanding(flood).chain(&[extension]).await;
    let fault = respond(&mut chain).await.expect_err("the rest of the budget is too small");
    let Fault::LimitReached { hook, limit, .. } = fault else { unreachable!("{fault:?}") };
    assert_eq!((hook, limit), (Hook::Response, LimitReached::HostCalls));
}

#[tokio::test]
async fn limits_hold_in_a_later_call_of_the_same_instance() {
    let extension = test_extension(&runtime(), installation()).await;
    for (command, expected) in [("loop", LimitReached::Cpu), ("memory-bomb", LimitReached::Memory)] {
        let turn = Turn::commanding(&format!(r#"{{"respond": "{command}"}}"#));
        let mut chain = turn.chain(std::slice::from_ref(&extension)).await;
        let fault = respond(&mut chain).await.expect_err("the guest is stopped");
        let Fault::LimitReached { hook, limit, .. } = fault else { unreachable!("{command}: {fault:?}") };
        assert_eq!((hook, limit), (Hook::Response, expected));
    }
}

#[tokio::test]
async fn an_instance_that_was_stopped_is_never_entered_again() {
    let extension = test_extension(&runtime(), installation()).await;
    let mut chain = Turn::commanding(r#"{"respond": "trap"}"#).chain(&[extension]).await;
    let fault = respond(&mut chain).await.expect_err("the guest is broken");
    assert!(matches!(fault, Fault::Trapped { hook: Hook::Response, .. }), "{fault:?}");
    let artifact = respond(&mut chain).await.expect("the extension is out of the turn");
    assert!(artifact.extensions.is_empty(), "{artifact:?}");
}

#[tokio::test]
async fn a_guest_that_breaks_off_traps() {
    for command in ["trap", "panic", "stack-overflow", "no-such-command"] {
        let fault = fault(Limits::standard(), &format!("\"{command}\"")).await;
        assert!(matches!(fault, Fault::Trapped { hook: Hook::State, .. }), "{command}: {fault:?}");
    }
}

#[tokio::test]
async fn a_result_beyond_the_output_limit_is_not_taken() {
    let fault = fault(Limits { output: 4 << 10, ..Limits::standard() }, "\"big-result 5000\"").await;
    assert!(matches!(fault, Fault::Trapped { hook: Hook::State, .. }), "{fault:?}");
}

#[tokio::test]
async fn metadata_beyond_the_input_limit_is_refused_with_the_key() {
    let extension = test_extension(&runtime(), limited(Limits { input: 10, ..Limits::standard() })).await;
    let refusal = Turn::commanding("\"123456789\"").refusal(&[extension]).await;
    let HookError::Refused(A2aError::InvalidParams { violations }) = refusal else { unreachable!("{refusal:?}") };
    let fields: Vec<_> = violations.iter().map(|violation| violation.field.as_str()).collect();
    assert_eq!(fields, ["/message/metadata/test~1command"]);
    assert!(violations[0].description.contains("10 bytes"), "{}", violations[0].description);
}
