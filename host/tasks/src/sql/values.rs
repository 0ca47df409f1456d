//! Numbers as databases count them.

use annex_database::Value;

/// Databases count with a sign; no task has so many events that it matters.
pub(super) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

pub(super) fn limit_value(limit: usize) -> Value<'static> {
    Value::Int(i64::try_from(limit).unwrap_or(i64::MAX))
}
