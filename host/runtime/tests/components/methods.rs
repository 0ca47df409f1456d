//! Methods of extensions: declarations, parameters and answers.

use std::sync::Arc;

use annex_protocol::{A2aError, Json, JsonObject, Message, Metadata};
use annex_runtime::{
    Extension, Fault, Hook, HookError, Installation, Installed, LoadError, MethodAnswer, MethodCall, Runtime,
};

use crate::support::{component, installation, outside_of_turns, refused, runtime, test_extension};

/// The test extension with these methods.
fn with_methods(methods: &str) -> Installation {
    let parameters = JsonObject::parse(&format!(r#"{{"methods":{methods}}}"#)).expect("an object");
    Installation { parameters, ..installation() }
}

fn parameters(parameters: &str) -> Installation {
    Installation { parameters: JsonObject::parse(parameters).expect("an object"), ..installation() }
}

async fn call(extension: &Arc<Extension>, name: &str, params: &str) -> Result<MethodAnswer, HookError> {
    let requested = [extension.uri().clone()];
    let (message, metadata) = (Message::default(), Metadata::new());
    let request = outside_of_turns(name, &requested, (&message, &metadata));
    MethodCall::start(extension, &request, &Json::parse(params.to_owned()).expect("JSON")).await
}

async fn value(extension: &Arc<Extension>, name: &str, params: &str) -> Result<String, HookError> {
    match call(extension, name, params).await? {
        MethodAnswer::Value(value) => Ok(value.get().to_owned()),
        MethodAnswer::Results(_) => unreachable!("{name} streams"),
    }
}

/// The results of the stream, and the error that ends it.
async fn results(extension: &Arc<Extension>) -> (Vec<String>, Option<HookError>) {
    let Ok(MethodAnswer::Results(mut call)) = call(extension, "test/stream", "{}").await else {
        unreachable!("it streams");
    };
    let mut results = Vec::new();
    loop {
        match call.next().await {
            Ok(Some(result)) => results.push(result.get().to_owned()),
            Ok(None) => return (results, None),
            Err(error) => {
                assert!(matches!(call.next().await, Ok(None)), "nothing comes after an error");
                return (results, Some(error));
            }
        }
    }
}

#[tokio::test]
async fn a_method_gets_its_parameters_as_they_were_sent() {
    let extension = test_extension(&runtime(), with_methods(r#"["test/echo"]"#)).await;
    let answered = value(&extension, "test/echo", r#"{"b":1.0,"a":9007199254740993}"#).await.expect("a value");
    assert_eq!(answered, r#"{"operation":"test/echo","params":{"b":1.0,"a":9007199254740993}}"#);
}

#[tokio::test]
async fn a_method_that_is_not_declared_does_not_exist() {
    let extension = test_extension(&runtime(), with_methods(r#"["test/echo"]"#)).await;
    let error = value(&extension, "test/other", "{}").await.expect_err("no such method");
    assert!(matches!(error, HookError::Refused(A2aError::MethodNotFound { .. })), "{error}");
}

#[tokio::test]
async fn parameters_that_violate_the_schema_never_reach_the_guest() {
    let extension = test_extension(&runtime(), with_methods(r#"["test/echo"]"#)).await;
    match value(&extension, "test/echo", r#"{"command":1}"#).await {
        Err(HookError::Refused(A2aError::InvalidParams { violations })) => assert_eq!(violations[0].field, "/command"),
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test]
async fn a_method_may_refuse_in_its_own_words_and_codes() {
    let extension = test_extension(&runtime(), with_methods(r#"["test/echo"]"#)).await;
    match value(&extension, "test/echo", r#"{"command":"reject"}"#).await {
        Err(HookError::Refused(A2aError::Extension { code, data, .. })) => {
            assert_eq!((code, data.is_some()), (-32_950, true));
        }
        other => unreachable!("{other:?}"),
    }
    match value(&extension, "test/echo", r#"{"command":"violation"}"#).await {
        Err(HookError::Refused(A2aError::InvalidParams { violations })) => assert_eq!(violations[0].field, "/command"),
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test]
async fn what_a_method_may_not_answer_is_its_fault() {
    let runtime = runtime();
    for command in [
        "forged-code",
        "empty-violations",
        "wrong-result",
        "bad-json",
        "deep-json",
        "odd-json 0",
        "odd-json 2",
        "odd-json 3",
        "results",
    ] {
        let extension = test_extension(&runtime, with_methods(r#"["test/echo"]"#)).await;
        match value_or_fault(&extension, command).await {
            Fault::BrokeContract { hook: Hook::Method, .. } => {}
            other => unreachable!("{command}: {other}"),
        }
    }
    for command in ["trap", "loop", "memory-bomb", "big-result 2000000"] {
        let extension = test_extension(&runtime, with_methods(r#"["test/echo"]"#)).await;
        value_or_fault(&extension, command).await;
    }
}

async fn value_or_fault(extension: &Arc<Extension>, command: &str) -> Fault {
    match call(extension, "test/echo", &format!(r#"{{"command":"{command}"}}"#)).await {
        Err(HookError::Fault(fault)) => fault,
        Err(HookError::Refused(error)) => unreachable!("{command}: {error}"),
        Ok(_) => unreachable!("{command} is answered"),
    }
}

#[tokio::test]
async fn results_come_one_by_one_until_the_stream_ends() {
    let extension = test_extension(&runtime(), with_methods(r#"["test/stream"]"#)).await;
    let (seen, error) = results(&extension).await;
    assert_eq!((seen.join(","), error.is_none()), ("0,1,2".to_owned(), true));
}

#[tokio::test]
async fn a_stream_ends_with_the_error_that_the_extension_or_its_fault_makes() {
    let runtime = runtime();
    for (next, is_refused) in [("reject", true), ("forged-code", false), ("wrong-result", false), ("trap", false)] {
        let told = format!(r#"{{"methods":["test/stream"],"behaviour":{{"next":"{next}"}}}}"#);
        let extension = test_extension(&runtime, parameters(&told)).await;
        let (seen, error) = results(&extension).await;
        let error = error.expect("an error");
        assert_eq!((seen.len(), matches!(error, HookError::Refused(_))), (3, is_refused), "{next}: {error}");
    }
}

#[tokio::test]
async fn a_stream_without_end_is_ended_by_the_limits_of_the_turn() {
    let mut endless = parameters(r#"{"methods":["test/stream"],"behaviour":{"next":"endless"}}"#);
    endless.limits.turn_cpu = std::time::Duration::from_millis(20);
    let extension = test_extension(&runtime(), endless).await;
    let (seen, error) = results(&extension).await;
    let error = error.expect("an error");
    assert!(seen.len() > 3 && matches!(error, HookError::Fault(Fault::LimitReached { .. })), "{error}");
}

/// Why the test extension with these methods does not load.
async fn refusal(methods: &str) -> String {
    refused(component(annex_components::TEST_EXTENSION), with_methods(methods)).await.to_string()
}

#[tokio::test]
async fn a_method_cannot_take_the_name_of_a_core_method() {
    for name in ["SendMessage", "gettask", "message/send", "tasks/get", "rpc.list"] {
        let reason = refusal(&format!(r#"["{name}"]"#)).await;
        assert!(reason.contains(name) && reason.contains("core method"), "{reason}");
    }
}

#[tokio::test]
async fn names_that_are_no_paths_and_names_that_come_twice_are_refused() {
    for name in ["", "/search", "search/", "a//b", "../admin", "a b", "a?b", "ä"] {
        let reason = refusal(&format!(r#"["{name}"]"#)).await;
        assert!(reason.contains("not made of words"), "{name}: {reason}");
    }
    let reason = refusal(r#"["a","a"]"#).await;
    assert!(reason.contains("twice"), "{reason}");
}

#[tokio::test]
async fn schemas_that_cannot_be_used_are_refused_at_load() {
    let installation = parameters(r#"{"methods":["a"],"behaviour":{"methods":"bad-json"}}"#);
    let reason = refused(component(annex_components::TEST_EXTENSION), installation).await.to_string();
    assert!(reason.contains("parameter schema of the method"), "{reason}");
}

async fn second(runtime: &Runtime, uri: &str, methods: &str) -> Arc<Extension> {
    test_extension(runtime, parameters(&format!(r#"{{"uri":"{uri}","methods":{methods}}}"#))).await
}

#[tokio::test]
async fn two_extensions_cannot_have_one_method_or_be_called_the_same() {
    let runtime = runtime();
    let first = second(&runtime, "urn:a", r#"["m"]"#).await;
    let same = second(&runtime, "urn:b", r#"["m"]"#).await;
    let error = Installed::new([Arc::clone(&first), same]).expect_err("one method, two extensions");
    assert!(matches!(error, LoadError::SharedMethod { .. }), "{error}");
    let other = second(&runtime, "urn:b", r#"["n"]"#).await;
    let error = Installed::new([Arc::clone(&first), other]).expect_err("one path, two extensions");
    assert!(matches!(error, LoadError::SharedPath { .. }), "{error}");
    let none = second(&runtime, "urn:c", "[]").await;
    let installed = Installed::new([first, none]).expect("they fit together");
    assert_eq!(installed.method("m").expect("a method").0.uri().as_str(), "urn:a");
    assert!(installed.method("n").is_none());
}
