//! What a guest can call. Each function counts against the turn's budget of host calls.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use annex_protocol::{Json, JsonObject};
use wasmtime::Engine;
use wasmtime::component::{HasSelf, Linker};

use crate::bindings::v0_1::annex::extension::{json_schema, session_state, types};
use crate::bindings::v0_1::wasi::clocks::wall_clock;
use crate::bindings::v0_1::wasi::config::store as config;
use crate::bindings::v0_1::wasi::logging::logging;
use crate::grants::{Grants, StateScope};
use crate::inspect::Inspection;
use crate::store::{HostState, SessionReader};

/// The key of `wasi:config/store` that holds all parameters as one JSON object.
const ALL_PARAMETERS: &str = "annex:parameters";

/// Links what the component imports. Every import was checked against `grants` by name before; a component that needs
/// the rest of WASI gets all of it, on a context with nothing in it, so for that one the check by name is what counts.
pub(crate) fn linker(engine: &Engine, inspection: &Inspection, grants: &Grants) -> wasmtime::Result<Linker<HostState>> {
    let mut linker = Linker::new(engine);
    if inspection.needs_wasi() {
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    } else if grants.clock {
        wall_clock::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    }
    logging::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    config::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    types::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    json_schema::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    if grants.session_state.is_some() {
        session_state::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    }
    Ok(linker)
}

impl logging::Host for HostState {
    fn log(&mut self, level: logging::Level, context: String, message: String) -> wasmtime::Result<()> {
        self.count_host_call()?;
        let Some(left) = self.log_lines_left.checked_sub(1) else { return Ok(()) };
        self.log_lines_left = left;
        let extension = &self.profile.uri;
        let (context, message) = (self.printable(&context), self.printable(&message));
        self.profile.log.push(level_name(level), context.clone(), message.clone());
        match level {
            logging::Level::Trace => tracing::trace!(%extension, context, "{message}"),
            logging::Level::Debug => tracing::debug!(%extension, context, "{message}"),
            logging::Level::Info => tracing::info!(%extension, context, "{message}"),
            logging::Level::Warn => tracing::warn!(%extension, context, "{message}"),
            logging::Level::Error | logging::Level::Critical => tracing::error!(%extension, context, "{message}"),
        }
        if left == 0 {
            tracing::warn!(%extension, "further log lines of this turn are dropped");
        }
        Ok(())
    }
}

/// As the process's log has it, which has no level beyond errors.
fn level_name(level: logging::Level) -> &'static str {
    match level {
        logging::Level::Trace => "trace",
        logging::Level::Debug => "debug",
        logging::Level::Info => "info",
        logging::Level::Warn => "warn",
        logging::Level::Error | logging::Level::Critical => "error",
    }
}

impl HostState {
    /// Cut to the limit, with control characters escaped, so that a guest can forge no log line.
    fn printable(&self, text: &str) -> String {
        let cut = text.get(..text.floor_char_boundary(self.profile.limits.log_line)).unwrap_or(text);
        let mut line = String::with_capacity(cut.len());
        for character in cut.chars() {
            if character.is_control() { line.extend(character.escape_default()) } else { line.push(character) }
        }
        line
    }
}

impl config::Host for HostState {
    fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<String>, config::Error>> {
        self.count_host_call()?;
        let parameters = &self.profile.parameters;
        Ok(Ok(if key == ALL_PARAMETERS { Some(parameters.text.clone()) } else { parameters.plain.get(&key).cloned() }))
    }

    fn get_all(&mut self) -> wasmtime::Result<Result<Vec<(String, String)>, config::Error>> {
        self.count_host_call()?;
        Ok(Ok(self.profile.parameters.plain.clone().into_iter().collect()))
    }
}

impl wall_clock::Host for HostState {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        self.count_host_call()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(wall_clock::Datetime { seconds: now.as_secs(), nanoseconds: now.subsec_nanos() })
    }

    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        self.count_host_call()?;
        Ok(wall_clock::Datetime { seconds: 0, nanoseconds: 1 })
    }
}

impl types::Host for HostState {}

impl json_schema::Host for HostState {
    fn compile(&mut self, schema: String) -> wasmtime::Result<Result<(), String>> {
        self.count_host_call()?;
        Ok(self.profile.schemas.compile(&schema).map(drop))
    }

    fn validate(
        &mut self,
        schema: String,
        instance: String,
    ) -> wasmtime::Result<Result<Vec<types::Violation>, String>> {
        self.count_host_call()?;
        let violations = self.profile.schemas.validate(&schema, &instance);
        Ok(violations.map(|violations| violations.into_iter().map(types::Violation::from).collect()))
    }
}

impl From<crate::schema::Violation> for types::Violation {
    fn from(violation: crate::schema::Violation) -> Self {
        Self { pointer: violation.pointer, message: violation.message }
    }
}

impl session_state::Host for HostState {
    fn get(&mut self, key: String) -> wasmtime::Result<Option<String>> {
        self.count_host_call()?;
        let session = self.session.as_ref().filter(|_| self.profile.grants.may_read(&key));
        Ok(session.and_then(|session| session.get(&key)))
    }

    fn snapshot(&mut self) -> wasmtime::Result<String> {
        self.count_host_call()?;
        let Some(session) = &self.session else { return Ok("{}".to_owned()) };
        let narrowed = self.profile.grants.session_state.as_ref().and_then(|grant| grant.keys.as_deref());
        let shown = match narrowed {
            None => session.snapshot(),
            Some(keys) => narrow(session, keys),
        };
        let shown = shown.to_json()?;
        let text = shown.get().to_owned();
        self.shown = Some(shown);
        Ok(text)
    }

    fn writable(&mut self) -> wasmtime::Result<session_state::Scopes> {
        self.count_host_call()?;
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
