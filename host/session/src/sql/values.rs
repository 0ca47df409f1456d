//! Keys as parameters of statements.

use annex_database::Value;

use crate::session::SessionKey;

/// The id of a session that does not exist.
pub(super) const NO_SESSION: i64 = -1;

/// The names that a session is found by.
pub(super) fn named(key: &SessionKey) -> [Value<'_>; 4] {
    [Value::Text(&key.tenant), Value::Text(&key.app), Value::Text(&key.user), Value::Text(key.context.as_str())]
}
