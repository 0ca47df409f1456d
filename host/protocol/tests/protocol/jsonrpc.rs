//! The JSON-RPC envelope.

use annex_protocol::jsonrpc::{self, Request, RequestId};
use annex_protocol::{A2aError, SendMessageRequest};
use insta::assert_snapshot;

fn decode(text: &str) -> Request<'_> {
    jsonrpc::decode(text.as_bytes()).unwrap()
}

#[test]
fn the_id_is_echoed_with_its_type_and_spelling() {
    for id in ["1", "-7", "1.0", "1e308", "9007199254740993", r#""1""#, r#""""#, r#""\"ä""#, "null"] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"GetTask"}}"#);
        let request = decode(&text);
        assert_eq!(
            jsonrpc::success(&request.id, "done").unwrap(),
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"done"}}"#)
        );
    }
}

#[test]
fn members_may_come_in_any_order_with_others_among_them() {
    let request =
        decode("{\"method\":\"SendMessage\",\"trace\":[{}],\"params\":{\n\"a\": 1.0},\"id\":7,\"jsonrpc\":\"2.0\"}");
    assert_eq!(request.id, RequestId::Number("7".to_owned()));
    assert_eq!(request.method, "SendMessage");
    assert_eq!(request.params_json().unwrap().get(), r#"{"a":1.0}"#);
}

#[test]
fn missing_and_null_parameters_are_an_empty_object() {
    for params in ["", r#","params":null"#, r#","params":{}"#] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard"{params}}}"#);
        let request = decode(&text);
        assert_eq!(request.params_json().unwrap().get(), "{}");
    }
}

#[test]
fn what_is_no_request_is_rejected_under_the_id_that_could_be_read() {
    let number = RequestId::Number("7".to_owned());
    let string = RequestId::String("x".to_owned());
    let cases: [(&[u8], i32, RequestId); 22] = [
        (b"", -32700, RequestId::Null),
        (b"{", -32700, RequestId::Null),
        (b"[1", -32700, RequestId::Null),
        (b"hello", -32700, RequestId::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"\xff\"}", -32700, RequestId::Null),
        (br#"{"jsonrpc":"2.0","id":7,"method":"GetTask"} {}"#, -32700, RequestId::Null),
        (br#"{"jsonrpc":"2.0","id":7,"method":"GetTask","params":{"a":01}}"#, -32700, RequestId::Null),
        (br#"[{"jsonrpc":"2.0","id":7,"method":"GetTask"}]"#, -32600, RequestId::Null),
        (b"[]", -32600, RequestId::Null),
        (b"7", -32600, RequestId::Null),
        (br#"{"jsonrpc":"2.0","method":"GetTask"}"#, -32600, RequestId::Null),
        (br#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#, -32600, RequestId::Null),
        (br#"{"jsonrpc":"2.0","id":true,"method":"GetTask"}"#, -32600, RequestId::Null),
        (br#"{"jsonrpc":"2.0","id":7,"id":8,"method":"GetTask"}"#, -32600, RequestId::Null),
        (br#"{"jsonrpc":"2.0","id":1e400,"method":"GetTask"}"#, -32600, RequestId::Null),
        (br#"{"jsonrpc":"2.0","id":-1E+309,"method":"GetTask"}"#, -32600, RequestId::Null),
        (br#"{"id":7,"method":"GetTask"}"#, -32600, number.clone()),
        (br#"{"jsonrpc":"1.0","id":"x","method":"GetTask"}"#, -32600, string.clone()),
        (br#"{"jsonrpc":2.0,"id":7,"method":"GetTask"}"#, -32600, number.clone()),
        (br#"{"jsonrpc":"2.0","id":7}"#, -32600, number.clone()),
        (br#"{"jsonrpc":"2.0","id":7,"method":1}"#, -32600, number),
        (br#"{"jsonrpc":"2.0","id":"x","method":null}"#, -32600, string),
    ];
    for (bytes, code, id) in cases {
        let text = String::from_utf8_lossy(bytes);
        let rejection = jsonrpc::decode(bytes).expect_err(&text);
        assert_eq!((rejection.error.code(), rejection.id), (code, id), "{text}");
    }
}

#[test]
fn a_parameter_that_does_not_fit_is_named() {
    let cases = [
        (r#"{"message":{"role":"user"}}"#, "message.role"),
        (r#"{"message":{"parts":[{"text":"x"},{"text":5}]}}"#, "message.parts[1].text"),
        (r#"{"message":{"parts":[{"text":"x"},{"kind":"text"}]}}"#, "message.parts[1]"),
        (r#"{"message":{"metadata":[]}}"#, "message.metadata"),
        (r#"{"configuration":{"historyLength":"many"}}"#, "configuration.historyLength"),
        (r#"{"configuration":{"history_length":0.5}}"#, "configuration.history_length"),
        ("[]", ""),
        (r#"{"message":[]}"#, "message"),
    ];
    for (json, field) in cases {
        let error = jsonrpc::params::<SendMessageRequest>(json).unwrap_err();
        let A2aError::InvalidParams { violations } = error else { panic!("{error:?}") };
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].field, field, "{json}: {violations:?}");
        assert!(!violations[0].description.contains(" at line "), "{violations:?}");
    }
}

#[test]
fn free_form_parameters_arrive_byte_for_byte() {
    let request = decode(
        r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"metadata":{"b":1.0,"a":9007199254740993}}}"#,
    );
    let params: SendMessageRequest = jsonrpc::params(request.params).unwrap();
    assert_eq!(params.metadata.to_json_string(), r#"{"b":1.0,"a":9007199254740993}"#);
}

#[test]
fn wire_form_of_a_failure() {
    let missing = vec!["https://example.com/a/v1".into(), "https://example.com/b/v1".into()];
    let failure = jsonrpc::failure(
        &RequestId::String("q\"1".to_owned()),
        &A2aError::ExtensionSupportRequired { missing, unknown: Vec::new() },
    );
    assert_snapshot!(failure, @r#"{"jsonrpc":"2.0","id":"q\"1","error":{"code":-32008,"message":"required extensions are not active: https://example.com/a/v1,https://example.com/b/v1; list them in the A2A-Extensions header","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"EXTENSION_SUPPORT_REQUIRED","domain":"a2a-protocol.org","metadata":{"extensions":"https://example.com/a/v1,https://example.com/b/v1"}}]}}"#);
}

#[test]
fn wire_form_of_invalid_parameters() {
    let error = jsonrpc::params::<SendMessageRequest>(r#"{"message":{"role":"user"}}"#).unwrap_err();
    assert_snapshot!(jsonrpc::failure(&RequestId::Number("1".to_owned()), &error), @r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"invalid parameters: message.role: unknown Role `user`, expected one of `ROLE_UNSPECIFIED`, `ROLE_USER`, `ROLE_AGENT`","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INVALID_PARAMS","domain":"a2a-protocol.org"},{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"message.role","description":"unknown Role `user`, expected one of `ROLE_UNSPECIFIED`, `ROLE_USER`, `ROLE_AGENT`"}]}]}}"#);
}

#[test]
fn wire_form_of_an_empty_result() {
    assert_snapshot!(jsonrpc::success(&RequestId::Null, &()).unwrap(), @r#"{"jsonrpc":"2.0","id":null,"result":null}"#);
    assert_snapshot!(jsonrpc::success_raw(&RequestId::Number("2".to_owned()), r#"{"n":1.0}"#), @r#"{"jsonrpc":"2.0","id":2,"result":{"n":1.0}}"#);
}
