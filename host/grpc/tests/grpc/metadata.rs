//! The service parameters in the metadata of a call, and the active extensions in the metadata of its answer.

use annex_grpc::pb::{GetTaskRequest, SubscribeToTaskRequest};
use annex_protocol::ExtensionUri;
use tonic::Request;
use tonic::metadata::MetadataValue;

use crate::support::{Script, start};
use crate::tasks::TASK_JSON;

fn get_task() -> GetTaskRequest {
    GetTaskRequest { id: "t-1".into(), ..GetTaskRequest::default() }
}

#[tokio::test]
async fn version_extensions_and_ascii_metadata_reach_the_operations() {
    let (mut client, script) = start(Script::answering(TASK_JSON)).await;
    let mut request = Request::new(get_task());
    let metadata = request.metadata_mut();
    metadata.insert("a2a-version", "1.0".parse().unwrap());
    metadata.append("a2a-extensions", "urn:b, urn:a".parse().unwrap());
    metadata.append("a2a-extensions", "urn:b,urn:c".parse().unwrap());
    metadata.insert("authorization", "Bearer k3y".parse().unwrap());
    metadata.insert_bin("trace-bin", MetadataValue::from_bytes(b"\0\x01"));
    client.get_task(request).await.unwrap();
    let parameters = script.call().parameters;
    assert_eq!(parameters.version.as_deref(), Some("1.0"));
    assert_eq!(parameters.extensions, ["urn:b", "urn:a", "urn:c"].map(ExtensionUri::from));
    assert_eq!(parameters.headers["authorization"], "Bearer k3y");
    assert!(!parameters.headers.contains_key("trace-bin"));
    assert!(!format!("{parameters:?}").contains("k3y"));
}

#[tokio::test]
async fn absent_parameters_are_absent() {
    let (mut client, script) = start(Script::answering(TASK_JSON)).await;
    let response = client.get_task(get_task()).await.unwrap();
    assert!(!response.metadata().contains_key("a2a-extensions"));
    let parameters = script.call().parameters;
    assert_eq!((parameters.version, parameters.extensions), (None, vec![]));
}

#[tokio::test]
async fn active_extensions_come_back_in_the_initial_metadata() {
    let (mut client, _script) = start(Script::answering(TASK_JSON).with_active(&["urn:a", "urn:b"])).await;
    let response = client.get_task(get_task()).await.unwrap();
    assert_eq!(response.metadata().get("a2a-extensions").unwrap(), "urn:a,urn:b");

    let (mut client, _script) = start(Script::streaming(vec![]).with_active(&["urn:a"])).await;
    let request = SubscribeToTaskRequest { id: "t-1".into(), ..SubscribeToTaskRequest::default() };
    let response = client.subscribe_to_task(request).await.unwrap();
    assert_eq!(response.metadata().get("a2a-extensions").unwrap(), "urn:a");
}
