//! Each row of the specification's error table.

use annex_protocol::jsonrpc::RequestId;
use annex_protocol::{A2aError, FieldViolation, Json, JsonObject, TaskId, TaskState, http_json, jsonrpc, v0_3};
use insta::assert_snapshot;

type Row = (A2aError, i32, u16, (&'static str, i32), &'static str);

fn text(text: &str) -> String {
    text.to_owned()
}

fn table() -> Vec<Row> {
    const INVALID: (&str, i32) = ("INVALID_ARGUMENT", 3);
    const PRECONDITION: (&str, i32) = ("FAILED_PRECONDITION", 9);
    const NOT_FOUND: (&str, i32) = ("NOT_FOUND", 5);
    const INTERNAL: (&str, i32) = ("INTERNAL", 13);
    const EXHAUSTED: (&str, i32) = ("RESOURCE_EXHAUSTED", 8);
    const UNAVAILABLE: (&str, i32) = ("UNAVAILABLE", 14);

    use A2aError as E;
    let task_id = || "t-1".into();
    let reason = || text("why");
    let version = E::VersionNotSupported { requested: text("9.9"), supported: &["1.0"] };
    let path = E::PathOfOtherVersion { path: text("v1/message:send"), of: "0.3", requested: text("1.0") };
    let quota = E::QuotaExceeded { quota: "sessions", used: 12, limit: 10, retry_seconds: 7 };
    let extension = E::Extension { uri: "urn:e".into(), code: -32200, message: text("no"), data: None };
    vec![
        (E::TaskNotFound { task_id: task_id() }, -32001, 404, NOT_FOUND, "TASK_NOT_FOUND"),
        (
            E::TaskNotCancelable { task_id: task_id(), state: TaskState::Completed },
            -32002,
            400,
            PRECONDITION,
            "TASK_NOT_CANCELABLE",
        ),
        (E::PushNotificationNotSupported, -32003, 400, PRECONDITION, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        (E::UnsupportedOperation { reason: reason() }, -32004, 400, PRECONDITION, "UNSUPPORTED_OPERATION"),
        (E::ContentTypeNotSupported { content_type: text("a/b") }, -32005, 400, INVALID, "CONTENT_TYPE_NOT_SUPPORTED"),
        (E::BodyTypeNotSupported { content_type: text("a/b") }, -32005, 400, INVALID, "CONTENT_TYPE_NOT_SUPPORTED"),
        (E::InvalidAgentResponse { reason: reason() }, -32006, 500, INTERNAL, "INVALID_AGENT_RESPONSE"),
        (E::ExtendedAgentCardNotConfigured, -32007, 400, PRECONDITION, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
        (
            E::ExtensionSupportRequired { missing: vec!["urn:a".into(), "urn:b".into()], unknown: Vec::new() },
            -32008,
            400,
            PRECONDITION,
            "EXTENSION_SUPPORT_REQUIRED",
        ),
        (version, -32009, 400, PRECONDITION, "VERSION_NOT_SUPPORTED"),
        (path, -32009, 400, PRECONDITION, "VERSION_NOT_SUPPORTED"),
        (E::Parse { reason: reason() }, -32700, 400, INVALID, "PARSE_ERROR"),
        (E::InvalidRequest { reason: reason() }, -32600, 400, INVALID, "INVALID_REQUEST"),
        (E::MethodNotFound { method: text("message/send") }, -32601, 404, NOT_FOUND, "METHOD_NOT_FOUND"),
        (E::invalid_params("why"), -32602, 400, INVALID, "INVALID_PARAMS"),
        (E::Internal { error_id: text("e-1") }, -32603, 500, INTERNAL, "INTERNAL"),
        (E::Overloaded { reason: reason() }, -32000, 503, UNAVAILABLE, "OVERLOADED"),
        (quota, -32000, 429, EXHAUSTED, "QUOTA_EXCEEDED"),
        (E::Unavailable { reason: reason(), retry_seconds: None }, -32000, 503, UNAVAILABLE, "UNAVAILABLE"),
        (extension, -32200, 400, PRECONDITION, "EXTENSION_ERROR"),
    ]
}

#[test]
fn every_error_has_the_codes_of_the_table() {
    for (error, code, http_status, grpc_status, reason) in table() {
        let status = error.grpc_status();
        let found = (error.code(), error.http_status(), (status.name(), status.number()), error.reason());
        assert_eq!(found, (code, http_status, grpc_status, reason), "{error:?}");
    }
}

#[test]
fn a_reason_tells_the_code_of_all_errors_but_those_of_extensions() {
    for (error, code, ..) in table() {
        let expected = (!matches!(error, A2aError::Extension { .. })).then_some(code);
        assert_eq!(A2aError::code_of_reason(error.reason()), expected, "{error:?}");
    }
    assert_eq!(A2aError::code_of_reason("OWN"), None);
}

#[test]
fn every_error_begins_its_details_with_an_error_info() {
    for (error, _, _, _, reason) in table() {
        let info: JsonObject = error.details()[0].to().unwrap();
        assert_eq!(info.get("@type"), Some(&Json::string("type.googleapis.com/google.rpc.ErrorInfo")));
        assert_eq!(info.get("reason"), Some(&Json::string(reason)));
        assert_eq!(info.get("domain"), Some(&Json::string("a2a-protocol.org")));
    }
}

fn described(error: &A2aError) -> String {
    let details = error.details();
    let lines: Vec<_> = details.iter().map(Json::get).collect();
    format!("{error}\n  {}", lines.join("\n  "))
}

#[test]
fn wire_form_of_every_error() {
    let all: Vec<_> = table().iter().map(|(error, ..)| described(error)).collect();
    assert_snapshot!(all.join("\n"), @r#"
task t-1 was not found; it may have expired or belong to another caller
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org","metadata":{"taskId":"t-1"}}
task t-1 cannot be canceled because it is in state TASK_STATE_COMPLETED
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_CANCELABLE","domain":"a2a-protocol.org","metadata":{"taskId":"t-1","state":"TASK_STATE_COMPLETED"}}
this agent does not send push notifications; use SubscribeToTask or GetTask to follow a task
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"PUSH_NOTIFICATION_NOT_SUPPORTED","domain":"a2a-protocol.org"}
unsupported operation: why
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"UNSUPPORTED_OPERATION","domain":"a2a-protocol.org"}
content type a/b is not supported; the agent card lists the supported input modes
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"CONTENT_TYPE_NOT_SUPPORTED","domain":"a2a-protocol.org","metadata":{"contentType":"a/b"}}
the body has the content type a/b, and only JSON is accepted; send the header `Content-Type: application/json` (with curl: -H 'content-type: application/json')
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"CONTENT_TYPE_NOT_SUPPORTED","domain":"a2a-protocol.org","metadata":{"contentType":"a/b"}}
the agent gave an invalid response: why
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INVALID_AGENT_RESPONSE","domain":"a2a-protocol.org"}
this agent has no extended agent card configured; use the public card
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"EXTENDED_AGENT_CARD_NOT_CONFIGURED","domain":"a2a-protocol.org"}
required extensions are not active: urn:a,urn:b; list them in the A2A-Extensions header
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"EXTENSION_SUPPORT_REQUIRED","domain":"a2a-protocol.org","metadata":{"extensions":"urn:a,urn:b"}}
A2A version `9.9` is not supported; set the A2A-Version header to one of: 1.0
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"VERSION_NOT_SUPPORTED","domain":"a2a-protocol.org","metadata":{"requestedVersion":"9.9","supportedVersions":"1.0"}}
/v1/message:send is a path of A2A 0.3, and the request names A2A 1.0; send it to the path without `v1`, or name the version 0.3
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"VERSION_NOT_SUPPORTED","domain":"a2a-protocol.org","metadata":{"requestedVersion":"1.0","supportedVersions":"0.3"}}
the request is not valid JSON: why
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"PARSE_ERROR","domain":"a2a-protocol.org"}
invalid request: why
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INVALID_REQUEST","domain":"a2a-protocol.org"}
method `message/send` does not exist; A2A 1.0 methods are called like SendMessage or GetTask
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"METHOD_NOT_FOUND","domain":"a2a-protocol.org","metadata":{"method":"message/send"}}
invalid parameters: why
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INVALID_PARAMS","domain":"a2a-protocol.org"}
  {"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"description":"why"}]}
internal error; the log has the details under error id e-1
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INTERNAL","domain":"a2a-protocol.org","metadata":{"errorId":"e-1"}}
the server is overloaded: why; try again later
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"OVERLOADED","domain":"a2a-protocol.org"}
the tenant's quota `sessions` is used up: 12 of 10; try again in 7 s
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"QUOTA_EXCEEDED","domain":"a2a-protocol.org","metadata":{"quota":"sessions","used":"12","limit":"10"}}
  {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}
why; try again later
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"UNAVAILABLE","domain":"a2a-protocol.org"}
no
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"EXTENSION_ERROR","domain":"a2a-protocol.org","metadata":{"extension":"urn:e","code":"-32200"}}
"#);
}

#[test]
fn a_request_without_version_or_content_type_is_told_the_header_to_send() {
    let version = A2aError::VersionNotSupported { requested: String::new(), supported: &["1.0"] }.to_string();
    assert!(version.ends_with("send the header `A2A-Version: 1.0`"), "{version}");
    let body = A2aError::BodyTypeNotSupported { content_type: String::new() }.to_string();
    assert!(body.contains("no content type; send the header `Content-Type: application/json`"), "{body}");
}

#[test]
fn a_misspelt_extension_is_named_beside_the_one_that_is_missing() {
    let refusal = |unknown: &[&str]| {
        let missing = vec!["https://a.example/state_injection/v1".into(), "urn:b".into()];
        A2aError::ExtensionSupportRequired { missing, unknown: unknown.iter().map(|uri| (*uri).into()).collect() }
    };
    let text = refusal(&["https://a.example/state-injection/v1", "urn:other:extension"]).to_string();
    let expected = "; https://a.example/state-injection/v1 is not known here, did you mean \
                    https://a.example/state_injection/v1?; urn:other:extension is not known here";
    assert!(text.ends_with(expected), "{text}");
    let long = "x".repeat(10_000);
    assert!(refusal(&[long.as_str(); 100]).to_string().len() < 1_000, "what a client sent is not told it without end");
}

#[test]
fn violations_are_listed_in_the_message_and_as_a_bad_request() {
    let violation =
        |field: &str, description: &str| FieldViolation { field: text(field), description: text(description) };
    let violations = vec![violation("message.role", "must be ROLE_USER"), violation("message.parts", "is empty")];
    assert_snapshot!(described(&A2aError::InvalidParams { violations }), @r#"
invalid parameters: message.role: must be ROLE_USER; message.parts: is empty
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INVALID_PARAMS","domain":"a2a-protocol.org"}
  {"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"message.role","description":"must be ROLE_USER"},{"field":"message.parts","description":"is empty"}]}
"#);
    assert_snapshot!(described(&A2aError::invalid_params("taskId and contextId do not belong together")), @r#"
invalid parameters: taskId and contextId do not belong together
  {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INVALID_PARAMS","domain":"a2a-protocol.org"}
  {"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"description":"taskId and contextId do not belong together"}]}
"#);
}

#[test]
fn data_of_an_extension_is_an_entry_with_a_type() {
    let error = |data: &str| A2aError::Extension {
        uri: "urn:e".into(),
        code: -32200,
        message: text("no"),
        data: Some(Json::parse(data.to_owned()).unwrap()),
    };
    for (data, entry) in [
        (r#"{"@type":"urn:own","n":1.0}"#, r#"{"@type":"urn:own","n":1.0}"#),
        (r#"{"n":1.0}"#, r#"{"@type":"type.googleapis.com/google.protobuf.Value","value":{"n":1.0}}"#),
        ("9007199254740993", r#"{"@type":"type.googleapis.com/google.protobuf.Value","value":9007199254740993}"#),
    ] {
        assert_eq!(error(data).details()[1].get(), entry);
    }
}

#[test]
fn an_error_repeats_long_text_of_the_client_cut_in_each_form() {
    let long = "x".repeat(200_000);
    let errors = [
        A2aError::TaskNotFound { task_id: TaskId::new(long.as_str()) },
        A2aError::MethodNotFound { method: long.clone() },
        A2aError::VersionNotSupported { requested: long.clone(), supported: &["1.0"] },
        A2aError::ContentTypeNotSupported { content_type: long.clone() },
        A2aError::invalid_field(long.as_str(), long.as_str()),
        A2aError::InvalidRequest { reason: long.clone() },
    ];
    let id = RequestId::Null;
    for error in errors {
        for text in [jsonrpc::failure(&id, &error), http_json::failure(&error), v0_3::failure(&id, &error)] {
            assert!(text.contains('…') && text.len() < 20_000, "{} bytes: {error:?}", text.len());
        }
    }
}
