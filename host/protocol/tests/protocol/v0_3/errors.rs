//! Errors by the codes and names of 0.3.

use annex_protocol::jsonrpc::RequestId;
use annex_protocol::v0_3;
use annex_protocol::{A2aError, GrpcStatus, TaskState};

#[test]
fn codes_stay_and_that_of_a_version_is_an_internal_error() {
    let kept = [
        A2aError::TaskNotFound { task_id: "t".into() },
        A2aError::TaskNotCancelable { task_id: "t".into(), state: TaskState::Completed },
        A2aError::PushNotificationNotSupported,
        A2aError::UnsupportedOperation { reason: String::new() },
        A2aError::ContentTypeNotSupported { content_type: String::new() },
        A2aError::InvalidAgentResponse { reason: String::new() },
        A2aError::ExtendedAgentCardNotConfigured,
        A2aError::Parse { reason: String::new() },
        A2aError::InvalidRequest { reason: String::new() },
        A2aError::MethodNotFound { method: String::new() },
        A2aError::invalid_params("r"),
        A2aError::Internal { error_id: String::new() },
        A2aError::Overloaded { reason: String::new() },
        A2aError::ExtensionSupportRequired { missing: vec!["urn:e".into()], unknown: Vec::new() },
        A2aError::Extension { uri: "urn:e".into(), code: -31_000, message: String::new(), data: None },
    ];
    for error in kept {
        assert_eq!(v0_3::code(&error), error.code());
    }
    let version = A2aError::VersionNotSupported { requested: "9.9".to_owned(), supported: &["1.0", "0.3"] };
    assert_eq!(v0_3::code(&version), -32603);
}

#[test]
fn messages_use_the_names_of_0_3() {
    let not_cancelable = A2aError::TaskNotCancelable { task_id: "t".into(), state: TaskState::InputRequired };
    assert!(v0_3::text(&not_cancelable).ends_with("in state input-required"));
    assert!(v0_3::text(&A2aError::PushNotificationNotSupported).contains("tasks/resubscribe"));
    let required = A2aError::ExtensionSupportRequired { missing: vec!["urn:e".into()], unknown: Vec::new() };
    assert!(v0_3::text(&required).ends_with("urn:e; list them in the x-a2a-extensions header"));
    let version = A2aError::VersionNotSupported { requested: "9.9".to_owned(), supported: &["1.0", "0.3"] };
    assert!(v0_3::text(&version).contains("`9.9` is not supported") && v0_3::text(&version).ends_with("1.0, 0.3"));
}

#[test]
fn a_grpc_status_has_the_code_and_the_name_of_0_3() {
    let check = |error: A2aError, status: GrpcStatus, beginning: &str| {
        assert_eq!(v0_3::grpc_status(&error), status);
        assert!(v0_3::grpc_text(&error).starts_with(beginning), "{}", v0_3::grpc_text(&error));
    };
    let not_cancelable = A2aError::TaskNotCancelable { task_id: "t".into(), state: TaskState::Completed };
    check(not_cancelable, GrpcStatus::Unimplemented, "TaskNotCancelableError: task t cannot be canceled");
    check(A2aError::TaskNotFound { task_id: "t".into() }, GrpcStatus::NotFound, "TaskNotFoundError: task t was");
    check(A2aError::invalid_params("r"), GrpcStatus::InvalidArgument, "InvalidParamsError: invalid parameters: r");
    let required = A2aError::ExtensionSupportRequired { missing: vec!["urn:e".into()], unknown: Vec::new() };
    check(required, GrpcStatus::FailedPrecondition, "required extensions are not active: urn:e");
}

#[test]
fn data_of_an_error_is_an_object() {
    let text = v0_3::failure(&RequestId::Number("7".to_owned()), &A2aError::TaskNotFound { task_id: "t\"1".into() });
    let details = r#"[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org","metadata":{"taskId":"t\"1"}}]"#;
    let message = r#"task t\"1 was not found; it may have expired or belong to another caller"#;
    let error = format!(r#"{{"code":-32001,"message":"{message}","data":{{"details":{details}}}}}"#);
    assert_eq!(text, format!(r#"{{"jsonrpc":"2.0","id":7,"error":{error}}}"#));
}
