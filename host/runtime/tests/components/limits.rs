//! A guest is stopped when it exceeds a limit.

use std::time::{Duration, Instant};

use annex_protocol::A2aError;
use annex_runtime::{Fault, Hook, HookError, Installation, LimitReached, Limits, LoadError};

use crate::support::{
    Turn, component, installation, log_of, refused, respond, runtime, test_extension, with_parameters,
};

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(30);

fn limited(limits: Limits) -> Installation {
    Installation { limits, ..installation() }
}

/// The fault that stops the test extension when `validate` executes `command`.
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
    check(Limits::standard(), "\"log-flood 5001\"", LimitReached::HostCalls).await;
}

#[tokio::test]
async fn the_budget_of_host_calls_is_for_the_whole_turn() {
    let extension = test_extension(&runtime(), installation()).await;
    let flood = r#"{"validate": "log-flood 3000", "respond": "log-flood 3000"}"#;
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
    let is_expected = matches!(fault, Fault::LimitReached { hook: Hook::State, limit: LimitReached::Output, .. });
    assert!(is_expected, "{fault:?}");
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

/// Discarded log lines, as work that takes a while and ends.
const BUSY: &str = r#"{"respond": "log-flood 5000"}"#;

/// The fault that ends a turn of many events, each of which keeps the guest busy for a while.
async fn fault_of_many_events(limits: Limits) -> Fault {
    let extension = test_extension(&runtime(), limited(limits)).await;
    let mut chain = Turn::commanding(BUSY).chain(&[extension]).await;
    for _ in 0..100_000 {
        if let Err(fault) = respond(&mut chain).await {
            return fault;
        }
    }
    unreachable!("nothing ended the turn")
}

#[tokio::test]
async fn many_short_calls_use_up_the_times_of_their_turn() {
    let unlimited = Limits { host_calls: u32::MAX, turn_cpu: LONG, turn_wall: LONG, ..Limits::standard() };
    let expected = [
        (Limits { turn_cpu: SHORT, ..unlimited }, LimitReached::TurnCpu),
        (Limits { turn_wall: SHORT, ..unlimited }, LimitReached::TurnWall),
    ];
    for (limits, reached) in expected {
        let fault = fault_of_many_events(limits).await;
        let Fault::LimitReached { hook: Hook::Response, limit, .. } = fault else { unreachable!("{fault:?}") };
        assert_eq!(limit, reached);
    }
}

#[tokio::test]
async fn a_call_is_limited_by_the_remaining_time_of_its_turn() {
    let limits = Limits { cpu: LONG, wall: LONG, turn_cpu: LONG, turn_wall: SHORT, ..Limits::standard() };
    check(limits, "\"loop\"", LimitReached::TurnWall).await;
    let limits = Limits { cpu: LONG, wall: LONG, turn_cpu: SHORT, turn_wall: LONG, ..Limits::standard() };
    check(limits, "\"loop\"", LimitReached::TurnCpu).await;
}

#[tokio::test]
async fn the_log_of_a_turn_is_limited_by_lines_and_by_bytes() {
    let written = async |limits: Limits| {
        let log = log_of(async {
            let extension = test_extension(&runtime(), limited(limits)).await;
            Turn::commanding("\"log-flood 500\"").chain(&[extension]).await;
        })
        .await;
        assert_eq!(log.matches("further log lines of this turn are dropped").count(), 1, "{log}");
        (log.matches(": line").count(), log.contains(": line 10"))
    };
    assert_eq!(written(Limits { log_lines: 7, ..Limits::standard() }).await, (7, false));
    // "line 0" to "line 9", and four bytes of the next line.
    assert_eq!(written(Limits { log_bytes: 64, ..Limits::standard() }).await, (11, false));
}

#[tokio::test]
async fn an_event_beyond_the_input_limit_is_not_handed_to_the_guest() {
    let installation =
        Installation { limits: Limits { input: 100, ..Limits::standard() }, ..with_parameters(r#"{"payload": true}"#) };
    let extension = test_extension(&runtime(), installation).await;
    let mut chain = Turn::with("{}").chain(std::slice::from_ref(&extension)).await;
    let fault = respond(&mut chain).await.expect_err("the event is larger");
    assert!(matches!(fault, Fault::EventTooLarge { limit: 100, size: 101.., .. }), "{fault:?}");
    assert_eq!(extension.health().failures, 0, "the event is not the guest's");
}
