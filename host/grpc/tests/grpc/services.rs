//! Health, reflection and unknown services.

use std::sync::Arc;

use annex_grpc::is_grpc;
use http::HeaderMap;
use prost::Message;
use prost_types::FileDescriptorProto;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;

use crate::support::{Script, channel};

const SERVICE: &str = "lf.a2a.v1.A2AService";

async fn health(script: Script, service: &str) -> Result<ServingStatus, Status> {
    let mut client = HealthClient::new(channel(Arc::new(script)).await);
    let request = HealthCheckRequest { service: service.to_owned() };
    client.check(request).await.map(|response| response.into_inner().status())
}

#[tokio::test]
async fn health_says_serving_and_stops_saying_so() {
    for service in ["", SERVICE] {
        assert_eq!(health(Script::answering("null"), service).await.unwrap(), ServingStatus::Serving);
        assert_eq!(health(Script::draining(), service).await.unwrap(), ServingStatus::NotServing);
    }
    let status = health(Script::answering("null"), "other").await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test]
async fn health_is_not_watched() {
    let mut client = HealthClient::new(channel(Arc::new(Script::answering("null"))).await);
    let status = client.watch(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

async fn reflect(request: MessageRequest) -> MessageResponse {
    let mut client = ServerReflectionClient::new(channel(Arc::new(Script::answering("null"))).await);
    let request = ServerReflectionRequest { message_request: Some(request), ..ServerReflectionRequest::default() };
    let stream = client.server_reflection_info(futures::stream::iter([request])).await.unwrap();
    let response: ServerReflectionResponse = stream.into_inner().message().await.unwrap().unwrap();
    response.message_response.unwrap()
}

#[tokio::test]
async fn reflection_lists_the_service() {
    let response = reflect(MessageRequest::ListServices(String::new())).await;
    let MessageResponse::ListServicesResponse(services) = response else { panic!("{response:?}") };
    let names: Vec<_> = services.service.into_iter().map(|service| service.name).collect();
    for name in [SERVICE, "grpc.health.v1.Health"] {
        assert!(names.iter().any(|listed| listed == name), "{names:?}");
    }
}

#[tokio::test]
async fn reflection_describes_the_service() {
    let response = reflect(MessageRequest::FileContainingSymbol(SERVICE.to_owned())).await;
    let MessageResponse::FileDescriptorResponse(files) = response else { panic!("{response:?}") };
    let files = files.file_descriptor_proto.iter().map(|file| FileDescriptorProto::decode(file.as_slice()).unwrap());
    let file = files.into_iter().find(|file| file.package() == "lf.a2a.v1").unwrap();
    assert_eq!(file.service[0].method.len(), 11);
}

#[tokio::test]
async fn reflection_speaks_its_older_version_too() {
    use v1alpha::server_reflection_request::MessageRequest;

    let channel = channel(Arc::new(Script::answering("null"))).await;
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    let request = v1alpha::ServerReflectionRequest {
        message_request: Some(MessageRequest::FileContainingSymbol(SERVICE.to_owned())),
        ..v1alpha::ServerReflectionRequest::default()
    };
    let stream = client.server_reflection_info(futures::stream::iter([request])).await.unwrap();
    assert!(stream.into_inner().message().await.unwrap().unwrap().message_response.is_some());
}

async fn call(channel: Channel, path: &'static str) -> Status {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let path = http::uri::PathAndQuery::from_static(path);
    client.unary(tonic::Request::new(()), path, codec).await.unwrap_err()
}

#[tokio::test]
async fn unknown_methods_and_services_are_unimplemented() {
    let channel = channel(Arc::new(Script::answering("null"))).await;
    for path in ["/lf.a2a.v1.A2AService/Nothing", "/a2a.v1.A2AService/SendMessage", "/nothing"] {
        assert_eq!(call(channel.clone(), path).await.code(), Code::Unimplemented, "{path}");
    }
}

#[test]
fn grpc_is_known_by_its_content_type() {
    let is_grpc_type = |content_type: &str| {
        let headers: HeaderMap = [(http::header::CONTENT_TYPE, content_type.parse().unwrap())].into_iter().collect();
        is_grpc(&headers)
    };
    let grpc = ["application/grpc", "application/grpc+proto", "application/grpc;x=y", "Application/GRPC+proto"];
    assert!(grpc.into_iter().all(is_grpc_type));
    assert!(!["application/json", "application/grpc-web", ""].into_iter().any(is_grpc_type));
    assert!(!is_grpc(&HeaderMap::new()));
}
