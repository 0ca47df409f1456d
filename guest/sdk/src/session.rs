//! The session of the turn's conversation (import `session-state`, needs the grant of that name).
//!
//! The functions return the state at the time of the call: in `validate` the state before the turn, in `respond` the
//! state with the turn's deltas.

use crate::imports::session_state;
use crate::{Json, Scopes};

/// The value of a session-scope key, if the key is set and the grant covers it.
pub fn get(key: &str) -> Option<Json> {
    session_state::get(key)
}

/// All session-scope keys that the grant covers, as one JSON object, in the order in which they were first set.
pub fn snapshot() -> Json {
    session_state::snapshot()
}

/// The scopes that a delta of this extension may change.
pub fn writable() -> Scopes {
    session_state::writable()
}
