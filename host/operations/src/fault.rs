//! Faults that are not the client's: logged in full under an error id, told to the client by that id alone.

use std::error::Error;

use annex_protocol::{A2aError, ExtensionUri};
use annex_runtime::{Fault, HookError};
use annex_session::SessionError;
use annex_tasks::StoreError;
use uuid::Uuid;

/// Logs the fault with its causes and gives the client an error id.
pub fn internal(fault: &(dyn Error + 'static)) -> A2aError {
    A2aError::Internal { error_id: logged(fault) }
}

/// The fault of an extension: as [`internal`], under the id that the extension's own lines in the log have.
pub(crate) fn of_extension(fault: &Fault) -> A2aError {
    annex_telemetry::with(|request| request.blame(fault.uri().as_str()));
    A2aError::Internal { error_id: logged_under(fault.error_id().unwrap_or_else(Uuid::new_v4), fault) }
}

/// Logs the fault with its causes under a new error id.
pub fn logged(fault: &(dyn Error + 'static)) -> String {
    logged_under(Uuid::new_v4(), fault)
}

fn logged_under(error_id: Uuid, fault: &(dyn Error + 'static)) -> String {
    let ids = annex_telemetry::ids();
    let (tenant, context, task) = ids.all();
    tracing::error!(target: crate::LOG_TARGET, %error_id, tenant, context, task, "{}", text(fault));
    let error_id = error_id.to_string();
    annex_telemetry::with(|request| drop(request.error_id.set(error_id.as_str().into())));
    error_id
}

/// The error and everything that caused it, in one line that is fit for a log: parts of it are a guest's words.
pub fn text(error: &(dyn Error + 'static)) -> String {
    annex_text::line_within(&annex_text::with_causes(error), MAX_LOGGED)
}

/// Bytes of one logged fault; a trap brings the stack of the guest.
const MAX_LOGGED: usize = 8 << 10;

/// The error that the client gets when a hook stopped its request.
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
        HookError::Fault(fault) => of_extension(&fault),
    }
}

/// An extension has too much to do.
fn warn_of(extension: &ExtensionUri, reason: &str) {
    annex_telemetry::with(|request| request.blame(extension.as_str()));
    let ids = annex_telemetry::ids();
    let (tenant, context, task) = ids.all();
    tracing::warn!(target: crate::LOG_TARGET, %extension, tenant, context, task, "{reason}");
}

/// The error that the client gets when its task could not be read or stored.
pub(crate) fn of_store(error: StoreError) -> A2aError {
    match error {
        StoreError::NotFound { task } => A2aError::TaskNotFound { task_id: task },
        StoreError::Full => A2aError::Overloaded { reason: error.to_string() },
        // The agent's events are too large: a message of the client is checked before its turn.
        StoreError::TooLarge { .. } => A2aError::InvalidAgentResponse { reason: error.to_string() },
        StoreError::InvalidKey { .. } => A2aError::invalid_params(error.to_string()),
        StoreError::Fenced { .. } => A2aError::Overloaded { reason: error.to_string() },
        StoreError::AlreadyExists { .. }
        | StoreError::Stale { .. }
        | StoreError::TooManyConfigs { .. }
        | StoreError::Unreadable { .. }
        | StoreError::Encoding(_)
        | StoreError::File { .. }
        | StoreError::Migration(_)
        | StoreError::Database(_) => internal(&error),
    }
}

/// The error that the client gets when the lease of this process was over before there was a task.
pub(crate) fn lost_place() -> A2aError {
    let reason = "this process has lost its place in the conversation; send the message again".to_owned();
    A2aError::Overloaded { reason }
}

/// The error that the client gets when its session refused the turn.
pub(crate) fn of_session(error: &SessionError) -> A2aError {
    match error {
        SessionError::TooManyTurns { .. } => A2aError::Overloaded { reason: error.to_string() },
        SessionError::StateTooLarge { .. }
        | SessionError::TooManyStateKeys { .. }
        | SessionError::StateTooDeep { .. }
        | SessionError::UnseenCharacters { .. }
        | SessionError::InvalidKey { .. } => A2aError::invalid_params(error.to_string()),
        SessionError::Stale { .. } => {
            let reason = "another process has changed the conversation; send the message again".to_owned();
            A2aError::Overloaded { reason }
        }
        SessionError::Fenced { .. } => lost_place(),
        SessionError::InvalidContextId { .. } => A2aError::invalid_field("message.contextId", error.to_string()),
        SessionError::NotFound { .. }
        | SessionError::AlreadyExists { .. }
        | SessionError::EventConflict { .. }
        | SessionError::ArtifactTooLarge { .. }
        | SessionError::Unreadable { .. }
        | SessionError::Encoding(_)
        | SessionError::Database(_) => internal(error),
    }
}
