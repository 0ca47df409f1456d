//! Dates in tokens: seconds since 1970, as floating-point numbers.

use annex_sdk::clock;

/// Converts a date in seconds since 1970 to whole seconds. Dates before 1970 become 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
pub(crate) fn seconds(date: f64) -> u64 {
    date as u64
}

/// The current time in seconds since 1970.
pub(crate) fn seconds_now() -> f64 {
    duration(clock::now_seconds())
}

/// Converts whole seconds to a floating-point number. Dates in tokens are such numbers, because they may have
/// fractions.
#[expect(clippy::cast_precision_loss, reason = "exact for all seconds of the next 285 million years")]
pub(crate) fn duration(seconds: u64) -> f64 {
    seconds as f64
}
