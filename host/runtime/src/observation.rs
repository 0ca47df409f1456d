//! The log, the last lines of it, and the counters of each extension.

pub(crate) mod log;
pub(crate) mod log_tail;
pub(crate) mod metrics;
pub(crate) mod trap;
