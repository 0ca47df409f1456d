//! Metrics of calls.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use annex_protocol::Secret;
use annex_runtime::{CallOutcome, Extension, ExtensionMetrics, Hook, HookMetrics, Limits, Runtime, RuntimeConfig};

use crate::support::{Turn, config, installation, respond, runtime, test_extension, with_parameters};

fn of_hook(extension: &Extension, hook: Hook) -> HookMetrics {
    let mut hooks = extension.metrics().hooks.into_iter();
    hooks.find(|metrics| metrics.hook == hook).expect("the component has the hook")
}

/// Outcomes of a hook with their counts, without those that are zero.
fn outcomes(extension: &Extension, hook: Hook) -> Vec<(&'static str, u64)> {
    let outcomes = of_hook(extension, hook).outcomes;
    outcomes.into_iter().filter(|(_, count)| *count > 0).map(|(outcome, count)| (outcome.name(), count)).collect()
}

#[tokio::test]
async fn each_call_is_counted_by_its_outcome() {
    let extension = test_extension(&runtime(), installation()).await;
    let extensions = [Arc::clone(&extension)];
    let refuse = async |command: &str| Turn::commanding(&format!("\"{command}\"")).refusal(&extensions).await;
    for command in ["violation", "reject", "forged-code", "trap", "loop", "memory-bomb"] {
        refuse(command).await;
    }
    // This many consecutive failures would start a quarantine.
    drop(Turn::with("{}").start(&extensions).await.expect("the turn starts"));
    for command in ["log-flood 5001", "bad-json"] {
        refuse(command).await;
    }
    let expected = [
        ("ok", 1),
        ("refused", 2),
        ("trap", 1),
        ("invalid_result", 2),
        ("cpu_limit", 1),
        ("memory_limit", 1),
        ("host_call_limit", 1),
    ];
    assert_eq!(outcomes(&extension, Hook::State), expected);
    assert_eq!(outcomes(&extension, Hook::Activation), [("ok", 9)]);
    let state = of_hook(&extension, Hook::State);
    assert_eq!((state.calls, state.failures()), (9, 6));
    let share = Limits::standard().cpu;
    assert!(state.longest >= share && state.busy >= share / 2, "the loop had its share: {state:?}");
    assert!(state.busy <= state.time && state.longest <= state.time, "{state:?}");
    assert_eq!(of_hook(&extension, Hook::Response).calls, 0);
    assert_eq!(of_hook(&extension, Hook::Response).mean(), None);
}

#[tokio::test]
async fn the_way_out_is_counted_and_a_member_that_failed_is_called_no_more() {
    let extension = test_extension(&runtime(), installation()).await;
    for (command, expected) in [("ok", "ok"), ("error", "failed"), ("foreign-key", "invalid_result")] {
        let turn = Turn::commanding(&format!(r#"{{"respond": "{command}"}}"#));
        let mut chain = turn.chain(&[Arc::clone(&extension)]).await;
        let responded = respond(&mut chain).await;
        assert_eq!(responded.is_ok(), command == "ok");
        assert!(outcomes(&extension, Hook::Response).contains(&(expected, 1)), "{command}");
    }
    let mut chain = Turn::commanding(r#"{"respond": "trap"}"#).chain(&[Arc::clone(&extension)]).await;
    respond(&mut chain).await.expect_err("the guest is broken");
    respond(&mut chain).await.expect("it takes no part any more");
    assert_eq!(of_hook(&extension, Hook::Response).calls, 4);
}

#[tokio::test]
async fn memory_host_calls_and_log_lines_are_counted() {
    let extension = test_extension(&runtime(), installation()).await;
    let before = extension.metrics();
    assert_eq!((before.memory_peak, before.host_calls), (0, 0), "loading is not counted");
    drop(Turn::with("{}").chain(&[Arc::clone(&extension)]).await);
    let quiet = extension.metrics();
    assert!(quiet.memory_peak >= 64 << 10, "{quiet:?}");
    drop(Turn::commanding("\"log-flood 150\"").chain(&[Arc::clone(&extension)]).await);
    let after = extension.metrics();
    assert_eq!((after.log_lines - quiet.log_lines, after.log_lines_dropped), (100, 50));
    assert_eq!(after.host_calls - quiet.host_calls, quiet.host_calls + 150, "the flood and what a turn takes anyhow");
    Turn::commanding("\"memory-bomb\"").refusal(&[Arc::clone(&extension)]).await;
    let peak = extension.metrics().memory_peak;
    assert!(peak > after.memory_peak && peak <= Limits::standard().memory, "{peak}");
}

#[tokio::test]
async fn the_last_failure_is_kept_with_its_reason_in_one_line() {
    let extension = test_extension(&runtime(), installation()).await;
    assert!(extension.metrics().last_failure.is_none());
    Turn::commanding("\"violation\"").refusal(&[Arc::clone(&extension)]).await;
    assert!(extension.metrics().last_failure.is_none(), "a client's fault is no failure");
    let cases = [
        ("\"trap\"", CallOutcome::Trap, "trapped in state: wasm trap: wasm `unreachable` instruction executed"),
        ("\"forged-code\"", CallOutcome::InvalidResult, "forged the core error code"),
        ("\"memory-bomb\"", CallOutcome::MemoryLimit, "reached its memory limit in state"),
    ];
    for (command, outcome, reason) in cases {
        Turn::commanding(command).refusal(&[Arc::clone(&extension)]).await;
        let failure = extension.metrics().last_failure.expect("a failure");
        assert_eq!((failure.hook, failure.outcome), (Hook::State, outcome));
        assert!(failure.reason.contains(reason) && !failure.reason.contains('\n'), "{}", failure.reason);
    }
}

#[tokio::test]
async fn secrets_are_taken_out_of_the_reason() {
    let mut installation = installation();
    installation.grants.secrets.insert("KEY".to_owned(), Secret::new("someone/else"));
    let extension = test_extension(&runtime(), installation).await;
    let mut chain = Turn::commanding(r#"{"respond": "foreign-key"}"#).chain(&[Arc::clone(&extension)]).await;
    respond(&mut chain).await.expect_err("the key is another's");
    let reason = extension.metrics().last_failure.expect("a failure").reason;
    assert!(reason.contains("(secret)") && !reason.contains("someone/else"), "{reason}");
}

/// A runtime with one instance.
fn narrow(instance_timeout: Duration) -> Runtime {
    Runtime::new(&RuntimeConfig { instances: 1, instance_timeout, ..config() }).expect("the runtime starts")
}

#[tokio::test]
async fn waits_for_an_instance_are_counted_whether_they_succeed_or_not() {
    let extensions = [test_extension(&narrow(Duration::from_millis(5)), installation()).await];
    let turn = Turn::with("{}");
    let first = turn.chain(&extensions).await;
    turn.fault(&extensions).await;
    let metrics = extensions[0].metrics();
    assert_eq!(metrics.waits, 1);
    assert!(metrics.waited >= Duration::from_millis(5), "{metrics:?}");
    assert_eq!(outcomes(&extensions[0], Hook::Activation), [("ok", 1), ("overloaded", 1)]);
    let activation = of_hook(&extensions[0], Hook::Activation);
    assert!(activation.time - activation.busy >= Duration::from_millis(4), "waiting is not busy: {activation:?}");
    drop(first);
}

#[tokio::test]
async fn a_call_whose_request_is_given_up_is_counted_as_abandoned() {
    let extensions = [test_extension(&narrow(Duration::from_secs(30)), installation()).await];
    let turn = Turn::with("{}");
    let first = turn.chain(&extensions).await;
    // The second turn is cancelled while it waits for the instance.
    let mut second = Box::pin(turn.start(&extensions));
    assert!(has_to_wait(&mut second).await);
    drop(second);
    assert_eq!(outcomes(&extensions[0], Hook::Activation), [("ok", 1), ("abandoned", 1)]);
    assert_eq!(of_hook(&extensions[0], Hook::Activation).failures(), 0);
    drop(first);
}

/// Polls once. Returns true if the future is pending.
async fn has_to_wait<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context).is_pending())).await
}

#[tokio::test]
async fn metrics_survive_fifty_swaps_and_start_again_after_the_last_version() {
    let runtime = runtime();
    let mut extension = test_extension(&runtime, installation()).await;
    for _ in 0..50 {
        drop(Turn::with("{}").chain(&[Arc::clone(&extension)]).await);
        extension = test_extension(&runtime, installation()).await;
    }
    assert_eq!(of_hook(&extension, Hook::State).calls, 50);
    let other = test_extension(&runtime, with_parameters(r#"{"uri": "urn:other"}"#)).await;
    assert_eq!(calls(&other.metrics()), 0, "each URI has its own");
    drop(extension);
    let extension = test_extension(&runtime, installation()).await;
    assert_eq!(calls(&extension.metrics()), 0);
}

fn calls(metrics: &ExtensionMetrics) -> u64 {
    metrics.hooks.iter().map(|hook| hook.calls).sum()
}
