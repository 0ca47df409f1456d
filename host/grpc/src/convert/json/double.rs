//! Conversion of JSON numbers to doubles.

use crate::convert::FieldError;

/// 2^53, above which some integers have no equal double.
const FIRST_GAP: f64 = 9_007_199_254_740_992.0;

/// The double for a JSON number. A fraction becomes the nearest double.
///
/// # Errors
/// When the number is an integer without an equal double, such as `9007199254740993`, or is beyond the range of
/// doubles.
pub(super) fn double_of(number: &str) -> Result<f64, FieldError> {
    let double: f64 = number.parse().map_err(FieldError::not_carried)?;
    if double.is_infinite() {
        return Err(FieldError::not_carried(format_args!("{} is beyond the range of doubles", shortened(number))));
    }
    // Below 2^53 each integer has its own double, so nothing needs to be compared.
    if double.abs() < FIRST_GAP || stands_for(double, number) {
        return Ok(double);
    }
    Err(FieldError::not_carried(format_args!("{} is an integer without an equal double", shortened(number))))
}

/// Tells whether `double`, which is at least 2^53, is the value that the author of `number` meant. Digits without an
/// exponent or a point mean exactly that integer. Otherwise the author probably started from a double, and wrote only
/// as many digits as identify that double.
fn stands_for(double: f64, number: &str) -> bool {
    // Compared as decimal digits, because a comparison of doubles would have rounded already.
    let value = Decimal::of(number);
    let is_written_as_integer = !number.contains(['.', 'e', 'E']);
    // A fraction becomes the nearest double, as every reader of JSON makes it.
    value.exponent < 0
        || value == Decimal::of(&format!("{double:.0}"))
        // `{:e}` writes the fewest digits that tell the double from others, as its author's library did.
        || (!is_written_as_integer && value == Decimal::of(&format!("{double:e}")))
}

/// The value of a number, independent of its notation: `digits` times ten to the power of `exponent`. `digits` is an
/// integer without leading or trailing zeros.
#[derive(PartialEq)]
struct Decimal {
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(number: &str) -> Self {
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{}{fraction}", whole.trim_start_matches('-'));
        let significant = digits.trim_end_matches('0');
        let zeros = digits.len() - significant.len();
        // An exponent that is out of range here belongs to no double of at least 2^53.
        let exponent: i64 = exponent.parse().unwrap_or(i64::MIN / 2);
        let exponent = exponent + zeros as i64 - fraction.len() as i64;
        Self { digits: significant.trim_start_matches('0').to_owned(), exponent }
    }
}

/// The beginning of a number, for an error text. A number may have as many digits as fit into the document.
fn shortened(number: &str) -> String {
    const SHOWN: usize = 40;
    if number.len() <= SHOWN { number.to_owned() } else { number.chars().take(SHOWN).chain(['…']).collect() }
}
