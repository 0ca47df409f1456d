//! Capabilities that need nothing but the extension itself: its parameters and secrets, and JSON Schema.

use std::sync::Arc;
use std::time::Duration;

use annex_schema::{SchemaError, Violation};

use crate::confinement::limits::{HostBusy, LimitReached};
use crate::confinement::store::HostState;

/// The key of `wasi:config/store` that holds all parameters as one JSON object.
const ALL_PARAMETERS: &str = "annex:parameters";

impl HostState {
    /// The parameter of this name, or the secret.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        let parameters = &self.profile.parameters;
        if name == ALL_PARAMETERS {
            return Some(parameters.text.clone());
        }
        let secret = || self.profile.grants.secrets.get(name).map(|secret| secret.expose().to_owned());
        // The order decides nothing: a secret with the name of a parameter is refused at load (`check_secrets`).
        parameters.plain.get(name).cloned().or_else(secret)
    }

    /// All parameters. Secrets are for those who ask for them by name.
    pub(crate) fn parameters(&self) -> Vec<(String, String)> {
        self.profile.parameters.plain.clone().into_iter().collect()
    }

    /// Compiles a schema; the text says why it is not usable.
    pub(crate) async fn compile_schema(&mut self, schema: &str) -> wasmtime::Result<Result<(), String>> {
        let profile = Arc::clone(&self.profile);
        let mut spent = Duration::ZERO;
        let compiled = profile.schemas.compile(schema, self.cpu_left(), &mut spent).await;
        self.answer(compiled.map(drop), spent)
    }

    /// The violations of a schema; the text says why there is no answer.
    pub(crate) async fn validate_by_schema(
        &mut self,
        schema: &str,
        instance: &str,
    ) -> wasmtime::Result<Result<Vec<Violation>, String>> {
        let profile = Arc::clone(&self.profile);
        let mut spent = Duration::ZERO;
        let violations = profile.schemas.validate(schema, instance, self.cpu_left(), &mut spent).await;
        self.answer(violations, spent)
    }

    /// A worker's time is the guest's, and a guest that has no more of it is stopped. That no worker has time for it is not
    /// its fault.
    fn answer<T>(&mut self, done: Result<T, SchemaError>, spent: Duration) -> wasmtime::Result<Result<T, String>> {
        // Charged whatever came of it: a schema that turns out to be unusable has taken its time all the same.
        self.charge(spent)?;
        match done {
            Ok(done) => Ok(Ok(done)),
            Err(SchemaError::Unusable(reason)) => Ok(Err(reason)),
            Err(SchemaError::OutOfTime) => Err(LimitReached::Cpu.into()),
            Err(SchemaError::Busy) => Err(HostBusy.into()),
        }
    }
}
