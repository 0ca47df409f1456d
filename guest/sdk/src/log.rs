//! Lines for the host's log, which adds the extension's name. The host bounds how much one turn may write.

use crate::imports::logging::{Level, log};

/// The `context` of each line; the host already knows which extension speaks.
const CONTEXT: &str = "";

/// Logs a line that is for the author only.
pub fn debug(message: &str) {
    log(Level::Debug, CONTEXT, message);
}

/// Logs something that an operator may want to know.
pub fn info(message: &str) {
    log(Level::Info, CONTEXT, message);
}

/// Logs something that an operator should look at.
pub fn warn(message: &str) {
    log(Level::Warn, CONTEXT, message);
}

/// Logs something that went wrong. The call fails nothing by itself.
pub fn error(message: &str) {
    log(Level::Error, CONTEXT, message);
}
