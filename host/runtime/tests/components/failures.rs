//! Failures of extensions: the effect on a turn, and quarantine.

use std::sync::Arc;
use std::time::Duration;

use annex_protocol::{A2aError, ExtensionUri};
use annex_runtime::{
    Chain, Extension, Fault, Health, HookError, Installation, Limits, OnFailure, Runtime, RuntimeConfig,
};

use crate::support::{Turn, config, installation, log_of, respond, runtime, test_extension, with_parameters};

const FIRST: &str = "https://annex.example/first/v1";
const SECOND: &str = "https://annex.example/second/v1";
const THIRD: &str = "https://annex.example/third/v1";
const FOURTH: &str = "https://annex.example/fourth/v1";

/// Consecutive failed turns that start a quarantine.
const FAULTS: usize = 5;
/// Number of trials in a quarantine.
const TRIALS: usize = 5;

/// The test extension under this URI. `more` is appended to its parameters.
async fn named(runtime: &Runtime, uri: &str, on_failure: OnFailure, more: &str) -> Arc<Extension> {
    let parameters = with_parameters(&format!(r#"{{"uri": "{uri}"{more}}}"#));
    test_extension(runtime, Installation { on_failure, ..parameters }).await
}

async fn skipped(runtime: &Runtime, uri: &str, more: &str) -> Arc<Extension> {
    named(runtime, uri, OnFailure::Skip, more).await
}

/// Parameters for a test extension with this behaviour in every turn.
fn behaves(behaviour: &str) -> String {
    format!(r#", "behaviour": {behaviour}"#)
}

fn active(chain: &Chain) -> Vec<&str> {
    chain.active().map(ExtensionUri::as_str).collect()
}

/// URIs listed on an artifact after the way out.
async fn claimed(chain: &mut Chain) -> Vec<String> {
    let artifact = respond(chain).await.expect("the turn goes on");
    artifact.extensions.iter().map(ToString::to_string).collect()
}

fn failures(extension: &Extension) -> u64 {
    extension.health().failures
}

#[tokio::test]
async fn a_turn_goes_on_without_an_extension_that_may_be_skipped() {
    let runtime = runtime();
    let good = skipped(&runtime, FIRST, "").await;
    for command in ["trap", "panic", "memory-bomb", "bad-json", "scope-escalation", "forged-code"] {
        let bad = skipped(&runtime, SECOND, &behaves(&format!(r#"{{"validate": "{command}"}}"#))).await;
        let extensions = [Arc::clone(&good), bad];
        let (mut chain, delta) = Turn::with("{}").start(&extensions).await.expect("the turn starts");
        assert!(delta.is_empty(), "{command}: {delta:?}");
        assert_eq!(active(&chain), [FIRST], "{command}");
        assert_eq!(claimed(&mut chain).await, [FIRST], "{command}");
        assert_eq!(failures(&extensions[1]), 1, "{command}");
    }
    assert_eq!(failures(&good), 0);
}

#[tokio::test]
async fn an_extension_that_fails_on_the_way_out_is_out_of_all_later_events() {
    let runtime = runtime();
    for command in ["trap", "error", "foreign-key", "bad-json", "big-result 2000000"] {
        let bad = skipped(&runtime, FIRST, &behaves(&format!(r#"{{"respond": "{command}"}}"#))).await;
        let extensions = [bad, skipped(&runtime, SECOND, "").await];
        let mut chain = Turn::with("{}").chain(&extensions).await;
        assert_eq!(active(&chain), [FIRST, SECOND], "{command}");
        for _ in 0..2 {
            assert_eq!(claimed(&mut chain).await, [SECOND], "{command}");
            assert_eq!(active(&chain), [SECOND], "{command}");
        }
        assert_eq!(failures(&extensions[0]), 1, "{command}: one turn, one failure");
    }
}

#[tokio::test]
async fn a_verdict_is_no_failure() {
    let extension = [skipped(&runtime(), FIRST, "").await];
    for command in ["\"violation\"", "\"reject\""] {
        for _ in 0..=FAULTS {
            let refusal = Turn::commanding(command).refusal(&extension).await;
            assert!(matches!(refusal, HookError::Refused(_)), "{command}: {refusal:?}");
        }
    }
    let expected = Health { quarantined: None, failures_in_a_row: 0, failures: 0, quarantines: 0, revoked: None };
    assert_eq!(extension[0].health(), expected);
}

#[tokio::test]
async fn dependents_of_a_skipped_extension_are_skipped_too() {
    let runtime = runtime();
    let trapping = |hook: &str| behaves(&format!(r#"{{"{hook}": "trap"}}"#));
    let depends = |uri: &str| format!(r#", "depends_on": ["{uri}"]"#);
    let second = skipped(&runtime, SECOND, &depends(FIRST)).await;
    let third = named(&runtime, THIRD, OnFailure::Reject, &depends(SECOND)).await;
    let on_the_way_in = [skipped(&runtime, FIRST, &trapping("validate")).await, Arc::clone(&second)];
    assert!(active(&Turn::with("{}").chain(&on_the_way_in).await).is_empty());

    let on_the_way_out = [skipped(&runtime, FIRST, &trapping("respond")).await, Arc::clone(&second), third];
    let mut chain = Turn::with("{}").chain(&on_the_way_out).await;
    assert_eq!(claimed(&mut chain).await, [THIRD, SECOND], "they answered before it failed");
    assert!(claimed(&mut chain).await.is_empty() && active(&chain).is_empty());
    assert_eq!(failures(&second), 0);
}

#[tokio::test]
async fn a_turn_fails_if_a_required_extension_lacks_its_dependency() {
    let runtime = runtime();
    let bad = skipped(&runtime, FIRST, &behaves(r#"{"respond": "trap"}"#)).await;
    let parameters = with_parameters(&format!(r#"{{"uri": "{SECOND}", "depends_on": ["{FIRST}"]}}"#));
    let required = test_extension(&runtime, Installation { required: true, ..parameters }).await;
    let mut chain = Turn::with("{}").chain(&[bad, required]).await;
    let fault = respond(&mut chain).await.expect_err("the required one stays without its dependency");
    assert!(matches!(&fault, Fault::BrokeContract { uri, .. } if uri.as_str() == SECOND), "{fault:?}");
}

#[tokio::test]
async fn a_quarantined_extension_is_not_run_and_recovers_by_itself() {
    let extension = [named(&runtime(), FIRST, OnFailure::Reject, "").await];
    let bad = Turn::commanding("\"trap\"");
    let good = Turn::with("{}");
    tokio::time::pause();
    let log = log_of(async {
        for _ in 0..FAULTS {
            assert!(matches!(bad.fault(&extension).await, Fault::Trapped { .. }));
        }
        let fault = good.fault(&extension).await;
        assert!(matches!(&fault, Fault::Quarantined { uri, .. } if uri.as_str() == FIRST), "{fault:?}");
        let health = extension[0].health();
        assert!(health.quarantined.is_some_and(|left| left <= Duration::from_secs(1)), "{health:?}");
        assert_eq!((health.failures_in_a_row, health.quarantines), (5, 1));
        let failure = extension[0].metrics().last_failure.expect("a failure");
        assert!(failure.reason.contains("trapped in state"), "{}", failure.reason);

        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..TRIALS {
            assert!(matches!(bad.fault(&extension).await, Fault::Trapped { .. }), "a trial");
        }
        assert!(matches!(good.fault(&extension).await, Fault::Quarantined { .. }), "and no more");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(matches!(bad.fault(&extension).await, Fault::Trapped { .. }), "a trial");
        good.chain(&extension).await;
        assert_eq!(extension[0].health().quarantined, None, "one good trial is enough");
    })
    .await;
    assert_eq!(extension[0].health().quarantined, None);
    assert_eq!(log.matches("quarantined after failures in a row").count(), 2, "{log}");
    assert!(log.contains("trapped in state") && log.contains("out of quarantine"), "{log}");
}

#[tokio::test]
async fn a_quarantined_extension_that_may_be_skipped_fails_no_turn() {
    let extension = [skipped(&runtime(), FIRST, &behaves(r#"{"respond": "trap"}"#)).await];
    for turn in 0..FAULTS * 2 {
        let mut chain = Turn::with("{}").chain(&extension).await;
        assert_eq!(active(&chain).is_empty(), turn >= FAULTS, "turn {turn}");
        assert!(claimed(&mut chain).await.is_empty());
    }
    assert_eq!(failures(&extension[0]), 5, "it was not run in quarantine");
}

#[tokio::test]
async fn a_turn_beyond_the_limit_of_concurrent_turns_is_refused_and_not_a_failure() {
    let runtime =
        Runtime::new(&RuntimeConfig { instances: 10, instance_timeout: Duration::from_millis(20), ..config() })
            .expect("starts");
    let limits = Limits { turns: 2, ..Limits::standard() };
    let busy = test_extension(&runtime, Installation { limits, ..with_parameters("{}") }).await;
    let neighbour = [named(&runtime, SECOND, OnFailure::Reject, "").await];
    let turn = Turn::with("{}");
    let extensions = [busy];
    let held = [turn.chain(&extensions).await, turn.chain(&extensions).await];
    for _ in 0..=FAULTS {
        let fault = turn.fault(&extensions).await;
        assert!(matches!(fault, Fault::Busy { turns: 2, .. }), "{fault:?}");
        turn.chain(&neighbour).await;
    }
    drop(held);
    turn.chain(&extensions).await;
    assert_eq!(failures(&extensions[0]), 0);
}

/// A good and a bad version of an extension.
struct Pair {
    uri: &'static str,
    good: Arc<Extension>,
    bad: Arc<Extension>,
}

impl Pair {
    async fn new(runtime: &Runtime, on_failure: OnFailure, uri: &'static str, behaviour: &str) -> Self {
        let good = named(runtime, uri, on_failure, "").await;
        Self { uri, good, bad: named(runtime, uri, on_failure, &behaves(behaviour)).await }
    }
}

async fn pairs(on_failure: OnFailure) -> [Pair; 4] {
    let runtime = runtime();
    [
        Pair::new(&runtime, on_failure, FIRST, r#"{"validate": "trap"}"#).await,
        Pair::new(&runtime, on_failure, SECOND, r#"{"respond": "panic"}"#).await,
        Pair::new(&runtime, on_failure, THIRD, r#"{"activate": "memory-bomb"}"#).await,
        Pair::new(&runtime, on_failure, FOURTH, r#"{"respond": "foreign-key"}"#).await,
    ]
}

/// True if bit `index` of `set` is set: the extension at `index` is the bad version.
fn is_bad(set: usize, index: usize) -> bool {
    (set >> index) & 1 == 1
}

fn chosen(pairs: &[Pair], set: usize) -> Vec<Arc<Extension>> {
    let choose = |(index, pair): (usize, &Pair)| Arc::clone(if is_bad(set, index) { &pair.bad } else { &pair.good });
    pairs.iter().enumerate().map(choose).collect()
}

/// The sets repeat, so that bad versions are met before, during and after their quarantine.
#[tokio::test]
async fn any_set_of_failing_extensions_leaves_the_others_working() {
    let pairs = pairs(OnFailure::Skip).await;
    for set in (0..3).flat_map(|_| 0..1 << pairs.len()) {
        let mut chain = Turn::with("{}").chain(&chosen(&pairs, set)).await;
        let good = pairs.iter().enumerate().filter(|(index, _)| !is_bad(set, *index)).map(|(_, pair)| pair.uri);
        let good: Vec<&str> = good.collect();
        let reversed: Vec<&str> = good.iter().rev().copied().collect();
        assert_eq!(claimed(&mut chain).await, reversed, "set {set:04b}");
        assert_eq!(active(&chain), good, "set {set:04b}");
    }
    for pair in &pairs {
        assert_eq!(failures(&pair.good), 0, "{}", pair.uri);
        assert!(pair.bad.health().quarantined.is_some(), "{}", pair.uri);
    }
}

#[tokio::test]
async fn whatever_set_of_extensions_fails_turns_without_them_are_served_and_only_they_are_to_blame() {
    let pairs = pairs(OnFailure::Reject).await;
    for set in (0..3).flat_map(|_| 0..1 << pairs.len()) {
        let failed = match Turn::with("{}").start(&chosen(&pairs, set)).await {
            Err(HookError::Fault(fault)) => Some(fault),
            Err(HookError::Refused(error)) => unreachable!("the client is blamed: {error}"),
            Ok((mut chain, _)) => respond(&mut chain).await.err(),
        };
        assert_eq!(failed.is_some(), set != 0, "set {set:04b}: {failed:?}");
    }
    for pair in &pairs {
        assert_eq!(failures(&pair.good), 0, "{}", pair.uri);
        assert!(failures(&pair.bad) > 0, "{}", pair.uri);
    }
}

/// Each binding writes violations several times, and refusals do not lead to a quarantine.
#[tokio::test]
async fn of_a_flood_of_violations_the_client_is_told_a_few() {
    let limits = Limits { cpu: Duration::from_secs(20), ..Limits::standard() };
    let extension = test_extension(&runtime(), Installation { limits, ..installation() }).await;
    let refused = Turn::commanding("\"violations 12000\"").start(&[extension]).await;
    let Err(HookError::Refused(A2aError::InvalidParams { violations })) = refused else {
        unreachable!("it is refused")
    };
    assert_eq!(violations.len(), 64);
    assert_eq!(violations.first().map(|first| first.field.as_str()), Some("/0"));
}

#[tokio::test]
async fn a_turn_that_has_begun_loses_a_revoked_extension_at_its_next_hook() {
    let runtime = runtime();
    let extensions = [skipped(&runtime, FIRST, "").await, skipped(&runtime, SECOND, "").await];
    let mut chain = Turn::with("{}").chain(&extensions).await;
    assert_eq!(active(&chain), [FIRST, SECOND]);
    let log = log_of(async { extensions[0].revoke("it is on a list") }).await;
    assert!(log.contains("out of service: it is on a list") && log.contains(FIRST), "{log}");
    assert_eq!(claimed(&mut chain).await, [SECOND]);
    assert_eq!(active(&chain), [SECOND]);
    assert_eq!(active(&Turn::with("{}").chain(&extensions).await), [SECOND], "a new turn does not begin with it");
    assert_eq!((extensions[0].metrics().quarantined_turns, failures(&extensions[0])), (1, 0));
    extensions[0].reinstate();
    assert_eq!(active(&Turn::with("{}").chain(&extensions).await), [FIRST, SECOND]);
    assert_eq!(active(&chain), [SECOND], "the old turn goes on without it");
}

#[tokio::test]
async fn a_revoked_extension_that_must_not_be_skipped_ends_the_turn_with_the_reason() {
    let extension = [named(&runtime(), FIRST, OnFailure::Reject, "").await];
    let mut chain = Turn::with("{}").chain(&extension).await;
    extension[0].revoke("it is on a list");
    let fault = respond(&mut chain).await.expect_err("the extension is out of service");
    assert!(matches!(fault, Fault::Revoked { .. }), "{fault:?}");
    let fault = Turn::with("{}").fault(&extension).await;
    assert_eq!(fault.text(), format!("extension {FIRST} is out of service: it is on a list"));
    assert!(extension[0].declare_again().await.is_err(), "it is not asked for its entry either");
    extension[0].reinstate();
    assert_eq!(active(&Turn::with("{}").chain(&extension).await), [FIRST]);
}
