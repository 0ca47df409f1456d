//! Valid components with invalid settings of the operator.

use std::sync::Arc;

use annex_protocol::ExtensionUri;
use annex_runtime::{Fault, GrantNeeded, Hook, Installation, Installed, LimitReached, LoadError, OnFailure};

use crate::support::{
    Turn, component, installation, reading_the_session, refused, runtime, test_extension, with_parameters,
};

const DEPENDENT_URI: &str = "https://annex.example/other/v1";

#[tokio::test]
async fn an_import_without_its_grant_is_refused_with_the_grant_to_add() {
    let expected = [
        (annex_components::TIMESTAMP, GrantNeeded::Clock),
        (annex_components::STATE_INJECTION, GrantNeeded::SessionState),
    ];
    for (path, needed) in expected {
        let error = refused(component(path), installation()).await;
        assert!(matches!(error, LoadError::NotGranted { grant, .. } if grant == needed), "{error:?}");
        assert!(error.to_string().contains(&needed.to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_grant_that_the_descriptor_asks_for_is_checked_like_an_import() {
    let demanding = with_parameters(r#"{"grants": ["random"]}"#);
    let error = refused(component(annex_components::TEST_EXTENSION), demanding).await;
    assert!(matches!(error, LoadError::NotGranted { grant: GrantNeeded::Random, .. }), "{error:?}");
}

#[tokio::test]
async fn a_dependency_is_named_once() {
    let twice = with_parameters(r#"{"depends_on": ["urn:a", "urn:b", "urn:a"]}"#);
    let error = refused(component(annex_components::TEST_EXTENSION), twice).await;
    let LoadError::Description { reason } = error else { unreachable!("{error:?}") };
    assert_eq!(reason, "it names its dependency urn:a twice");
}

async fn refused_parameters(parameters: &str) -> LoadError {
    let parameters = with_parameters(parameters).parameters;
    let installation = Installation { parameters, ..reading_the_session() };
    refused(component(annex_components::STATE_INJECTION), installation).await
}

#[tokio::test]
async fn parameters_must_suit_the_extension_and_its_schema() {
    let error = refused_parameters(r#"{"stat_schema": {}}"#).await;
    assert!(matches!(&error, LoadError::Parameters { reason, .. } if reason.contains("stat_schema")), "{error:?}");
    let error = refused_parameters(r#"{"description": null}"#).await;
    assert!(matches!(&error, LoadError::Parameters { pointer, .. } if pointer == "/description"), "{error:?}");
}

#[tokio::test]
async fn the_self_test_runs_under_the_limits() {
    let looping = with_parameters(r#"{"behaviour": {"describe": "loop"}}"#);
    let error = refused(component(annex_components::TEST_EXTENSION), looping).await;
    let LoadError::SelfTest(Fault::LimitReached { hook, limit, .. }) = error else { unreachable!("{error:?}") };
    assert_eq!((hook, limit), (Hook::Descriptor, LimitReached::Cpu));

    let trapping = with_parameters(r#"{"behaviour": {"declare": "trap"}}"#);
    let error = refused(component(annex_components::TEST_EXTENSION), trapping).await;
    assert!(matches!(error, LoadError::SelfTest(Fault::Trapped { hook: Hook::Card, .. })), "{error:?}");
}

#[tokio::test]
async fn one_uri_can_be_installed_once_and_dependencies_stand_before_dependents() {
    let runtime = runtime();
    let load = async |parameters: &str| {
        let loaded = runtime.load(component(annex_components::TEST_EXTENSION), with_parameters(parameters)).await;
        loaded.expect("the test extension loads")
    };
    let dependent = format!(r#"{{"uri": "{DEPENDENT_URI}", "depends_on": ["https://annex.example/test/v1"]}}"#);

    let error = Installed::new(vec![load("{}").await, load("{}").await]).expect_err("a duplicate");
    assert!(matches!(error, LoadError::Duplicate { .. }), "{error:?}");
    let error = Installed::new(vec![load(&dependent).await, load("{}").await]).expect_err("the wrong order");
    assert!(matches!(error, LoadError::Dependency { .. }), "{error:?}");
    let installed = Installed::new(vec![load("{}").await, load(&dependent).await]).expect("the right order");
    assert!(installed.get(&ExtensionUri::from(DEPENDENT_URI)).is_some());
}

#[tokio::test]
async fn a_required_extension_cannot_have_an_optional_dependency() {
    let runtime = runtime();
    let load = async |installation| test_extension(&runtime, installation).await;
    let skipped = load(Installation { on_failure: OnFailure::Skip, ..with_parameters("{}") }).await;
    let dependent = format!(r#"{{"uri": "{DEPENDENT_URI}", "depends_on": ["https://annex.example/test/v1"]}}"#);
    let required = load(Installation { required: true, ..with_parameters(&dependent) }).await;
    let error = Installed::new(vec![Arc::clone(&skipped), required]).expect_err("a refusal");
    assert!(matches!(error, LoadError::SkippedDependency { .. }), "{error:?}");
    Installed::new(vec![skipped, load(with_parameters(&dependent)).await]).expect("nobody requires it");
}

#[tokio::test]
async fn extensions_that_depend_on_one_another_are_refused_and_the_ring_is_named() {
    let runtime = runtime();
    let load = async |name: &str, needs: &str| {
        let parameters = format!(r#"{{"uri": "https://annex.example/{name}", "depends_on": [{needs}]}}"#);
        let loaded = runtime.load(component(annex_components::TEST_EXTENSION), with_parameters(&parameters)).await;
        loaded.expect("the test extension loads")
    };
    // `d` depends on the circle and does not belong to it.
    let loaded = [
        load("d", r#""https://annex.example/a""#).await,
        load("a", r#""https://annex.example/b""#).await,
        load("b", r#""https://annex.example/free", "https://annex.example/c""#).await,
        load("c", r#""https://annex.example/a""#).await,
        load("free", "").await,
    ];
    let error = Installed::new(loaded).expect_err("a ring").to_string();
    let ring = ["a", "b", "c", "a"].map(|name| format!("https://annex.example/{name}")).join(" needs ");
    assert!(error.contains(&ring) && !error.contains("/d"), "{error}");

    let own = load("a", r#""https://annex.example/a""#).await;
    let error = Installed::new([own]).expect_err("a ring of one").to_string();
    assert!(error.contains("https://annex.example/a needs https://annex.example/a"), "{error}");
}

#[tokio::test]
async fn an_extension_shows_its_last_log_lines() {
    let extension = test_extension(&runtime(), installation()).await;
    Turn::commanding("\"log-flood 3\"").chain(std::slice::from_ref(&extension)).await;
    let lines: Vec<_> = extension.log().into_iter().map(|line| format!("{} {}", line.level, line.message)).collect();
    assert_eq!(lines, ["info line 0", "info line 1", "info line 2"]);
}
