//! Failed calls to the upstream, as the caller is told of them: an error of the request, or a fault that is told by its
//! kind.

use annex_agent::AgentError;
use annex_client::{ClientError, RemoteError, Violation};
use annex_protocol::{A2aError, FieldViolation};

use crate::links::Link;

/// The upstream says that there is no such task, or that it takes no message.
const TASK_NOT_FOUND: i64 = -32001;
const UNSUPPORTED_OPERATION: i64 = -32004;

/// Tells whether the upstream is at fault, rather than the request.
pub(crate) fn is_fault(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. }
        | ClientError::TimedOut { .. }
        | ClientError::Broken { .. }
        | ClientError::Protocol { .. } => true,
        ClientError::Status { status, .. } => status.is_server_error(),
        // A refusal is an answer, and the upstream works.
        _ => false,
    }
}

/// Tells whether the upstream says that it does not know the conversation.
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

/// The error that sending a message ended with. `sent` has the upstream's ids that were sent.
pub(crate) fn of_sending(error: ClientError, sent: &Link) -> AgentError {
    if is_lost_context(&error, sent) {
        let message = "The agent behind this server does not know this conversation any more. Begin a new one, without \
                       contextId.";
        return broken(message, error);
    }
    let Some(answered) = error.agent() else { return of_transport(error) };
    // A2A 1.0 answers a message to a task that has ended with UnsupportedOperationError.
    let continues = sent.waiting_task().is_some();
    if continues && matches!(answered.code, Some(TASK_NOT_FOUND | UNSUPPORTED_OPERATION)) {
        let message = "The agent behind this server does not know the task any more, or takes no message for it. Send the \
                       message again without taskId.";
        return broken(message, error);
    }
    match of_request(answered) {
        Some(refusal) => AgentError::Refused(refusal),
        None => broken("The agent behind this server answered with an error.", error),
    }
}

/// A task cannot be read, although the upstream answers.
pub(crate) fn of_lost_task(error: ClientError) -> AgentError {
    let is_unknown = error.agent().is_some_and(|error| error.code == Some(TASK_NOT_FOUND));
    if is_unknown {
        broken("The agent behind this server does not know the task any more. Send the message again.", error)
    } else {
        of_transport(error)
    }
}

/// The upstream's error as it is told to the caller, when it is about the request.
fn of_request(error: &RemoteError) -> Option<A2aError> {
    let reason = error.message.clone();
    Some(match error.code? {
        -32602 => {
            let violations: Vec<FieldViolation> = error.violations().into_iter().map(violation).collect();
            if violations.is_empty() {
                A2aError::invalid_params(reason)
            } else {
                A2aError::InvalidParams { violations }
            }
        }
        UNSUPPORTED_OPERATION => A2aError::UnsupportedOperation { reason },
        -32005 => A2aError::ContentTypeNotSupported { content_type: content_type(error) },
        // Other errors are the upstream's own business, and their words do not reach the caller.
        _ => return None,
    })
}

fn violation(violation: Violation) -> FieldViolation {
    FieldViolation { field: violation.field, description: violation.description }
}

/// The media type that the upstream names in the details, if it does.
fn content_type(error: &RemoteError) -> String {
    let named = error.details.iter().find_map(|detail| {
        let detail: annex_protocol::JsonObject = detail.to().ok()?;
        let metadata: annex_protocol::JsonObject = detail.get("metadata")?.to().ok()?;
        metadata.get("contentType")?.to::<String>().ok()
    });
    named.unwrap_or_else(|| "of a part".to_owned())
}

/// The upstream did not answer, or answered something that A2A does not have.
pub(crate) fn of_transport(error: ClientError) -> AgentError {
    let message = match &error {
        ClientError::Unreachable { .. } => "The agent behind this server cannot be reached. Try again later.",
        ClientError::TimedOut { .. } => "The agent behind this server did not answer in time.",
        ClientError::Broken { .. } => "The connection to the agent behind this server broke off.",
        ClientError::TooLarge { .. } => "The answer of the agent behind this server is too large.",
        ClientError::Protocol { .. } | ClientError::Status { .. } => {
            "The agent behind this server answered something else than A2A."
        }
        ClientError::Agent(_) => "The agent behind this server answered with an error.",
        ClientError::NotCarried { .. } => "The message cannot be sent to the agent behind this server.",
        _ => "The agent behind this server could not be asked.",
    };
    broken(message, error)
}

pub(crate) fn broken(message: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> AgentError {
    AgentError::Broken { message: message.to_owned(), source: source.into() }
}

/// The upstream does not keep to its own ids or to the order of events.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Deviation {
    #[error("the upstream answered in context {returned:?} when it was asked in {sent:?}")]
    OtherContext { sent: String, returned: String },
    #[error("the upstream sent an event of task {returned:?} in the stream of {expected:?}")]
    OtherTask { expected: String, returned: String },
    #[error("the upstream sent a message after its task had begun")]
    LateMessage,
    #[error("the upstream sent {bytes} bytes and {artifacts} artifacts in one turn, and went on")]
    Endless { bytes: usize, artifacts: usize },
    #[error("the upstream named no task that could be asked for, and its answer broke off")]
    NoTask,
}

impl From<Deviation> for AgentError {
    fn from(deviation: Deviation) -> Self {
        let message = match &deviation {
            Deviation::OtherContext { .. } => {
                "The agent behind this server answered in another conversation than it was asked in."
            }
            Deviation::OtherTask { .. } | Deviation::LateMessage => {
                "The agent behind this server answered something else than A2A."
            }
            Deviation::Endless { .. } => "The answer of the agent behind this server is too large.",
            Deviation::NoTask => "The answer of the agent behind this server broke off.",
        };
        broken(message, deviation)
    }
}
