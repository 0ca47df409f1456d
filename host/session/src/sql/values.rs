//! Keys and numbers as parameters of statements.

use annex_database::Value;

use crate::session::SessionKey;

/// The id of a session that does not exist.
pub(super) const NO_SESSION: i64 = -1;

/// What a session is found by.
pub(super) fn named(key: &SessionKey) -> [Value<'_>; 4] {
    [Value::Text(&key.tenant), Value::Text(&key.app), Value::Text(&key.user), Value::Text(key.context.as_str())]
}

/// Databases count with a sign; nothing here is so many that it matters.
pub(super) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

pub(super) fn size_to_sql(size: usize) -> Value<'static> {
    Value::Int(i64::try_from(size).unwrap_or(i64::MAX))
}
