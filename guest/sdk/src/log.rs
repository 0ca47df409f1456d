//! Writes lines to the host's log. The host adds the extension's name and limits the lines of one turn.

use crate::imports::logging::{Level, log};

/// The `context` of each line, empty because the host already knows the extension.
const CONTEXT: &str = "";

/// Logs a line for the author of the extension.
pub fn debug(message: &str) {
    log(Level::Debug, CONTEXT, message);
}

/// Logs information for the operator.
pub fn info(message: &str) {
    log(Level::Info, CONTEXT, message);
}

/// Logs a warning for the operator.
pub fn warn(message: &str) {
    log(Level::Warn, CONTEXT, message);
}

/// Logs an error. The hook continues and does not fail.
pub fn error(message: &str) {
    log(Level::Error, CONTEXT, message);
}
