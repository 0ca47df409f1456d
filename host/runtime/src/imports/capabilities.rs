//! The interfaces that need nothing but the extension itself: its log, its parameters and secrets, the time of day, and
//! JSON Schema.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::bindings::v0_1::annex::extension::{json_schema, types};
use crate::bindings::v0_1::wasi::clocks::wall_clock;
use crate::bindings::v0_1::wasi::config::store as config;
use crate::bindings::v0_1::wasi::logging::logging;
use crate::store::HostState;

/// The key of `wasi:config/store` that holds all parameters as one JSON object.
const ALL_PARAMETERS: &str = "annex:parameters";

impl logging::Host for HostState {
    fn log(&mut self, level: logging::Level, context: String, message: String) -> wasmtime::Result<()> {
        self.log.write(level, &context, &message);
        Ok(())
    }
}

impl config::Host for HostState {
    fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<String>, config::Error>> {
        let parameters = &self.profile.parameters;
        if key == ALL_PARAMETERS {
            return Ok(Ok(Some(parameters.text.clone())));
        }
        let secret = || self.profile.grants.secrets.get(&key).map(|secret| secret.expose().to_owned());
        Ok(Ok(parameters.plain.get(&key).cloned().or_else(secret)))
    }

    /// Secrets are for those who ask for them by name.
    fn get_all(&mut self) -> wasmtime::Result<Result<Vec<(String, String)>, config::Error>> {
        Ok(Ok(self.profile.parameters.plain.clone().into_iter().collect()))
    }
}

impl wall_clock::Host for HostState {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(wall_clock::Datetime { seconds: now.as_secs(), nanoseconds: now.subsec_nanos() })
    }

    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        Ok(wall_clock::Datetime { seconds: 0, nanoseconds: 1 })
    }
}

impl types::Host for HostState {}

impl json_schema::Host for HostState {
    fn compile(&mut self, schema: String) -> wasmtime::Result<Result<(), String>> {
        Ok(self.profile.schemas.compile(&schema).map(drop))
    }

    fn validate(
        &mut self,
        schema: String,
        instance: String,
    ) -> wasmtime::Result<Result<Vec<types::Violation>, String>> {
        let violations = self.profile.schemas.validate(&schema, &instance);
        Ok(violations.map(|violations| violations.into_iter().map(types::Violation::from).collect()))
    }
}

impl From<crate::schema::Violation> for types::Violation {
    fn from(violation: crate::schema::Violation) -> Self {
        Self { pointer: violation.pointer, message: violation.message }
    }
}
