//! The hook `client`: its input, and what it may add.

use std::sync::Arc;

use annex_protocol::{A2aError, AgentExtension, Json, JsonObject, Message, Metadata, StreamResponse, Task};
use annex_runtime::{Addition, ClientCall, ClientCallRequest, Extension, Fault, Hook, HookError, Installation};

use crate::support::{artifact, installation, runtime, test_extension};

async fn before(extension: &Arc<Extension>, input: &str) -> Result<(ClientCall, Addition), HookError> {
    let mut message = Message::user_text("Hello");
    message.metadata = Metadata::parse(r#"{"other/key":"private"}"#).expect("an object");
    let declaration = AgentExtension { uri: extension.uri().clone(), ..AgentExtension::default() };
    let input = Json::parse(input.to_owned()).expect("JSON");
    let call = ClientCallRequest {
        operation: "SendMessage",
        agent: "http://a.example/card.json",
        declaration: Some(&declaration),
        input: Some(&input),
        message: Some(&message),
    };
    ClientCall::start(extension, &call).await
}

#[tokio::test]
async fn the_client_hook_adds_its_uri_and_metadata_to_a_call() {
    let extension = test_extension(&runtime(), installation()).await;
    let (_, addition) = before(&extension, "{}").await.expect("it adds");
    let seen = addition.message.get("test/command").expect("an entry").get().to_owned();
    assert!(addition.activate && addition.request.is_empty());
    for expected in ["SendMessage", "http://a.example/card.json", extension.uri().as_str(), "Hello"] {
        assert!(seen.contains(expected), "{expected}: {seen}");
    }
    assert!(!seen.contains("private"), "{seen}");
    let (_, addition) = before(&extension, r#"{"command":"request"}"#).await.expect("it adds");
    assert!(addition.message.is_empty() && addition.request.contains_key("test/command"));
    let (_, addition) = before(&extension, r#"{"command":"none"}"#).await.expect("it adds nothing");
    assert!(!addition.activate && addition.message.is_empty());
}

#[tokio::test]
async fn the_client_hook_may_refuse_a_call() {
    let extension = test_extension(&runtime(), installation()).await;
    match before(&extension, r#"{"command":"violation"}"#).await.err() {
        Some(HookError::Refused(A2aError::InvalidParams { violations })) => assert_eq!(violations[0].field, "/command"),
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test]
async fn adding_metadata_of_another_owner_is_a_fault_of_the_client_hook() {
    let runtime = runtime();
    for command in ["foreign-key", "bad-json", "forged-code", "trap", "loop", "big-result 2000000"] {
        let extension = test_extension(&runtime, installation()).await;
        let error = before(&extension, &format!(r#"{{"command":"{command}"}}"#)).await.err();
        assert!(matches!(error, Some(HookError::Fault(_))), "{command}: {error:?}");
    }
}

#[tokio::test]
async fn the_client_hook_reads_returned_metadata_under_its_own_keys() {
    let extension = test_extension(&runtime(), installation()).await;
    let (mut call, _) = before(&extension, "{}").await.expect("it adds");
    let mut update = artifact();
    update.artifact.metadata = Metadata::parse(r#"{"other/key":1,"test/response":2}"#).expect("an object");
    let task = Task { artifacts: vec![update.artifact.clone()], ..Task::default() };
    for event in [StreamResponse::ArtifactUpdate(update), StreamResponse::Task(task)] {
        let told = call.after(&event, true).await.expect("no fault").expect("something for the program");
        assert_eq!(told.get(), r#"{"active":true,"keys":["test/response"]}"#);
    }
}

#[tokio::test]
async fn activation_is_seen_on_artifacts_if_the_agent_echoes_no_header() {
    let extension = test_extension(&runtime(), installation()).await;
    let (mut call, _) = before(&extension, "{}").await.expect("it adds");
    for (named, expected) in [(false, r#"{"active":false,"keys":[]}"#), (true, r#"{"active":true,"keys":[]}"#)] {
        let mut update = artifact();
        update.artifact.extensions = if named { vec![extension.uri().clone()] } else { Vec::new() };
        let told = call.after(&StreamResponse::ArtifactUpdate(update), false).await.expect("no fault");
        assert_eq!(told.expect("something for the program").get(), expected);
    }
}

#[tokio::test]
async fn a_fault_on_the_way_back_is_reported_once_and_ends_the_hook() {
    for command in ["error", "bad-json", "trap"] {
        let parameters = JsonObject::parse(&format!(r#"{{"behaviour":{{"after":"{command}"}}}}"#));
        let installation = Installation { parameters: parameters.expect("an object"), ..installation() };
        let extension = test_extension(&runtime(), installation).await;
        let (mut call, _) = before(&extension, "{}").await.expect("it adds");
        let event = StreamResponse::ArtifactUpdate(artifact());
        let fault: Fault = call.after(&event, true).await.expect_err("a fault");
        assert!(fault.to_string().contains(Hook::Client.name()), "{fault}");
        assert!(matches!(call.after(&event, true).await, Ok(None)));
    }
}
