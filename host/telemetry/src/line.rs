//! The common parts of log lines for requests and turns.

use std::time::Duration;

/// The target of the lines, for filters such as `ANNEX_LOG=info,annex_server::access=off`.
pub const ACCESS_TARGET: &str = "annex_server::access";

/// Milliseconds with three decimals, because the clock counts microseconds.
#[must_use]
pub fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}
