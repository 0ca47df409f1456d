//! Capabilities that depend on nothing but the extension: parameters, secrets and JSON Schema.

use std::sync::Arc;
use std::time::Duration;

use annex_schema::{SchemaError, Violation};

use crate::confinement::limits::{HostBusy, LimitReached};
use crate::confinement::store::HostState;

/// The key of `wasi:config/store` whose value is a JSON object with all parameters.
const ALL_PARAMETERS: &str = "annex:parameters";

impl HostState {
    /// The parameter or secret with this name.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        let parameters = &self.profile.parameters;
        if name == ALL_PARAMETERS {
            return Some(parameters.text.clone());
        }
        let secret = || self.profile.grants.secrets.get(name).map(|secret| secret.expose().to_owned());
        // The order does not matter: a secret with the name of a parameter is refused on load (`check_secrets`).
        parameters.plain.get(name).cloned().or_else(secret)
    }

    /// All parameters. Secrets are only returned by name.
    pub(crate) fn parameters(&self) -> Vec<(String, String)> {
        self.profile.parameters.plain.clone().into_iter().collect()
    }

    /// Compiles a schema. The inner error says why the schema is unusable.
    pub(crate) async fn compile_schema(&mut self, schema: &str) -> wasmtime::Result<Result<(), String>> {
        let profile = Arc::clone(&self.profile);
        let mut spent = Duration::ZERO;
        let compiled = profile.schemas.compile(schema, self.cpu_left(), &mut spent).await;
        self.answer(compiled.map(drop), spent)
    }

    /// Validates the JSON text `instance` and returns the violations. The inner error says why there is no result.
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

    /// Charges a worker's time to the guest, and returns the worker's result. A guest that has exceeded its CPU limit
    /// is stopped. If no worker was free, the call ends without a fault of the guest.
    fn answer<T>(&mut self, done: Result<T, SchemaError>, spent: Duration) -> wasmtime::Result<Result<T, String>> {
        // Charged in any case: an unusable schema has used the time too.
        self.charge(spent)?;
        match done {
            Ok(done) => Ok(Ok(done)),
            Err(SchemaError::Unusable(reason)) => Ok(Err(reason)),
            Err(SchemaError::OutOfTime) => Err(LimitReached::Cpu.into()),
            Err(SchemaError::Busy) => Err(HostBusy.into()),
        }
    }
}
