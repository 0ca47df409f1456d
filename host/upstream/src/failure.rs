//! Maps failed calls to the upstream to errors for the caller. An error about the request reaches the caller. A fault
//! of the upstream is reported by its kind only.

use annex_agent::AgentError;
use annex_auth::TokenFetchError;
use annex_client::{ClientError, RemoteError, Violation};
use annex_protocol::{A2aError, FieldViolation};
use http::StatusCode;

use crate::links::Link;

/// The upstream's error code for "task not found".
const TASK_NOT_FOUND: i64 = -32001;
const UNSUPPORTED_OPERATION: i64 = -32004;

/// The longest text of an upstream's error that is forwarded, in bytes. gRPC cannot carry more.
const MAX_TEXT_BYTES: usize = 1024;
/// The maximum number of field violations of an upstream's error that are forwarded.
const MAX_VIOLATIONS: usize = 64;

/// True if the upstream is at fault. False if the error is about the request.
pub(crate) fn is_fault(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. }
        | ClientError::TimedOut { .. }
        | ClientError::Broken { .. }
        | ClientError::Protocol { .. } => true,
        ClientError::Status { status, .. } => status.is_server_error(),
        // A refusal is an answer, so the upstream works.
        _ => false,
    }
}

/// The reason why a request has no access token. Nothing was sent to the upstream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoToken {
    /// The token is given in exchange for the token of the caller, which this server does not have.
    #[error("this server has no verified token of the caller to exchange for an access token")]
    NoCaller,
    /// The authorization server gives no token.
    #[error(transparent)]
    Fetch(#[from] TokenFetchError),
}

/// True if nothing was sent, because the request has no access token. Such an error says nothing about the upstream.
pub(crate) fn is_without_token(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(reason) if reason.is::<NoToken>())
}

/// True if the upstream does not accept the access token, or requires one. The upstream has not processed the request.
pub(crate) fn is_unauthenticated(error: &ClientError) -> bool {
    match error {
        ClientError::Status { status, .. } => *status == StatusCode::UNAUTHORIZED,
        ClientError::Agent(error) => error.reason.as_deref() == Some("UNAUTHENTICATED"),
        _ => false,
    }
}

/// True if the error means that the upstream does not know the conversation. `sent` contains the upstream's ids in the
/// request.
pub(crate) fn is_lost_context(error: &ClientError, sent: &Link) -> bool {
    // When a task was continued, the same code is about the task: `of_sending` says so.
    let Some(error) = error.agent().filter(|_| sent.context.is_some() && sent.waiting_task().is_none()) else {
        return false;
    };
    let names_context = |violation: &Violation| {
        let field = violation.field.to_ascii_lowercase();
        field.contains("contextid") || field.contains("context_id")
    };
    error.code == Some(TASK_NOT_FOUND) || error.violations().iter().any(names_context)
}

/// Maps the error of a call that sends a message. `sent` contains the upstream's ids in the request.
pub(crate) fn of_sending(error: ClientError, sent: &Link) -> AgentError {
    if is_lost_context(&error, sent) {
        let message =
            "The agent behind this server does not know this conversation. Begin a new one, without contextId.";
        return broken(message, error);
    }
    if is_overload(&error) {
        // The message was not processed, and may be sent again later.
        return AgentError::Refused(overload(&error));
    }
    let Some(answered) = error.agent() else { return of_transport(error) };
    let continues = sent.waiting_task().is_some();
    if continues && answered.code == Some(TASK_NOT_FOUND) {
        let message = "The agent behind this server does not know the task. Send the message again without taskId.";
        return broken(message, error);
    }
    // The task has ended at the upstream, or is working. Its state is read when a client asks for the task.
    if continues && answered.code == Some(UNSUPPORTED_OPERATION) {
        return AgentError::Refused(A2aError::UnsupportedOperation { reason: passed_on(&answered.message) });
    }
    match of_request(answered) {
        Some(refusal) => AgentError::Refused(refusal),
        None => of_transport(error),
    }
}

/// Maps the error of reading a task that the upstream should know.
pub(crate) fn of_lost_task(error: ClientError) -> AgentError {
    let is_unknown = error.agent().is_some_and(|error| error.code == Some(TASK_NOT_FOUND));
    if is_unknown {
        broken("The agent behind this server does not know the task. Send the message again.", error)
    } else {
        of_transport(error)
    }
}

/// The A2A error for the caller, if the upstream's error is about the request. `None` for any other error.
fn of_request(error: &RemoteError) -> Option<A2aError> {
    let reason = passed_on(&error.message);
    Some(match error.code? {
        -32602 => {
            let violations: Vec<FieldViolation> =
                error.violations().into_iter().take(MAX_VIOLATIONS).map(|told| violation(&told)).collect();
            if violations.is_empty() {
                A2aError::invalid_params(reason)
            } else {
                A2aError::InvalidParams { violations }
            }
        }
        UNSUPPORTED_OPERATION => A2aError::UnsupportedOperation { reason },
        -32005 => A2aError::ContentTypeNotSupported { content_type: content_type(error) },
        // Other errors are internal to the upstream, and their texts do not reach the caller.
        _ => return None,
    })
}

fn violation(violation: &Violation) -> FieldViolation {
    FieldViolation { field: passed_on(&violation.field), description: passed_on(&violation.description) }
}

/// The media type that the upstream's error details name. If they name none, the words `of a part`, which fit into the
/// error text at the position of the media type.
fn content_type(error: &RemoteError) -> String {
    let named = error.details.iter().find_map(|detail| {
        let detail: annex_protocol::JsonObject = detail.to().ok()?;
        let metadata: annex_protocol::JsonObject = detail.get("metadata")?.to().ok()?;
        metadata.get("contentType")?.to::<String>().ok()
    });
    named.map_or_else(|| "of a part".to_owned(), |named| passed_on(&named))
}

/// Cuts a text of the upstream's error at [`MAX_TEXT_BYTES`].
fn passed_on(text: &str) -> String {
    annex_text::cut(text.to_owned(), MAX_TEXT_BYTES)
}

/// Maps the error of a call that failed without an A2A error, or with an error that is not about the request.
pub(crate) fn of_transport(error: ClientError) -> AgentError {
    let message = match &error {
        ClientError::Unreachable { .. } => "The agent behind this server cannot be reached. Try again later.",
        ClientError::TimedOut { .. } => "The agent behind this server did not answer in time.",
        ClientError::Broken { .. } => "The connection to the agent behind this server broke off.",
        ClientError::TooLarge { .. } => "The answer of the agent behind this server is too large.",
        ClientError::Status { status, .. } => return broken(&of_status(*status), error),
        ClientError::Protocol { .. } => "The agent behind this server answered something else than A2A.",
        ClientError::Agent(error) if is_denial(error) => DENIED,
        ClientError::Agent(_) => "The agent behind this server answered with an error.",
        error if is_without_token(error) => NO_TOKEN,
        ClientError::NotCarried { .. } => "The message cannot be sent to the agent behind this server.",
        _ => "The agent behind this server could not be called.",
    };
    broken(message, error)
}

/// The error text for the caller if the upstream answered with an HTTP status and without an A2A error.
fn of_status(status: StatusCode) -> String {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => DENIED.to_owned(),
        status if status.is_redirection() => format!(
            "The agent behind this server answered with a redirect ({}), which is not followed: its card must have the final \
             address.",
            status.as_u16()
        ),
        status => format!("The agent behind this server answered with the HTTP status {status}."),
    }
}

/// The error text for the caller if the upstream requires credentials, or refuses the credentials of this server.
const DENIED: &str = "The agent behind this server does not accept the credentials of this server, or requires some.";

/// The error text for the caller if this server has no access token for the upstream.
const NO_TOKEN: &str = "This server cannot authenticate to the agent behind it.";

/// Tells whether the upstream refuses the credentials.
fn is_denial(error: &RemoteError) -> bool {
    matches!(error.reason.as_deref(), Some("UNAUTHENTICATED" | "PERMISSION_DENIED"))
}

/// True if the upstream refused the message because of load. The message may then be sent again later.
fn is_overload(error: &ClientError) -> bool {
    match error {
        ClientError::Status { status, .. } => {
            matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
        }
        ClientError::Agent(error) => {
            let reasons = ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "OVERLOADED", "QUOTA_EXCEEDED"];
            error.reason.as_deref().is_some_and(|reason| reasons.contains(&reason))
        }
        _ => false,
    }
}

/// The refusal for the client, with the upstream's `Retry-After` if it sent one.
fn overload(error: &ClientError) -> A2aError {
    let retry_seconds = match error {
        ClientError::Status { retry_after, .. } => *retry_after,
        _ => None,
    };
    A2aError::Unavailable { reason: "the agent behind this server accepts no messages now".to_owned(), retry_seconds }
}

pub(crate) fn broken(message: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AgentError {
    AgentError::Broken { message: message.to_owned(), source: source.into() }
}

/// A breach of the protocol: wrong ids, events out of order, or more data than the limits allow.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Deviation {
    #[error("the upstream answered in context {returned:?}, but the message was for {sent:?}")]
    OtherContext { sent: String, returned: String },
    #[error("the upstream sent an event of task {returned:?} in the stream of {expected:?}")]
    OtherTask { expected: String, returned: String },
    #[error("the upstream answered with a message that has no parts")]
    EmptyAnswer,
    #[error("the upstream sent {bytes} bytes and {artifacts} artifacts in one turn, and went on")]
    Endless { bytes: usize, artifacts: usize },
    #[error("the upstream's answer broke off before it named a task")]
    NoTask,
}

impl From<Deviation> for AgentError {
    fn from(deviation: Deviation) -> Self {
        let message = match &deviation {
            Deviation::OtherContext { .. } => "The agent behind this server answered in another conversation.",
            Deviation::EmptyAnswer => "The answer of the agent behind this server is empty.",
            Deviation::OtherTask { .. } => "The agent behind this server answered something else than A2A.",
            Deviation::Endless { .. } => "The answer of the agent behind this server is too large.",
            Deviation::NoTask => "The answer of the agent behind this server broke off.",
        };
        broken(message, deviation)
    }
}
