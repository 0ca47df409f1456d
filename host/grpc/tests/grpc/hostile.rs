//! Invalid requests, which must not reach the operations.

use std::sync::Arc;

use annex_grpc::pb::{
    GetTaskRequest, ListTasksRequest, Message, Part, SendMessageRequest, TaskPushNotificationConfig, part,
};
use annex_grpc::{Limits, routes};
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Timestamp, Value};
use tonic::{Code, Response, Status};
use tonic_types::StatusExt;

use crate::support::{MAX_MESSAGE_BYTES, Script, channel, connected, object, sending, start, text_part, value};

fn fields(status: &Status) -> Vec<String> {
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert_eq!(status.get_details_error_info().unwrap().reason, "INVALID_PARAMS");
    status.get_details_bad_request().unwrap().field_violations.into_iter().map(|violation| violation.field).collect()
}

async fn send(request: SendMessageRequest) -> Result<Response<annex_grpc::pb::SendMessageResponse>, Status> {
    let (mut client, script) = start(Script::answering(r#"{"message":{}}"#)).await;
    let result = client.send_message(request).await;
    if result.is_err() {
        script.check_not_called();
    }
    result
}

async fn check_send(request: SendMessageRequest, expected: &[&str]) {
    assert_eq!(fields(&send(request).await.unwrap_err()), expected);
}

async fn check_list(request: ListTasksRequest, expected: &[&str]) {
    let (mut client, script) = start(Script::answering("{}")).await;
    assert_eq!(fields(&client.list_tasks(request).await.unwrap_err()), expected);
    script.check_not_called();
}

fn data(data: Value) -> Part {
    Part { content: Some(part::Content::Data(data)), ..Part::default() }
}

#[tokio::test]
async fn a_part_without_content_is_named() {
    let mut request = sending(text_part("x"));
    request.message.as_mut().unwrap().parts.push(Part::default());
    check_send(request, &["message.parts[1]"]).await;
}

#[tokio::test]
async fn missing_fields_are_named_all_at_once() {
    check_send(SendMessageRequest::default(), &["message"]).await;
    let message = Some(Message { context_id: "c".into(), ..Message::default() });
    let request = SendMessageRequest { message, ..SendMessageRequest::default() };
    check_send(request, &["message.messageId", "message.role", "message.parts"]).await;

    let (mut client, script) = start(Script::answering("{}")).await;
    let request = GetTaskRequest { history_length: Some(-1), ..GetTaskRequest::default() };
    assert_eq!(fields(&client.get_task(request).await.unwrap_err()), ["id", "historyLength"]);
    let request = TaskPushNotificationConfig::default();
    let status = client.create_task_push_notification_config(request).await.unwrap_err();
    assert_eq!(fields(&status), ["taskId", "url"]);
    script.check_not_called();
}

#[tokio::test]
async fn unknown_enum_values_are_named() {
    for role in [3, -1, i32::MAX] {
        let mut request = sending(text_part("x"));
        request.message.as_mut().unwrap().role = role;
        check_send(request, &["message.role"]).await;
    }
    check_list(ListTasksRequest { status: 9, ..ListTasksRequest::default() }, &["status"]).await;
}

#[tokio::test]
async fn impossible_times_are_named() {
    for (seconds, nanos) in [(i64::MAX, 0), (i64::MIN, 0), (0, -1), (0, 1_000_000_000)] {
        let time = Some(Timestamp { seconds, nanos });
        let request = ListTasksRequest { status_timestamp_after: time, ..ListTasksRequest::default() };
        check_list(request, &["statusTimestampAfter"]).await;
    }
}

#[tokio::test]
async fn values_that_json_does_not_have_are_named() {
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let list = ListValue { values: vec![value(Kind::NumberValue(number))] };
        check_send(sending(data(value(Kind::ListValue(list)))), &["message.parts[0].data"]).await;
    }
    let mut request = sending(text_part("x"));
    request.message.as_mut().unwrap().metadata = Some(object([("k", Value { kind: None })]));
    check_send(request, &["message.metadata.k"]).await;
    let mut request = sending(text_part("x"));
    request.metadata = Some(object([("k", Value { kind: None })]));
    check_send(request, &["metadata.k"]).await;
}

fn nested_objects(depth: usize) -> Value {
    let empty = value(Kind::StructValue(Struct::default()));
    (1..depth).fold(empty, |inner, _| value(Kind::StructValue(object([("k", inner)]))))
}

fn nested_lists(depth: usize) -> Value {
    let empty = value(Kind::ListValue(ListValue::default()));
    (1..depth).fold(empty, |inner, _| value(Kind::ListValue(ListValue { values: vec![inner] })))
}

#[tokio::test]
async fn data_nests_as_deep_as_protobuf_goes_and_no_deeper() {
    for part in [data(nested_objects(30)), data(nested_lists(40))] {
        assert!(send(sending(part)).await.is_ok());
    }
    // Deeper than readers of JSON go.
    check_send(sending(data(nested_lists(41))), &["message.parts[0].data"]).await;
    for part in [data(nested_objects(40)), data(nested_lists(60))] {
        check_unreadable(&send(sending(part)).await.unwrap_err(), "nests deeper than 100 levels");
    }
}

/// Checks that a request was refused because its bytes are not a message. The error must be this server's, and contain
/// `reason`.
fn check_unreadable(status: &Status, reason: &str) {
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert_eq!(status.get_details_error_info().unwrap().reason, "INVALID_REQUEST");
    assert!(status.message().contains(reason), "{}", status.message());
}

/// A SendMessageRequest whose field `message` has any bytes.
#[derive(Clone, PartialEq, prost::Message)]
struct RawRequest {
    #[prost(bytes = "vec", tag = "2")]
    message: Vec<u8>,
}

/// The encoding of a message with one field, whose value is the encoded message `inner`.
fn wrapped(field: u32, inner: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(field, WireType::LengthDelimited, &mut bytes);
    encode_varint(inner.len() as u64, &mut bytes);
    bytes.extend_from_slice(inner);
    bytes
}

/// The message is written as bytes, because a client could not build a value that nests so deep.
#[tokio::test]
async fn no_depth_on_the_wire_overflows_the_stack() {
    let script = Arc::new(Script::answering("null"));
    let mut client = tonic::client::Grpc::new(channel(script.clone()).await);
    client.ready().await.unwrap();
    let list_value = 6;
    let values = 1;
    let data = 4;
    let parts = 5;
    let deep = (0..5000).fold(Vec::new(), |inner, _| wrapped(list_value, &wrapped(values, &inner)));
    let request = RawRequest { message: wrapped(parts, &wrapped(data, &deep)) };
    let path = http::uri::PathAndQuery::from_static("/lf.a2a.v1.A2AService/SendMessage");
    let codec = tonic_prost::ProstCodec::<RawRequest, ()>::default();
    let status = client.unary(tonic::Request::new(request), path, codec).await.unwrap_err();
    check_unreadable(&status, "nests deeper than 100 levels");
    script.check_not_called();
}

/// The error must blame the client on every rpc.
#[tokio::test]
async fn bytes_that_are_no_message_are_refused_with_the_field() {
    let not_utf8 = wrapped(1, b"\xff");
    let cut_off = wrapped(1, b"m-1")[..3].to_vec();
    for (message, reason) in [(not_utf8, "Message.message_id"), (cut_off, "Message.message_id")] {
        for rpc in ["/lf.a2a.v1.A2AService/SendMessage", "/lf.a2a.v1.A2AService/SendStreamingMessage"] {
            let script = Arc::new(Script::answering("null"));
            let mut client = tonic::client::Grpc::new(channel(script.clone()).await);
            client.ready().await.unwrap();
            let request = tonic::Request::new(RawRequest { message: message.clone() });
            let path = http::uri::PathAndQuery::from_static(rpc);
            let codec = tonic_prost::ProstCodec::<RawRequest, ()>::default();
            let status = client.unary(request, path, codec).await.unwrap_err();
            check_unreadable(&status, reason);
            script.check_not_called();
        }
    }
}

async fn with_details(response: axum::response::Response) -> axum::response::Response {
    annex_grpc::with_details(response)
}

#[tokio::test]
async fn a_body_without_a_message_is_the_senders_fault() {
    let script = Arc::new(Script::answering("null"));
    let router = routes(script.clone(), Limits { max_message_bytes: MAX_MESSAGE_BYTES });
    let layered = router.layer(axum::middleware::map_response(with_details));
    let mut client = tonic::client::Grpc::new(connected(layered).await);
    client.ready().await.unwrap();
    let nothing = tonic::Request::new(futures::stream::empty::<RawRequest>());
    let path = http::uri::PathAndQuery::from_static("/lf.a2a.v1.A2AService/SendMessage");
    let codec = tonic_prost::ProstCodec::<RawRequest, ()>::default();
    let status = client.client_streaming(nothing, path, codec).await.unwrap_err();
    check_unreadable(&status, "Missing request message");
    script.check_not_called();
}

#[tokio::test]
async fn a_message_beyond_the_limit_is_refused() {
    assert!(send(sending(text_part(&"x".repeat(MAX_MESSAGE_BYTES - 100)))).await.is_ok());
    let status = send(sending(text_part(&"x".repeat(MAX_MESSAGE_BYTES)))).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
}
