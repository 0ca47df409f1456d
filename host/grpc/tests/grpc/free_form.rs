//! Free-form JSON through `google.protobuf.Value`.

use annex_grpc::pb::{GetTaskRequest, Part, part};
use annex_protocol::Json;
use prost_types::value::Kind;
use prost_types::{ListValue, Value};
use tonic::Code;
use tonic_types::StatusExt;

use crate::support::{Script, object, sending, start, string, value};

/// Sends a part with this data. Returns the data that the operations receive.
async fn read(data: Value) -> String {
    let (mut client, script) = start(Script::answering(r#"{"message":{}}"#)).await;
    let part = Part { content: Some(part::Content::Data(data)), ..Part::default() };
    client.send_message(sending(part)).await.unwrap();
    let request = script.call().request;
    let (_, data) = request.split_once(r#""data":"#).unwrap();
    data.strip_suffix("}]}}").unwrap().to_owned()
}

/// Serves a task with this value in its metadata. Returns the value that a client receives.
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
async fn numbers_are_written_as_the_double_that_is_meant() {
    let cases = [
        ("-0", -0.0),
        ("1.0", 1.0),
        ("0.1", 0.1),
        ("0.30000000000000004", 0.300_000_000_000_000_04),
        ("0.1000000000000000055511151231257827", 0.1),
        ("2.2250738585072011e-308", 2.225_073_858_507_201e-308),
        ("1e-400", 0.0),
        ("9007199254740991", 9_007_199_254_740_991.0),
        ("-9007199254740992", -9_007_199_254_740_992.0),
        ("9007199254740994", 9_007_199_254_740_994.0),
        ("9007199254740993.5", 9_007_199_254_740_994.0),
        ("1152921504606846976", 1_152_921_504_606_846_976.0),
        ("18446744073709551616", 18_446_744_073_709_551_616.0),
        ("10000000000000000000000", 1e22),
        // Other notations of doubles.
        ("1.152921504606847e18", 1_152_921_504_606_846_976.0),
        ("1152921504606846976.0", 1_152_921_504_606_846_976.0),
        ("1.2345678901234568E+29", 1.234_567_890_123_456_8e29),
        ("1e23", 1e23),
        ("1000000000000000000000000e-1", 1e23),
        ("-1.7976931348623157e308", f64::MIN),
    ];
    for (json, double) in cases {
        assert_eq!(written(json).await.unwrap(), value(Kind::NumberValue(double)), "{json}");
    }
}

/// Checks that GetTask fails if the task's metadata contains this JSON. The error must contain `reason`, and name
/// bindings that can carry the value.
async fn check_not_carried(json: &str, reason: &str) {
    let status = written(json).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{json}");
    assert_eq!(status.get_details_error_info().unwrap().reason, "UNSUPPORTED_OPERATION");
    let expected = format!("unsupported operation: metadata.k{reason}");
    assert!(status.message().starts_with(&expected), "{}", status.message());
    assert!(status.message().ends_with("use JSON-RPC or HTTP+JSON"), "{}", status.message());
}

#[tokio::test]
async fn an_integer_that_no_double_is_equal_to_is_refused() {
    for integer in [
        "9007199254740993",
        "-9007199254740993",
        "9007199254740993.0",
        "9.007199254740993e15",
        "18446744073709551615",
        "18446744073709551617",
        "100000000000000000000000",
        "123456789012345678901234567890",
        "1.23456789012345678901234567890e29",
    ] {
        check_not_carried(integer, &format!(": {integer} is an integer without an equal double;")).await;
    }
}

#[tokio::test]
async fn the_place_of_what_is_refused_is_named() {
    let json = r#"{"a":[1.5,{"id":9007199254740993}],"b":null}"#;
    check_not_carried(json, ".a[1].id: 9007199254740993 is an integer").await;
    check_not_carried("[[],9007199254740993]", "[1]: 9007199254740993 is an integer").await;
}

#[tokio::test]
async fn what_not_everybody_can_read_was_replaced_before() {
    assert_eq!(written("1e999").await.unwrap(), string("1e999"));
    let digits = "9".repeat(400);
    assert_eq!(written(&digits).await.unwrap(), string(&digits));
    assert_eq!(written(r#""a\ud800""#).await.unwrap(), string("a\u{fffd}"));
}

#[tokio::test]
async fn a_value_that_nests_deeper_than_readers_of_protobuf_go_is_refused() {
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    written(&nested(Json::MAX_DEPTH)).await.unwrap();
    let objects = |depth| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    written(&objects(29)).await.unwrap();
    check_not_carried(&objects(40), &format!("{}: arrays and objects nest deeper", ".a".repeat(30))).await;
}

#[tokio::test]
async fn every_kind_of_value_is_written() {
    let json = r#"[ { "a" : [ ] , "\u00e9\"}":{ },"b":[{"c":null}] } ,"\"]}\n", null,true , false, -1.5e1 ]"#;
    let c = object([("c", value(Kind::NullValue(0)))]);
    let list = |values| value(Kind::ListValue(ListValue { values }));
    let first = object([
        ("a", list(Vec::new())),
        ("é\"}", value(Kind::StructValue(object([])))),
        ("b", list(vec![value(Kind::StructValue(c))])),
    ]);
    let expected = vec![
        value(Kind::StructValue(first)),
        string("\"]}\n"),
        value(Kind::NullValue(0)),
        value(Kind::BoolValue(true)),
        value(Kind::BoolValue(false)),
        value(Kind::NumberValue(-15.0)),
    ];
    assert_eq!(written(json).await.unwrap(), list(expected));
}
