//! The errors that clients get for faults of extensions and stores.

use std::error::Error;

use annex_conversation::{AppendError, Excess, InvalidName, StoreError};
use annex_protocol::{A2aError, ExtensionUri};
use annex_runtime::{Fault, HookError};
use annex_telemetry::fault::log_with_id;
pub(crate) use annex_telemetry::fault::{log, log_for_client, text};
use uuid::Uuid;

/// Logs a fault with its causes. The client gets only the error id.
pub fn internal(fault: &(dyn Error + 'static)) -> A2aError {
    A2aError::Internal { error_id: log_for_client(fault) }
}

/// Logs a fault of an extension with its causes. The client gets only the error id, which the log lines of the extension
/// contain too.
pub(crate) fn of_extension(fault: &Fault) -> A2aError {
    annex_telemetry::with(|request| request.blame(fault.uri().as_str()));
    let error_id = fault.error_id().unwrap_or_else(Uuid::new_v4);
    log_with_id(error_id, fault);
    A2aError::Internal { error_id: error_id.to_string() }
}

/// The error for a client if a hook has refused the request or has failed.
pub(crate) fn of_hook(error: HookError) -> A2aError {
    match error {
        HookError::Refused(refusal) => refusal,
        HookError::Fault(Fault::Overloaded { uri }) => {
            warn_of(&uri, "no instance became free in time");
            A2aError::Overloaded { reason: "all extension instances are busy".to_owned() }
        }
        HookError::Fault(fault @ Fault::Busy { .. }) => {
            warn_of(fault.uri(), &fault.to_string());
            A2aError::Overloaded { reason: "an extension serves as many turns as it may".to_owned() }
        }
        HookError::Fault(Fault::Quarantined { uri, .. }) => {
            annex_telemetry::with(|request| request.blame(uri.as_str()));
            A2aError::Overloaded { reason: format!("extension {uri} failed several times in a row and is quarantined") }
        }
        // Nobody knows when the operator will reinstate the extension.
        HookError::Fault(fault @ Fault::Revoked { .. }) => {
            annex_telemetry::with(|request| request.blame(fault.uri().as_str()));
            A2aError::Unavailable { reason: fault.to_string(), retry_seconds: None }
        }
        HookError::Fault(fault) => of_extension(&fault),
    }
}

/// Logs that an extension is overloaded.
fn warn_of(extension: &ExtensionUri, reason: &str) {
    annex_telemetry::with(|request| request.blame(extension.as_str()));
    let ids = annex_telemetry::ids();
    let (tenant, context, task) = ids.all();
    tracing::warn!(target: crate::LOG_TARGET, %extension, tenant, context, task, "{reason}");
}

/// The error for a client if the store could not be read.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives errors away")]
pub(crate) fn of_store(error: StoreError) -> A2aError {
    internal(&error)
}

/// The error for a client whose message, task or turn could not be stored.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives errors away")]
pub(crate) fn of_append(error: AppendError) -> A2aError {
    match &error {
        AppendError::Fenced => lost_place(),
        AppendError::Stale { .. } => {
            let reason = "another process has changed the conversation; send the message again".to_owned();
            A2aError::Overloaded { reason }
        }
        AppendError::Full | AppendError::QueueFull { .. } => A2aError::Overloaded { reason: error.to_string() },
        // The events of the agent are too large. A message of the client is checked before its turn.
        AppendError::TooLarge(Excess::Task { .. }) => A2aError::InvalidAgentResponse { reason: error.to_string() },
        AppendError::Name(InvalidName::Context { .. }) => {
            A2aError::invalid_field("message.contextId", error.to_string())
        }
        AppendError::TooLarge(Excess::Artifact { .. }) | AppendError::Missing | AppendError::Store(_) => {
            internal(&error)
        }
        AppendError::TooLarge(_) | AppendError::Name(_) => A2aError::invalid_params(error.to_string()),
    }
}

/// The error for a client if this process lost the right to write before the message was accepted.
pub(crate) fn lost_place() -> A2aError {
    let reason = "this process has lost its place in the conversation; send the message again".to_owned();
    A2aError::Overloaded { reason }
}
