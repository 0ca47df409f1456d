//! The table of all errors: the form of each error on JSON-RPC, HTTP+JSON and gRPC (specification sections 3.3.2 and 5.4).

use std::fmt;

use serde::Serialize;

use crate::error_text::{body_type, unknown_extensions, version};
use crate::portable::Unportable;
use crate::{ExtensionUri, GrpcStatus, Json, TaskId, TaskState};

/// An error that is sent to a client.
///
/// The messages are for the developer of the client: what is wrong, where, and what to do.
///
/// ```
/// use annex_protocol::{A2aError, TaskId};
///
/// let error = A2aError::TaskNotFound { task_id: TaskId::new("t-1") };
/// assert_eq!((error.code(), error.http_status()), (-32001, 404));
/// assert_eq!(error.grpc_status().name(), "NOT_FOUND");
/// assert_eq!(error.reason(), "TASK_NOT_FOUND");
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum A2aError {
    /// The task does not exist, has expired, or belongs to another caller. Clients cannot tell these cases apart.
    #[error("task {task_id} was not found; it may have expired or belong to another caller")]
    TaskNotFound {
        /// The id that the client sent.
        task_id: TaskId,
    },
    /// The task exists, but has no push notification config with this id.
    #[error(
        "task {task_id} has no push notification config {config_id:?}; ListTaskPushNotificationConfigs has those it has"
    )]
    PushConfigNotFound {
        /// The id that the client sent.
        task_id: TaskId,
        /// The config id that the client sent.
        config_id: String,
    },
    /// The task cannot be cancelled, because it has ended.
    #[error("task {task_id} cannot be canceled because it is in state {state}")]
    TaskNotCancelable {
        /// The id that the client sent.
        task_id: TaskId,
        /// The state in which the task ended.
        state: TaskState,
    },
    /// The agent does not send push notifications.
    #[error("this agent does not send push notifications; use SubscribeToTask or GetTask to follow a task")]
    PushNotificationNotSupported,
    /// The agent does not support this operation, or not for this task.
    #[error("unsupported operation: {reason}")]
    UnsupportedOperation {
        /// What is not supported, and what the client can do instead.
        reason: String,
    },
    /// The agent does not accept this media type.
    #[error("content type {content_type} is not supported; the agent card lists the supported input modes")]
    ContentTypeNotSupported {
        /// The media type.
        content_type: String,
    },
    /// The content type of the request is not JSON.
    #[error("{}", body_type(.content_type))]
    BodyTypeNotSupported {
        /// The media type that the client sent; empty when it sent none.
        content_type: String,
    },
    /// The agent behind the server broke the protocol.
    #[error("the agent gave an invalid response: {reason}")]
    InvalidAgentResponse {
        /// The fault in the response.
        reason: String,
    },
    /// The agent declares an extended card and has none.
    #[error("this agent has no extended agent card configured; use the public card")]
    ExtendedAgentCardNotConfigured,
    /// The client did not activate extensions that the agent requires.
    #[error(
        "required extensions are not active: {}; list them in the A2A-Extensions header{}",
        comma_separated(.missing),
        unknown_extensions(.missing, .unknown)
    )]
    ExtensionSupportRequired {
        /// The extensions that the client has to activate.
        missing: Vec<ExtensionUri>,
        /// The extensions that the client requested and this server does not know. One of them may be a misspelt
        /// required extension.
        unknown: Vec<ExtensionUri>,
    },
    /// A version of A2A that the server does not speak.
    #[error("{}", version(.requested, .supported))]
    VersionNotSupported {
        /// The version that the client asked for; empty when it named none.
        requested: String,
        /// The versions that the server speaks.
        supported: &'static [&'static str],
    },
    /// The path belongs to one version of A2A, and the request's version header names another version.
    #[error(
        "/{path} is a path of A2A {of}, and the request names A2A {requested}; send it to the path without `v1`, or name \
         the version {of}"
    )]
    PathOfOtherVersion {
        /// The path within the binding. The path at which the server offers the binding is not included.
        path: String,
        /// The version of A2A that has this path.
        of: &'static str,
        /// The version that the client asked for.
        requested: String,
    },
    /// The body is not JSON.
    #[error("the request is not valid JSON: {reason}")]
    Parse {
        /// The fault, with its line and column.
        reason: String,
    },
    /// The body is JSON but no JSON-RPC request.
    #[error("invalid request: {reason}")]
    InvalidRequest {
        /// The fault in the request.
        reason: String,
    },
    /// The method does not exist.
    #[error("method `{method}` does not exist; A2A 1.0 methods are called like SendMessage or GetTask")]
    MethodNotFound {
        /// The method that the client called.
        method: String,
    },
    /// The parameters of the method are wrong.
    #[error("invalid parameters: {}", semicolon_separated(.violations))]
    InvalidParams {
        /// The faults, field by field.
        violations: Vec<FieldViolation>,
    },
    /// A fault of the server. Only the log has the cause.
    #[error("internal error; the log has the details under error id {error_id}")]
    Internal {
        /// The id under which the log has the cause.
        error_id: String,
    },
    /// The server is overloaded.
    #[error("the server is overloaded: {reason}; try again later")]
    Overloaded {
        /// The resource that is exhausted.
        reason: String,
    },
    /// The tenant or the caller has used up a quota.
    #[error("the {}'s quota `{quota}` is used up: {used} of {limit}; try again in {retry_seconds} s", of_whom(.quota))]
    QuotaExceeded {
        /// The quota, by its key in the config.
        quota: &'static str,
        /// The amount that is in use or was used.
        used: u64,
        /// The limit of the quota.
        limit: u64,
        /// Seconds after which the request may be sent again.
        retry_seconds: u64,
    },
    /// The agent cannot be reached now. Other agents of this server may be reachable.
    #[error("{reason}; try again {}", when(.retry_seconds.as_ref()))]
    Unavailable {
        /// What is unavailable, in as much detail as clients may know.
        reason: String,
        /// Seconds after which the request may be sent again. `None` if the time is not known.
        retry_seconds: Option<u64>,
    },
    /// The request has no valid credentials (specification section 7.4). The HTTP status is 401 on all bindings.
    #[error("{reason}; the agent card lists the security schemes")]
    Unauthenticated {
        /// The missing or wrong credential, without its value.
        reason: String,
        /// The value of the header `WWW-Authenticate`.
        challenge: String,
    },
    /// An error that an extension defines.
    #[error("{message}")]
    Extension {
        /// The extension.
        uri: ExtensionUri,
        /// The JSON-RPC code from the extension's specification.
        code: i32,
        /// The text for the developer of the client.
        message: String,
        /// The data that the extension adds.
        data: Option<Json>,
    },
}

/// A fault in one field of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldViolation {
    /// The path of the field, such as `message.parts[2].raw`; empty for the request as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// The fault, without the name of the field.
    pub description: String,
}

impl fmt::Display for FieldViolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            return formatter.write_str(&self.description);
        }
        write!(formatter, "{}: {}", self.field, self.description)
    }
}

struct Row {
    code: i32,
    http_status: u16,
    grpc_status: GrpcStatus,
    reason: &'static str,
}

const fn row(code: i32, http_status: u16, grpc_status: GrpcStatus, reason: &'static str) -> Row {
    Row { code, http_status, grpc_status, reason }
}

/// Makes an [`A2aError::InvalidParams`] about the field whose value some readers cannot read.
impl From<Unportable> for A2aError {
    fn from(unportable: Unportable) -> Self {
        let reason = unportable.reason();
        Self::invalid_field(unportable.place, reason)
    }
}

/// The maximum size of each text in an error, in bytes. Longer texts are cut, because a text may repeat what the client
/// sent.
pub(crate) const MAX_TEXT_BYTES: usize = 4096;

impl A2aError {
    /// The error's text for a client, of at most 4 KiB.
    pub fn message(&self) -> String {
        annex_text::cut(self.to_string(), MAX_TEXT_BYTES)
    }

    /// Makes an [`A2aError::InvalidParams`] about the request as a whole.
    pub fn invalid_params(reason: impl Into<String>) -> Self {
        Self::invalid_field("", reason)
    }

    /// Makes an [`A2aError::InvalidParams`] about one field.
    pub fn invalid_field(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self::InvalidParams {
            violations: vec![FieldViolation { field: field.into(), description: description.into() }],
        }
    }

    /// The JSON-RPC error code.
    pub fn code(&self) -> i32 {
        self.row().code
    }

    /// The HTTP status of the HTTP+JSON binding. The JSON-RPC binding answers errors with 200, unless the request is
    /// refused earlier, such as for missing credentials.
    pub fn http_status(&self) -> u16 {
        self.row().http_status
    }

    /// The gRPC status, which HTTP+JSON repeats by name.
    pub fn grpc_status(&self) -> GrpcStatus {
        self.row().grpc_status
    }

    /// `google.rpc.ErrorInfo.reason`: the error's name, the same on all bindings.
    pub fn reason(&self) -> &'static str {
        self.row().reason
    }

    /// Seconds after which the request may be sent again; `None` if the time is not known. HTTP sends them as
    /// `Retry-After`.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::QuotaExceeded { retry_seconds, .. } => Some(*retry_seconds),
            Self::Unavailable { retry_seconds, .. } => *retry_seconds,
            _ => None,
        }
    }

    /// The JSON-RPC code of errors with this reason. Used by clients, for errors from a binding that sends no code.
    /// `None` for an unknown reason, and for errors of extensions, which have codes of their own.
    pub fn code_of_reason(reason: &str) -> Option<i32> {
        Some(match reason {
            "TASK_NOT_FOUND" => -32001,
            "TASK_NOT_CANCELABLE" => -32002,
            "PUSH_NOTIFICATION_NOT_SUPPORTED" => -32003,
            "UNSUPPORTED_OPERATION" => -32004,
            "CONTENT_TYPE_NOT_SUPPORTED" => -32005,
            "INVALID_AGENT_RESPONSE" => -32006,
            "EXTENDED_AGENT_CARD_NOT_CONFIGURED" => -32007,
            "EXTENSION_SUPPORT_REQUIRED" => -32008,
            "VERSION_NOT_SUPPORTED" => -32009,
            "PARSE_ERROR" => -32700,
            "INVALID_REQUEST" => -32600,
            "METHOD_NOT_FOUND" => -32601,
            "INVALID_PARAMS" => -32602,
            "INTERNAL" => -32603,
            // Errors of extensions have no code here: theirs are in the metadata of the ErrorInfo.
            "OVERLOADED" | "QUOTA_EXCEEDED" | "UNAVAILABLE" | "UNAUTHENTICATED" => -32000,
            _ => return None,
        })
    }

    fn row(&self) -> Row {
        use GrpcStatus::{
            FailedPrecondition, Internal, InvalidArgument, NotFound, ResourceExhausted, Unauthenticated, Unavailable,
        };

        match self {
            // Codes and statuses are those of 1.0.1 (section 5.4). 1.0.0 had others for some, such as HTTP 409 for a
            // task that cannot be canceled, or UNIMPLEMENTED for a version that is not supported. A2A has one error for
            // a missing task and for a missing push config.
            Self::TaskNotFound { .. } | Self::PushConfigNotFound { .. } => row(-32001, 404, NotFound, "TASK_NOT_FOUND"),
            Self::TaskNotCancelable { .. } => row(-32002, 400, FailedPrecondition, "TASK_NOT_CANCELABLE"),
            Self::PushNotificationNotSupported => {
                row(-32003, 400, FailedPrecondition, "PUSH_NOTIFICATION_NOT_SUPPORTED")
            }
            Self::UnsupportedOperation { .. } => row(-32004, 400, FailedPrecondition, "UNSUPPORTED_OPERATION"),
            Self::ContentTypeNotSupported { .. } | Self::BodyTypeNotSupported { .. } => {
                row(-32005, 400, InvalidArgument, "CONTENT_TYPE_NOT_SUPPORTED")
            }
            Self::InvalidAgentResponse { .. } => row(-32006, 500, Internal, "INVALID_AGENT_RESPONSE"),
            Self::ExtendedAgentCardNotConfigured => {
                row(-32007, 400, FailedPrecondition, "EXTENDED_AGENT_CARD_NOT_CONFIGURED")
            }
            Self::ExtensionSupportRequired { .. } => row(-32008, 400, FailedPrecondition, "EXTENSION_SUPPORT_REQUIRED"),
            Self::VersionNotSupported { .. } | Self::PathOfOtherVersion { .. } => {
                row(-32009, 400, FailedPrecondition, "VERSION_NOT_SUPPORTED")
            }
            Self::Parse { .. } => row(-32700, 400, InvalidArgument, "PARSE_ERROR"),
            Self::InvalidRequest { .. } => row(-32600, 400, InvalidArgument, "INVALID_REQUEST"),
            Self::MethodNotFound { .. } => row(-32601, 404, NotFound, "METHOD_NOT_FOUND"),
            Self::InvalidParams { .. } => row(-32602, 400, InvalidArgument, "INVALID_PARAMS"),
            Self::Internal { .. } => row(-32603, 500, Internal, "INTERNAL"),
            // JSON-RPC leaves -32000 to -32099 to servers, and the codes of A2A begin at -32001.
            Self::Overloaded { .. } => row(-32000, 503, Unavailable, "OVERLOADED"),
            Self::QuotaExceeded { .. } => row(-32000, 429, ResourceExhausted, "QUOTA_EXCEEDED"),
            Self::Unavailable { .. } => row(-32000, 503, Unavailable, "UNAVAILABLE"),
            Self::Unauthenticated { .. } => row(-32000, 401, Unauthenticated, "UNAUTHENTICATED"),
            // A2A reserves nothing for the errors of extensions, so all of them get one pair of statuses.
            Self::Extension { code, .. } => row(*code, 400, FailedPrecondition, "EXTENSION_ERROR"),
        }
    }
}

pub(crate) fn comma_separated<'a>(uris: impl IntoIterator<Item = &'a ExtensionUri, IntoIter: Clone>) -> String {
    let uris = uris.into_iter();
    // `service::format_extensions` writes the header with it, so a message shows the list as it is to be sent.
    let mut list = String::with_capacity(uris.clone().map(|uri| uri.as_str().len() + 1).sum());
    for uri in uris {
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(uri.as_str());
    }
    list
}

/// The words after `try again` in an error message: `in 5 s`, or `later` if the time is unknown.
/// The owner of a quota. The keys of the quotas of callers begin with `caller.`.
fn of_whom(quota: &str) -> &'static str {
    if quota.starts_with("caller.") { "caller" } else { "tenant" }
}

fn when(seconds: Option<&u64>) -> String {
    seconds.map_or_else(|| "later".to_owned(), |seconds| format!("in {seconds} s"))
}

fn semicolon_separated(violations: &[FieldViolation]) -> String {
    violations.iter().map(FieldViolation::to_string).collect::<Vec<_>>().join("; ")
}
