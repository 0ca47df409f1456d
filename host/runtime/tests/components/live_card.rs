//! The hook `live-card`: an entry on the card that the extension declares again.

use std::sync::Arc;
use std::time::Duration;

use annex_protocol::JsonObject;
use annex_runtime::{
    CallerGrant, Extension, Fault, Grants, Installation, LimitReached, LiveCardGrant, LoadError, Quota, Runtime,
};
use tokio::time::Instant;

use crate::support::{component, installation, runtime};

/// The settings of an extension whose hook `live-card` executes `live`, given as JSON.
fn declaring(live: &str) -> Installation {
    let grants = Grants {
        agent_steps: true,
        steering: true,
        caller: Some(CallerGrant { principal: true, ..CallerGrant::default() }),
        task_metadata: true,
        rewrite_answer: true,
        answer: true,
        reads: true,
        live_card: Some(LiveCardGrant { at_least_seconds: 2 }),
        keyvalue: Some(Quota::default()),
        ..Grants::default()
    };
    let parameters = JsonObject::parse(&format!(r#"{{"live":{live}}}"#)).expect("a JSON object");
    Installation { grants, parameters, ..installation() }
}

async fn load(runtime: &Runtime, live: &str) -> Result<Arc<Extension>, LoadError> {
    let loaded = runtime.load(component(annex_components::TEST_STEERING), declaring(live)).await;
    loaded.map(Arc::new)
}

async fn loaded(runtime: &Runtime, live: &str) -> Arc<Extension> {
    load(runtime, live).await.expect("the extension loads")
}

/// The number on the entry of a counting extension.
fn number(params: Option<&JsonObject>) -> Option<&str> {
    params?.get("n").map(|number| number.get())
}

#[tokio::test]
async fn an_entry_is_declared_with_the_lasting_keys_and_stays_until_it_is_shown() {
    let extension = loaded(&runtime(), r#""counter""#).await;
    let shown = || number(extension.card().params.as_ref()).map(str::to_owned);
    assert_eq!(shown().as_deref(), Some("1"));
    assert!(extension.next_declaration().is_some());
    let first = extension.declare_again().await.expect("a declaration");
    assert_eq!(number(first.entry.params.as_ref()), Some("1"), "the lasting keys did not count the one at load");
    let declared = extension.declare_again().await.expect("a declaration");
    assert_eq!(number(declared.entry.params.as_ref()), Some("2"));
    assert_eq!(shown().as_deref(), Some("1"), "it is not shown yet");
    let now = Instant::now();
    extension.show_live(&declared, now);
    assert_eq!(shown().as_deref(), Some("2"));
    // The grant says at least two seconds, the extension says one.
    assert_eq!(extension.next_declaration().map(|due| due - now), Some(Duration::from_secs(2)));
    let last = extension.last_declaration().expect("a declaration");
    assert_eq!((last.declared_at, last.seconds, last.error), (declared.declared_at, 1, None));
}

#[tokio::test]
async fn an_entry_without_a_time_holds_until_the_next_load() {
    let entry = r#"{"description":"Live.","params":{"a":[1]},"seconds":0}"#;
    let extension = loaded(&runtime(), entry).await;
    // The extension may use keys, so it is asked once with its lasting keys.
    let declared = extension.declare_again().await.expect("a declaration");
    extension.show_live(&declared, Instant::now());
    assert_eq!(extension.next_declaration(), None);
    let card = extension.card();
    assert!(card.description.starts_with("Live."), "{}", card.description);
    assert_eq!(card.params.as_ref().map(JsonObject::to_json_string).as_deref(), Some(r#"{"a":[1]}"#));
}

#[tokio::test]
async fn a_declaration_that_fails_at_load_stops_the_load() {
    let runtime = runtime();
    for command in ["trap", "loop", "bad-json", "not-an-object"] {
        let error = load(&runtime, &format!("{command:?}")).await.expect_err(command);
        assert!(matches!(error, LoadError::SelfTest(_)), "{command}: {error:?}");
    }
    let error = load(&runtime, r#""error""#).await.expect_err("an error");
    assert!(matches!(error, LoadError::Description { .. }), "{error:?}");
    for command in ["big 40000", "big-description 40000"] {
        let error = load(&runtime, &format!("{command:?}")).await.expect_err(command);
        assert!(matches!(error, LoadError::CardEntry { .. }), "{command}: {error:?}");
    }
}

#[tokio::test]
async fn a_fault_of_a_declaration_leaves_the_entry_and_counts_like_one_of_a_turn() {
    for (command, failures) in [("trap", 1), ("loop", 1), ("bad-json", 1), ("big", 1), ("error", 0)] {
        // The keys count the declarations, and the first with the lasting keys is good, as is the one at load.
        let extension = loaded(&runtime(), &format!(r#""{command}-after 1""#)).await;
        let good = extension.declare_again().await.expect(command);
        extension.show_live(&good, Instant::now());
        let before = extension.card();
        let fault = extension.declare_again().await.expect_err(command);
        match command {
            "trap" => assert!(matches!(fault, Fault::Trapped { .. }), "{fault:?}"),
            "loop" => assert!(matches!(fault, Fault::LimitReached { limit: LimitReached::Cpu, .. }), "{fault:?}"),
            "error" => assert!(matches!(fault, Fault::Failed { .. }), "{fault:?}"),
            _ => assert!(matches!(fault, Fault::BrokeContract { .. } | Fault::LimitReached { .. }), "{fault:?}"),
        }
        assert!(Arc::ptr_eq(&extension.card(), &before), "{command}");
        assert_eq!(extension.health().failures, failures, "{command}");
        let now = Instant::now();
        assert!(extension.keeps_entry("first", None, now), "{command}");
        assert!(!extension.keeps_entry("second", None, now), "only the first is news");
        assert_eq!(extension.next_declaration().map(|due| due - now), Some(Duration::from_secs(2)), "{command}");
        let error = extension.last_declaration().and_then(|last| last.error).map(|(_, reason)| reason);
        assert_eq!(error.as_deref(), Some("second"));
    }
}

#[tokio::test]
async fn a_quarantined_extension_is_not_asked_for_its_entry() {
    let extension = loaded(&runtime(), r#""trap-after 1""#).await;
    assert!(extension.declare_again().await.is_ok());
    for _ in 0..5 {
        let fault = extension.declare_again().await.expect_err("a trap");
        assert!(matches!(fault, Fault::Trapped { .. }), "{fault:?}");
    }
    let fault = extension.declare_again().await.expect_err("a quarantine");
    assert!(matches!(fault, Fault::Quarantined { .. }), "{fault:?}");
}

#[tokio::test]
async fn an_extension_gets_no_lasting_keys_at_load() {
    let runtime = runtime();
    let tenant = || runtime.of_tenant("acme");
    let shown = |extension: &Extension| number(extension.card().params.as_ref()).map(str::to_owned);
    let serving = loaded(&tenant(), r#""counter""#).await;
    for expected in ["1", "2"] {
        let declared = serving.declare_again().await.expect("a declaration");
        assert_eq!(number(declared.entry.params.as_ref()), Some(expected));
    }
    // Each change of a tenant is tried in a runtime of its own, which knows nothing of the extensions that serve.
    for trial in [tenant(), tenant()] {
        let tried = loaded(&trial, r#""counter""#).await;
        assert_eq!(shown(&tried).as_deref(), Some("1"), "it reads no key of the extension that serves");
        let soon = Instant::now() + Duration::from_secs(1);
        assert!(tried.next_declaration().is_some_and(|due| due <= soon), "it is asked again if it is installed");
    }
    let declared = serving.declare_again().await.expect("a declaration");
    assert_eq!(number(declared.entry.params.as_ref()), Some("3"), "no trial has changed a key");
}

#[tokio::test]
async fn a_shadow_declares_its_entry_without_the_keys_of_the_extension() {
    let runtime = runtime();
    for _ in 0..2 {
        let shadow = loaded(&runtime.aside(), r#""counter""#).await;
        assert_eq!(number(shadow.card().params.as_ref()), Some("1"));
    }
    let extension = loaded(&runtime, r#""counter""#).await;
    assert_eq!(number(extension.card().params.as_ref()), Some("1"));
}
