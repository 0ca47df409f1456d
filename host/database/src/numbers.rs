//! Conversion between Rust integers and the signed 64-bit integers of SQL.

use crate::Value;

/// Converts to a signed SQL integer. Values that do not fit become `i64::MAX`.
#[must_use]
pub fn to_sql(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Converts a count from SQL. A number that does not fit, such as a negative number, becomes 0.
#[must_use]
pub fn from_sql<N: TryFrom<i64> + Default>(number: i64) -> N {
    number.try_into().unwrap_or_default()
}

impl Value<'_> {
    /// A count as a parameter; `i64::MAX` if the count is larger.
    #[must_use]
    pub fn count(number: impl TryInto<i64>) -> Self {
        Self::Int(to_sql(number))
    }
}
