//! What log lines for requests and log lines for turns have in common.

use std::time::Duration;

/// The target of the access log, for filters such as `ANNEX_LOG=info,annex_server::access=off`.
pub const ACCESS_TARGET: &str = "annex_server::access";

/// Converts a duration to milliseconds. The result has three decimals, because the clock counts microseconds.
#[must_use]
pub fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}
