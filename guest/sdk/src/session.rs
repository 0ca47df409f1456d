//! The session of the conversation that the turn belongs to (import `session-state`, needs the grant of that name).
//!
//! It shows the state at the moment of the call: before the turn in `validate`, with the turn's deltas in `respond`.

use crate::imports::session_state;
use crate::{Json, Scopes};

/// The value of a session-scope key, if it is set and the grant shows it.
pub fn get(key: &str) -> Option<Json> {
    session_state::get(key)
}

/// All session-scope keys that the grant shows, as one JSON object in the order in which they were first set.
pub fn snapshot() -> Json {
    session_state::snapshot()
}

/// The scopes that a delta of this extension may write.
pub fn writable() -> Scopes {
    session_state::writable()
}
