//! Free-form JSON through `google.protobuf.Value`.

use annex_grpc::pb::{GetTaskRequest, Part, part};
use prost_types::value::Kind;
use prost_types::{ListValue, Value};
use tonic::Code;

use crate::support::{Script, object, sending, start, value};

/// What the operations get as the data of a part.
async fn read(data: Value) -> String {
    let (mut client, script) = start(Script::answering(r#"{"message":{}}"#)).await;
    let part = Part { content: Some(part::Content::Data(data)), ..Part::default() };
    client.send_message(sending(part)).await.unwrap();
    let request = script.call().request;
    let (_, data) = request.split_once(r#""data":"#).unwrap();
    data.strip_suffix("}]}}").unwrap().to_owned()
}

/// What a client gets for metadata of the server.
async fn written(json: &str) -> Result<Value, tonic::Status> {
    let answer = format!(r#"{{"id":"t-1","status":{{}},"metadata":{{"k":{json}}}}}"#);
    let (mut client, _script) = start(Script::answering(&answer)).await;
    let request = GetTaskRequest { id: "t-1".into(), ..GetTaskRequest::default() };
    let task = client.get_task(request).await?.into_inner();
    Ok(task.metadata.unwrap().fields["k"].clone())
}

#[tokio::test]
async fn numbers_are_read_as_integers_when_they_are_whole() {
    let cases = [
        (0.0, "0"),
        (-0.0, "-0.0"),
        (1.0, "1"),
        (-42.0, "-42"),
        (1.5, "1.5"),
        (9_007_199_254_740_992.0, "9007199254740992"),
        (-9_223_372_036_854_775_808.0, "-9223372036854775808"),
        (9_223_372_036_854_775_808.0, "9.223372036854776e+18"),
        (1e300, "1e+300"),
    ];
    for (double, json) in cases {
        assert_eq!(read(value(Kind::NumberValue(double))).await, json);
    }
}

#[tokio::test]
async fn every_kind_of_value_is_read() {
    let list = ListValue { values: vec![value(Kind::NullValue(0)), value(Kind::BoolValue(true))] };
    let inner = object([("b", value(Kind::StringValue("\"\u{e9}\n".into()))), ("a", value(Kind::ListValue(list)))]);
    assert_eq!(read(value(Kind::StructValue(inner))).await, r#"{"a":[null,true],"b":"\"é\n"}"#);
    assert_eq!(read(value(Kind::NullValue(0))).await, "null");
}

#[tokio::test]
async fn numbers_are_written_as_the_nearest_double() {
    let cases = [
        ("1.0", 1.0),
        ("9007199254740993", 9_007_199_254_740_992.0),
        ("18446744073709551615", 18_446_744_073_709_551_615.0),
        ("123456789012345678901234567890", 1.234_567_890_123_456_8e29),
        ("0.30000000000000004", 0.300_000_000_000_000_04),
        ("2.2250738585072011e-308", 2.225_073_858_507_201e-308),
    ];
    for (json, double) in cases {
        assert_eq!(written(json).await.unwrap(), value(Kind::NumberValue(double)), "{json}");
    }
}

#[tokio::test]
async fn what_protobuf_cannot_hold_is_a_fault_of_the_server_that_names_the_field() {
    for json in ["1e999", r#""\ud800""#] {
        let status = written(json).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{json}");
        assert!(status.message().contains("metadata.k: "), "{}", status.message());
    }
}
