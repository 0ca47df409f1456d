//! The session of the turn, as far as the grant `session-state` shows it.

use std::sync::Arc;

use annex_protocol::{Json, JsonObject};

use crate::grants::StateScope;
use crate::store::{HostState, SessionReader};

impl HostState {
    /// The JSON text of a session-scope key that the grant shows.
    pub(crate) fn session_value(&self, key: &str) -> Option<String> {
        let turn = self.turn.as_ref().filter(|_| self.profile.grants.may_read(key));
        turn.and_then(|turn| turn.session.get(key))
    }

    /// All session-scope keys that the grant shows, as one JSON object.
    pub(crate) fn session_snapshot(&mut self) -> wasmtime::Result<String> {
        let Some(turn) = &self.turn else { return Ok("{}".to_owned()) };
        let narrowed = self.profile.grants.session_state.as_ref().and_then(|grant| grant.keys.as_deref());
        let shown = match narrowed {
            None => turn.session.snapshot(),
            Some(keys) => narrow(&turn.session, keys),
        };
        let shown = shown.to_json()?;
        let text = shown.get().to_owned();
        self.shown = Some(shown);
        Ok(text)
    }
}

fn narrow(session: &Arc<dyn SessionReader>, keys: &[String]) -> JsonObject {
    let shown = keys.iter().filter(|key| StateScope::of(key) == StateScope::Session);
    let values = shown.filter_map(|key| Some((key.clone(), Json::parse(session.get(key)?).ok()?)));
    values.collect()
}
