//! Logs, log tails and metrics of extensions.

pub(crate) mod log;
pub(crate) mod log_tail;
pub(crate) mod metrics;
pub(crate) mod trap;
