//! What the lines of requests and of turns have in common.

use std::time::Duration;

/// What operators filter the lines by, as in `ANNEX_LOG=info,annex_server::access=off`.
pub const ACCESS_TARGET: &str = "annex_server::access";

/// Milliseconds in thousandths, of which a clock of microseconds has no more.
#[must_use]
pub fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}
