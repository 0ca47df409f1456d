//! The order of hooks, and the effects that they may have.

use std::sync::Arc;

use annex_protocol::ExtensionUri;
use annex_runtime::{Extension, Fault, Hook, HookError, Installation, Runtime, SessionStateGrant};

use crate::support::{Turn, component, reading_the_session, respond, runtime, test_extension, with_parameters};

const FIRST: &str = "https://annex.example/first/v1";
const SECOND: &str = "https://annex.example/second/v1";
const THIRD: &str = "https://annex.example/third/v1";

async fn named(runtime: &Runtime, uri: &str) -> Arc<Extension> {
    test_extension(runtime, with_parameters(&format!(r#"{{"uri": "{uri}"}}"#))).await
}

async fn state_injection(runtime: &Runtime) -> Arc<Extension> {
    let loaded = runtime.load(component(annex_components::STATE_INJECTION), reading_the_session()).await;
    Arc::new(loaded.expect("state injection loads"))
}

#[tokio::test]
async fn the_way_in_has_the_given_order_and_the_way_out_the_reverse() {
    let runtime = runtime();
    let extensions = [named(&runtime, FIRST).await, named(&runtime, SECOND).await, named(&runtime, THIRD).await];
    let mut chain = Turn::with("{}").chain(&extensions).await;
    assert_eq!(chain.active().map(ExtensionUri::as_str).collect::<Vec<_>>(), [FIRST, SECOND, THIRD]);
    let artifact = respond(&mut chain).await.expect("no fault");
    assert_eq!(artifact.extensions.iter().map(ExtensionUri::as_str).collect::<Vec<_>>(), [THIRD, SECOND, FIRST]);
}

#[tokio::test]
async fn a_later_delta_wins_a_key() {
    let runtime = runtime();
    let state = state_injection(&runtime).await;
    let test = test_extension(&runtime, with_parameters("{}")).await;
    let state_key = state.descriptor().metadata_keys[0].clone();
    let turn = Turn::with(&format!(r#"{{"{state_key}": {{"test": 1.0, "other": 2}}, "test/command": "delta"}}"#));

    let (_, delta) = turn.start(&[Arc::clone(&state), Arc::clone(&test)]).await.expect("the turn starts");
    assert_eq!(delta.to_json_string(), r#"{"test":"delta","other":2}"#);
    let (_, delta) = turn.start(&[test, state]).await.expect("the turn starts");
    assert_eq!(delta.to_json_string(), r#"{"test":1.0,"other":2}"#);
}

#[tokio::test]
async fn a_chain_without_extensions_leaves_the_event_alone() {
    let (mut chain, delta) = Turn::with("{}").start(&[]).await.expect("the turn starts");
    assert!(delta.is_empty() && chain.active().next().is_none());
    let artifact = respond(&mut chain).await.expect("no fault");
    assert!(artifact.metadata.is_empty() && artifact.extensions.is_empty());
}

#[tokio::test]
async fn an_inactive_extension_is_skipped_unless_it_is_required() {
    let runtime = runtime();
    let inactive = with_parameters(r#"{"behaviour": {"activate": "inactive"}}"#);
    let extension = test_extension(&runtime, inactive.clone()).await;
    // The hook `state` is not called either.
    let mut chain = Turn::commanding("\"trap\"").chain(&[extension]).await;
    assert_eq!(chain.active().count(), 0);
    assert!(respond(&mut chain).await.expect("no fault").metadata.is_empty());

    let required = test_extension(&runtime, Installation { required: true, ..inactive }).await;
    let fault = Turn::with("{}").fault(&[required]).await;
    assert!(matches!(fault, Fault::BrokeContract { hook: Hook::Activation, .. }), "{fault:?}");
}

#[tokio::test]
async fn a_refusal_ends_the_way_in() {
    let runtime = runtime();
    let first = test_extension(&runtime, with_parameters(r#"{"behaviour": {"validate": "reject"}}"#)).await;
    let trapping = format!(r#"{{"uri": "{SECOND}", "behaviour": {{"activate": "trap"}}}}"#);
    let second = test_extension(&runtime, with_parameters(&trapping)).await;
    let refusal = Turn::with("{}").refusal(&[first, second]).await;
    assert!(matches!(refusal, HookError::Refused(_)), "{refusal:?}");
}

#[tokio::test]
async fn what_an_extension_may_not_write_breaks_the_contract() {
    let extensions = [test_extension(&runtime(), with_parameters("{}")).await];
    for command in ["scope-escalation", "bad-json", "not-an-object", "forged-code"] {
        let fault = Turn::commanding(&format!("\"{command}\"")).fault(&extensions).await;
        assert!(matches!(fault, Fault::BrokeContract { hook: Hook::State, .. }), "{command}: {fault:?}");
    }
    let extensions = [test_extension(&runtime(), with_parameters("{}")).await];
    let fault = Turn::commanding("\"empty-violations\"").fault(&extensions).await;
    assert!(matches!(fault, Fault::BrokeContract { hook: Hook::State, .. }), "{fault:?}");
}

#[tokio::test]
async fn a_delta_keeps_to_the_keys_that_it_may_write() {
    let installation = |write_keys: &[&str]| {
        let mut installation = reading_the_session();
        let write_keys = write_keys.iter().map(|key| (*key).to_owned()).collect();
        installation.grants.session_state =
            Some(SessionStateGrant { write_keys: Some(write_keys), ..SessionStateGrant::default() });
        installation
    };
    let allowed = [test_extension(&runtime(), installation(&["other", "test"])).await];
    let (_, delta) = Turn::commanding("\"delta\"").start(&allowed).await.expect("the turn starts");
    assert_eq!(delta.to_json_string(), r#"{"test":"delta"}"#);
    let refused = [test_extension(&runtime(), installation(&["other"])).await];
    let fault = Turn::commanding("\"delta\"").fault(&refused).await;
    let Fault::BrokeContract { hook: Hook::State, reason, .. } = fault else { unreachable!("{fault:?}") };
    assert!(reason.contains("`test`"), "{reason}");
}

/// The command came with the request, so only the instance that validated the request knows it.
#[tokio::test]
async fn the_instance_of_the_way_in_serves_every_event_on_the_way_out() {
    let extensions = [test_extension(&runtime(), with_parameters("{}")).await];
    let mut chain = Turn::commanding(r#"{"respond": "none"}"#).chain(&extensions).await;
    for _ in 0..3 {
        assert!(respond(&mut chain).await.expect("no fault").metadata.is_empty());
    }
}
