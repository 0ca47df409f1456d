//! Log lines for faults of the server. Each fault has an error id, and the client receives only this id.

use std::error::Error;

use uuid::Uuid;

use crate::scope::ids;
use crate::{LOG_TARGET, with};

/// The maximum size of one fault in the log, in bytes. The text of a trap contains the guest's stack, which may be
/// long.
const MAX_LOGGED: usize = 8 << 10;

/// Logs the fault with its causes, under an error id that no client receives.
pub fn log(fault: &(dyn Error + 'static)) {
    log_with_id(Uuid::new_v4(), fault);
}

/// Logs the fault with its causes under a new error id. Returns that id for the client.
#[must_use]
pub fn log_for_client(fault: &(dyn Error + 'static)) -> String {
    let error_id = Uuid::new_v4();
    log_with_id(error_id, fault);
    error_id.to_string()
}

/// Logs the fault with its causes under an existing error id.
pub fn log_with_id(error_id: Uuid, fault: &(dyn Error + 'static)) {
    let ids = ids();
    let (tenant, context, task) = ids.all();
    let trace_id = ids.trace();
    let text = text(fault);
    tracing::error!(target: LOG_TARGET, %error_id, tenant, context, task, trace_id, "{text}");
    with(|request| request.failed(&error_id.to_string(), &text));
}

/// Writes the error and its causes in one line. A guest may have written parts of the text, so the text is escaped and
/// cut.
#[must_use]
pub fn text(error: &(dyn Error + 'static)) -> String {
    annex_text::line_within(&annex_text::with_causes(error), MAX_LOGGED)
}
