//! Errors in the form of 0.3 (A2A 0.3 section 8).

use serde::Serialize;

use super::names::X_A2A_EXTENSIONS;
use super::task::state_name;
use crate::error::{MAX_TEXT_BYTES, comma_separated};
use crate::error_text::unknown_extensions;
use crate::jsonrpc::RequestId;
use crate::{A2aError, GrpcStatus, Json};

/// The JSON-RPC code that a client of 0.3 gets. Codes of extensions and of the server are the same as in 1.0. Two
/// errors of 1.0 do not exist in 0.3:
///
/// - For an unsupported version, and for a path of another version, the code is an internal error (-32603), as in the official
///   SDKs.
/// - For a missing required extension the code of 1.0 (-32008) is used. Clients of 0.3 accept any code, and some know this one.
pub fn code(error: &A2aError) -> i32 {
    match error {
        A2aError::VersionNotSupported { .. } | A2aError::PathOfOtherVersion { .. } => -32603,
        other => other.code(),
    }
}

/// The message of at most 4 KiB, in which methods, headers and states have the names of 0.3.
pub fn text(error: &A2aError) -> String {
    let text = match error {
        A2aError::TaskNotCancelable { task_id, state } => {
            format!("task {task_id} cannot be canceled because it is in state {}", state_name(*state))
        }
        A2aError::PushNotificationNotSupported => {
            "this agent does not send push notifications; use tasks/resubscribe or tasks/get to follow a task"
                .to_owned()
        }
        A2aError::ExtensionSupportRequired { missing, unknown } => {
            let unknown = unknown_extensions(missing, unknown);
            let missing = comma_separated(missing);
            format!(
                "required extensions are not active: {missing}; list them in the {X_A2A_EXTENSIONS} header{unknown}"
            )
        }
        A2aError::MethodNotFound { method } => {
            format!("method `{method}` does not exist; A2A 0.3 methods are called like message/send or tasks/get")
        }
        other => other.to_string(),
    };
    annex_text::cut(text, MAX_TEXT_BYTES)
}

/// The gRPC status that a client of 0.3 gets. Four errors have the status UNIMPLEMENTED, as in the official SDKs of 0.3. All
/// other errors have the status of 1.0.
pub fn grpc_status(error: &A2aError) -> GrpcStatus {
    match error {
        A2aError::TaskNotCancelable { .. }
        | A2aError::PushNotificationNotSupported
        | A2aError::UnsupportedOperation { .. }
        | A2aError::ContentTypeNotSupported { .. } => GrpcStatus::Unimplemented,
        other => other.grpc_status(),
    }
}

/// The message of a gRPC status: the name of the error in 0.3, then [`text`]. The official clients of 0.3 find the kind of an
/// error by its name. An error that 0.3 does not have is written without a name.
pub fn grpc_text(error: &A2aError) -> String {
    let text = text(error);
    match name(error) {
        Some(name) => annex_text::cut(format!("{name}: {text}"), MAX_TEXT_BYTES),
        None => text,
    }
}

/// The name that an error has in 0.3 (A2A 0.3 section 8). `None` for an error that 0.3 does not have.
fn name(error: &A2aError) -> Option<&'static str> {
    Some(match error {
        A2aError::TaskNotFound { .. } | A2aError::PushConfigNotFound { .. } => "TaskNotFoundError",
        A2aError::TaskNotCancelable { .. } => "TaskNotCancelableError",
        A2aError::PushNotificationNotSupported => "PushNotificationNotSupportedError",
        A2aError::UnsupportedOperation { .. } => "UnsupportedOperationError",
        A2aError::ContentTypeNotSupported { .. } | A2aError::BodyTypeNotSupported { .. } => {
            "ContentTypeNotSupportedError"
        }
        A2aError::InvalidAgentResponse { .. } => "InvalidAgentResponseError",
        A2aError::ExtendedAgentCardNotConfigured => "AuthenticatedExtendedCardNotConfiguredError",
        A2aError::Parse { .. } => "JSONParseError",
        A2aError::InvalidRequest { .. } => "InvalidRequestError",
        A2aError::MethodNotFound { .. } => "MethodNotFoundError",
        A2aError::InvalidParams { .. } => "InvalidParamsError",
        A2aError::Internal { .. } => "InternalError",
        A2aError::ExtensionSupportRequired { .. }
        | A2aError::VersionNotSupported { .. }
        | A2aError::PathOfOtherVersion { .. }
        | A2aError::Overloaded { .. }
        | A2aError::QuotaExceeded { .. }
        | A2aError::Unavailable { .. }
        | A2aError::Unauthenticated { .. }
        | A2aError::Extension { .. } => return None,
    })
}

#[derive(Serialize)]
struct ErrorResponse {
    code: i32,
    message: String,
    data: ErrorData,
}

/// The field `data` of an error. It is an object, because some clients of 0.3 read no other type.
#[derive(Serialize)]
struct ErrorData {
    details: Vec<Json>,
}

/// The JSON-RPC response with an error. `data` is an object with the entries of [`A2aError::details`].
pub fn failure(id: &RequestId, error: &A2aError) -> String {
    let data = ErrorData { details: error.details() };
    let response = ErrorResponse { code: code(error), message: text(error), data };
    // Strings and valid JSON always encode.
    let response = serde_json::to_string(&response).unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{response}}}"#)
}
