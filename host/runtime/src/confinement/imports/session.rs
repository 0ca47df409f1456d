//! Session state of the turn, restricted by the grant `session-state`.

use annex_protocol::{Json, JsonObject};

use crate::confinement::grants::{Grants, StateScope};
use crate::confinement::store::HostState;
use crate::turn_view::TurnView;

impl HostState {
    /// The JSON text of a session-scope key that the grant allows to read.
    pub(crate) fn session_value(&self, key: &str) -> Option<String> {
        let turn = self.turn.as_ref().filter(|_| self.profile.grants.may_read(key));
        turn.and_then(|turn| turn.session_value(key))
    }

    /// A JSON object of all session-scope keys that the grant allows to read.
    pub(crate) fn session_snapshot(&mut self) -> wasmtime::Result<String> {
        // There is no session while the component is loaded. The contract requires an object.
        let Some(turn) = &self.turn else { return Ok("{}".to_owned()) };
        let shown = visible_session(turn.as_ref(), &self.profile.grants).to_json()?;
        let text = shown.get().to_owned();
        // A `response` hook may return this text unchanged. `outgoing::checked_entries` does not parse it again then.
        self.shown = Some(shown);
        Ok(text)
    }
}

/// All session-scope keys that the grant allows to read.
pub(crate) fn visible_session(turn: &dyn TurnView, grants: &Grants) -> JsonObject {
    match grants.session_state.as_ref().and_then(|grant| grant.keys.as_deref()) {
        None => turn.session(),
        Some(keys) => narrow(turn, keys),
    }
}

fn narrow(turn: &dyn TurnView, keys: &[String]) -> JsonObject {
    // A list of keys restricts session scope. Keys of `user:`, `app:` and `temp:` are never readable.
    let shown = keys.iter().filter(|key| StateScope::of(key) == StateScope::Session);
    let values = shown.filter_map(|key| Some((key.clone(), Json::parse(turn.session_value(key)?).ok()?)));
    values.collect()
}
