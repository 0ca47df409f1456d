//! The code, the message and the details of errors.

use annex_grpc::pb::GetTaskRequest;
use annex_protocol::{A2aError, FieldViolation, Json, TaskState};
use prost::Message;
use prost_types::value::Kind;
use prost_types::{Any, Value};
use tonic::{Code, Status};
use tonic_types::{StatusExt, pb};

use crate::support::{Script, object, start, string, value};

async fn status_of(error: A2aError) -> Status {
    let (mut client, _script) = start(Script::failing(error)).await;
    client.get_task(GetTaskRequest { id: "t-1".into(), ..GetTaskRequest::default() }).await.unwrap_err()
}

async fn check(error: A2aError, code: Code, metadata: &[(&str, &str)]) {
    let status = status_of(error.clone()).await;
    assert_eq!((status.code(), status.message()), (code, error.to_string().as_str()));
    let encoded = pb::Status::decode(status.details()).unwrap();
    assert_eq!((encoded.code, encoded.message), (code as i32, error.to_string()));
    let info = status.get_details_error_info().unwrap();
    assert_eq!((info.reason.as_str(), info.domain.as_str()), (error.reason(), "a2a-protocol.org"));
    let metadata = metadata.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    assert_eq!(info.metadata, metadata);
}

#[tokio::test]
async fn each_kind_of_error_has_its_code_and_its_error_info() {
    let error = A2aError::TaskNotFound { task_id: "t-1".into() };
    check(error, Code::NotFound, &[("taskId", "t-1")]).await;
    let error = A2aError::TaskNotCancelable { task_id: "t-1".into(), state: TaskState::Failed };
    check(error, Code::FailedPrecondition, &[("taskId", "t-1"), ("state", "TASK_STATE_FAILED")]).await;
    let error = A2aError::ContentTypeNotSupported { content_type: "a/b".into() };
    check(error, Code::InvalidArgument, &[("contentType", "a/b")]).await;
    let error = A2aError::VersionNotSupported { requested: "9".into(), supported: &["1.0"] };
    check(error, Code::FailedPrecondition, &[("requestedVersion", "9"), ("supportedVersions", "1.0")]).await;
    let error = A2aError::ExtensionSupportRequired { missing: vec!["urn:x".into()], unknown: Vec::new() };
    check(error, Code::FailedPrecondition, &[("extensions", "urn:x")]).await;
    check(A2aError::ExtendedAgentCardNotConfigured, Code::FailedPrecondition, &[]).await;
    check(A2aError::Internal { error_id: "e-1".into() }, Code::Internal, &[("errorId", "e-1")]).await;
    check(A2aError::Overloaded { reason: "grün".into() }, Code::Unavailable, &[]).await;
}

#[tokio::test]
async fn a_quota_that_is_used_up_says_when_to_come_again() {
    let error = A2aError::QuotaExceeded { quota: "sessions", used: 12, limit: 10, retry_seconds: 7 };
    check(error.clone(), Code::ResourceExhausted, &[("quota", "sessions"), ("used", "12"), ("limit", "10")]).await;
    let delay = status_of(error).await.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(delay, Some(std::time::Duration::from_secs(7)));
}

#[tokio::test]
async fn field_violations_are_a_bad_request() {
    let violation = |field: &str, description: &str| FieldViolation {
        field: field.to_owned(),
        description: description.to_owned(),
    };
    let violations = vec![violation("id", "is required"), violation("", "is odd")];
    let status = status_of(A2aError::InvalidParams { violations }).await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.get_details_error_info().unwrap().reason, "INVALID_PARAMS");
    let violations = status.get_details_bad_request().unwrap().field_violations;
    let violations: Vec<_> = violations.iter().map(|v| (v.field.as_str(), v.description.as_str())).collect();
    assert_eq!(violations, [("id", "is required"), ("", "is odd")]);
}

async fn extension_detail(data: &str) -> Any {
    let data = Some(Json::parse(data.to_owned()).unwrap());
    let status = status_of(A2aError::Extension { uri: "urn:x".into(), code: -32050, message: "no".into(), data }).await;
    let info = status.get_details_error_info().unwrap();
    assert_eq!((info.metadata["extension"].as_str(), info.metadata["code"].as_str()), ("urn:x", "-32050"));
    let [_, detail] = pb::Status::decode(status.details()).unwrap().details.try_into().unwrap();
    detail
}

#[tokio::test]
async fn what_an_extension_adds_is_a_value() {
    let detail = extension_detail(r#"{"left":3}"#).await;
    assert_eq!(detail.type_url, "type.googleapis.com/google.protobuf.Value");
    let expected = value(Kind::StructValue(object([("left", value(Kind::NumberValue(3.0)))])));
    assert_eq!(Value::decode(detail.value.as_slice()).unwrap(), expected);
}

#[tokio::test]
async fn a_detail_of_a_type_of_its_own_is_a_value_with_the_type_in_it() {
    let detail = extension_detail(r#"{"@type":"example.com/Quota","left":"3"}"#).await;
    assert_eq!(detail.type_url, "type.googleapis.com/google.protobuf.Value");
    let expected = object([("@type", string("example.com/Quota")), ("left", string("3"))]);
    assert_eq!(Value::decode(detail.value.as_slice()).unwrap(), value(Kind::StructValue(expected)));
}

#[tokio::test]
async fn what_an_extension_adds_is_left_out_when_protobuf_cannot_carry_it() {
    for data in [r#"{"left":9007199254740993}"#, r#"{"@type":"example.com/Quota","left":9007199254740993}"#] {
        let data = Some(Json::parse(data.to_owned()).unwrap());
        let error = A2aError::Extension { uri: "urn:x".into(), code: -32050, message: "no".into(), data };
        let status = status_of(error).await;
        assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "no"));
        assert_eq!(pb::Status::decode(status.details()).unwrap().details.len(), 1);
    }
}

#[tokio::test]
async fn a_status_fits_into_headers_whatever_it_repeats() {
    let long = "ü".repeat(20_000);
    let violation = FieldViolation { field: long.clone(), description: long.clone() };
    let status = status_of(A2aError::InvalidParams { violations: vec![violation; 20] }).await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().len() <= 1024 + 3 && status.message().ends_with('…'));
    assert_eq!(status.get_details_error_info().unwrap().reason, "INVALID_PARAMS");
    assert!(!status.get_details_bad_request().unwrap().field_violations.is_empty());
    assert!(status.details().len() <= 4096, "{}", status.details().len());

    let status = status_of(A2aError::TaskNotFound { task_id: long.as_str().into() }).await;
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.get_details_error_info().unwrap().metadata["taskId"].starts_with("üü"));

    let data = Some(Json::string(&long));
    let error = A2aError::Extension { uri: "urn:x".into(), code: -32050, message: long, data };
    let status = status_of(error).await;
    assert_eq!(status.get_details_error_info().unwrap().reason, "EXTENSION_ERROR");
}
