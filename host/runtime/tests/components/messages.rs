//! The hook `message`: its input, and allowed and forbidden rewrites.

use std::sync::Arc;

use annex_protocol::{A2aError, Part};
use annex_runtime::{Extension, Fault, Grants, Hook, HookError, Installation, OnFailure};

use crate::support::{Turn, installation, runtime, test_extension};

async fn rewriting() -> Arc<Extension> {
    let grants = Grants { rewrite_message: true, ..Grants::default() };
    test_extension(&runtime(), Installation { grants, ..installation() }).await
}

/// The parts of the message after the way in, as JSON; `None` if they were not rewritten.
async fn parts(extension: &Arc<Extension>, turn: &Turn) -> Option<String> {
    let entered = turn.enter(std::slice::from_ref(extension)).await.expect("the turn starts");
    entered.parts.map(|parts: Vec<Part>| serde_json::to_string(&parts).expect("parts are JSON"))
}

#[tokio::test]
async fn a_message_is_unchanged_unless_it_is_rewritten() {
    let extension = rewriting().await;
    assert_eq!(parts(&extension, &Turn::with("{}")).await, None);
    let rewritten = parts(&extension, &Turn::commanding(r#"{"check":"rewrite"}"#)).await;
    assert_eq!(rewritten.as_deref(), Some(r#"[{"text":"rewritten"}]"#));
}

#[tokio::test]
async fn the_message_is_shown_without_the_metadata_of_others() {
    let extension = rewriting().await;
    let turn = Turn::with(r#"{"other/key":"private","test/command":{"check":"seen"}}"#);
    let shown = parts(&extension, &turn).await.expect("it shows what it saw");
    assert!(shown.contains("Hello") && shown.contains("test/command"), "{shown}");
    assert!(!shown.contains("private") && !shown.contains("other/key"), "{shown}");
}

#[tokio::test]
async fn a_later_extension_sees_the_message_as_rewritten_by_an_earlier_one() {
    let runtime = runtime();
    let mut extensions = Vec::new();
    for (uri, check) in [("urn:a", "rewrite"), ("urn:b", "seen")] {
        let parameters = format!(r#"{{"uri":"{uri}","behaviour":{{"check":"{check}"}}}}"#);
        let grants = Grants { rewrite_message: true, ..Grants::default() };
        let parameters = annex_protocol::JsonObject::parse(&parameters).expect("an object");
        extensions.push(test_extension(&runtime, Installation { grants, parameters, ..installation() }).await);
    }
    let entered = Turn::with("{}").enter(&extensions).await.expect("the turn starts");
    let shown = serde_json::to_string(&entered.parts.expect("rewritten")).expect("JSON");
    assert!(shown.contains("rewritten") && !shown.contains("Hello"), "{shown}");
}

#[tokio::test]
async fn rewriting_takes_the_grant() {
    let extension = test_extension(&runtime(), installation()).await;
    match Turn::commanding(r#"{"check":"rewrite"}"#).fault(&[extension]).await {
        Fault::BrokeContract { hook: Hook::Message, reason, .. } => assert!(reason.contains("rewrite-message")),
        other => unreachable!("{other}"),
    }
}

#[tokio::test]
async fn a_rewriting_that_makes_no_message_is_the_extensions_fault() {
    for (check, expected) in [
        ("no-part", "part 99"),
        ("empty", "no part"),
        ("bad-json", "not a Part"),
        ("deep-json", "not a Part"),
        ("odd-json 0", "data: the text has half of a surrogate pair"),
        ("odd-json 1", "data: the number is beyond the range of a double"),
        ("odd-json 3", "data.k: the key stands twice in its object"),
    ] {
        let extension = rewriting().await;
        let turn = Turn::commanding(&format!(r#"{{"check":"{check}"}}"#));
        match turn.fault(&[extension]).await {
            Fault::BrokeContract { hook: Hook::Message, reason, .. } => {
                assert!(reason.contains(expected), "{check}: {reason}");
            }
            other => unreachable!("{check}: {other}"),
        }
    }
}

#[tokio::test]
async fn a_message_that_breaks_the_profile_is_refused_with_violations() {
    let extension = test_extension(&runtime(), installation()).await;
    let refusal = |check: &str| Turn::commanding(&format!(r#"{{"check":"{check}"}}"#));
    match refusal("violation").refusal(&[Arc::clone(&extension)]).await {
        HookError::Refused(A2aError::InvalidParams { violations }) => {
            assert_eq!(violations[0].field, "/message/parts/0");
        }
        other => unreachable!("{other}"),
    }
    match refusal("reject").refusal(&[Arc::clone(&extension)]).await {
        HookError::Refused(A2aError::Extension { code, .. }) => assert_eq!(code, -32_950),
        other => unreachable!("{other}"),
    }
    for check in ["forged-code", "empty-violations"] {
        let fault = refusal(check).fault(&[Arc::clone(&extension)]).await;
        assert!(matches!(fault, Fault::BrokeContract { hook: Hook::Message, .. }), "{check}: {fault}");
    }
}

#[tokio::test]
async fn a_message_beyond_the_input_limit_is_refused_without_a_call() {
    let mut installation = installation();
    installation.limits.input = 100;
    let extension = test_extension(&runtime(), installation).await;
    let turn = Turn::with(&format!(r#"{{"test/command":"{}"}}"#, "x".repeat(100)));
    match turn.refusal(&[extension]).await {
        HookError::Refused(error @ A2aError::InvalidParams { .. }) => {
            assert!(error.to_string().contains("at most 100 bytes"), "{error}");
        }
        other => unreachable!("{other}"),
    }
}

#[tokio::test]
async fn rewrites_of_a_skipped_extension_are_discarded() {
    let grants = Grants { rewrite_message: true, ..Grants::default() };
    let skipped = Installation { grants, on_failure: OnFailure::Skip, ..installation() };
    let extension = test_extension(&runtime(), skipped).await;
    let turn = Turn::commanding(r#"{"check":"rewrite","validate":"trap"}"#);
    let entered = turn.enter(&[extension]).await.expect("the turn starts");
    assert!(entered.parts.is_none() && entered.chain.active().next().is_none());
}

#[tokio::test]
async fn a_hook_that_does_not_return_is_stopped() {
    let runtime = runtime();
    for check in ["trap", "loop", "panic", "memory-bomb", "stack-overflow", "big-result 2000000"] {
        let extension = test_extension(&runtime, installation()).await;
        let fault = Turn::commanding(&format!(r#"{{"check":"{check}"}}"#)).fault(&[extension]).await;
        assert!(fault.to_string().contains("in message"), "{check}: {fault}");
    }
}
