//! `annex:extension/session-state`

use std::sync::Arc;

use annex_protocol::{Json, JsonObject};

use crate::bindings::v0_1::annex::extension::session_state;
use crate::grants::StateScope;
use crate::store::{HostState, SessionReader};

impl session_state::Host for HostState {
    fn get(&mut self, key: String) -> wasmtime::Result<Option<String>> {
        let turn = self.turn.as_ref().filter(|_| self.profile.grants.may_read(&key));
        Ok(turn.and_then(|turn| turn.session.get(&key)))
    }

    fn snapshot(&mut self) -> wasmtime::Result<String> {
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

    fn writable(&mut self) -> wasmtime::Result<session_state::Scopes> {
        let mut scopes = session_state::Scopes::SESSION;
        let granted = [
            (StateScope::User, session_state::Scopes::USER),
            (StateScope::App, session_state::Scopes::APP),
            (StateScope::Temp, session_state::Scopes::TEMP),
        ];
        for (scope, flag) in granted {
            if self.profile.grants.may_write(scope) {
                scopes |= flag;
            }
        }
        Ok(scopes)
    }
}

fn narrow(session: &Arc<dyn SessionReader>, keys: &[String]) -> JsonObject {
    let shown = keys.iter().filter(|key| StateScope::of(key) == StateScope::Session);
    let values = shown.filter_map(|key| Some((key.clone(), Json::parse(session.get(key)?).ok()?)));
    values.collect()
}
