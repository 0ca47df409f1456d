//! The interfaces that need nothing but the extension itself: its log, its parameters and secrets, the time of day, and
//! JSON Schema.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use annex_schema::{SchemaError, Violation};

use crate::bindings::v0_1::annex::extension::{json_schema, types};
use crate::bindings::v0_1::wasi::clocks::wall_clock;
use crate::bindings::v0_1::wasi::config::store as config;
use crate::bindings::v0_1::wasi::logging::logging;
use crate::limits::{HostBusy, LimitReached};
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
    async fn compile(&mut self, schema: String) -> wasmtime::Result<Result<(), String>> {
        let (profile, mut spent) = (Arc::clone(&self.profile), Duration::ZERO);
        let compiled = profile.schemas.compile(&schema, self.cpu_left(), &mut spent).await;
        self.answer(compiled.map(drop), spent)
    }

    async fn validate(
        &mut self,
        schema: String,
        instance: String,
    ) -> wasmtime::Result<Result<Vec<types::Violation>, String>> {
        let (profile, mut spent) = (Arc::clone(&self.profile), Duration::ZERO);
        let violations = profile.schemas.validate(&schema, &instance, self.cpu_left(), &mut spent).await;
        self.answer(violations.map(|violations| violations.into_iter().map(types::Violation::from).collect()), spent)
    }
}

impl HostState {
    /// A worker's time is the guest's, and a guest that has no more of it is stopped. That no worker has time for it is not
    /// its fault.
    fn answer<T>(&mut self, done: Result<T, SchemaError>, spent: Duration) -> wasmtime::Result<Result<T, String>> {
        self.charge(spent)?;
        match done {
            Ok(done) => Ok(Ok(done)),
            Err(SchemaError::Unusable(reason)) => Ok(Err(reason)),
            Err(SchemaError::OutOfTime) => Err(LimitReached::Cpu.into()),
            Err(SchemaError::Busy) => Err(HostBusy.into()),
        }
    }
}

impl From<Violation> for types::Violation {
    fn from(violation: Violation) -> Self {
        Self { pointer: violation.pointer, message: violation.message }
    }
}
