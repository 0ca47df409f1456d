//! Numbers as databases have them: with a sign. No number here is so large that the sign matters.

use crate::Value;

/// The number as databases have it; the largest one if it is larger.
#[must_use]
pub fn to_sql(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// A number of a database that counts something; 0 if it is below.
#[must_use]
pub fn from_sql<N: TryFrom<i64> + Default>(number: i64) -> N {
    number.try_into().unwrap_or_default()
}

impl Value<'_> {
    /// A number of things, bytes or the like.
    #[must_use]
    pub fn count(number: impl TryInto<i64>) -> Self {
        Self::Int(to_sql(number))
    }
}
