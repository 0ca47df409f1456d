//! `[wake]`: the channel by which processes on one PostgreSQL database wake each other.

use serde::Deserialize;

use super::tasks::TasksConfig;

/// `[wake]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WakeConfig {
    /// Name of the environment variable with the URL of a NATS server. Default: none, and processes wake each other
    /// through the database.
    pub nats_env: Option<String>,
}

impl WakeConfig {
    /// Checks that tasks are in PostgreSQL and that the program is built with NATS. The error is a pair of key and
    /// reason.
    pub(super) fn check(&self, tasks: &TasksConfig) -> Result<(), (&'static str, String)> {
        let Some(name) = &self.nats_env else { return Ok(()) };
        tasks.check_shared("wake.nats_env")?;
        if !cfg!(feature = "nats") {
            let reason =
                format!("names {name}, and this program is built without NATS: build it with `--features nats`");
            return Err(("wake.nats_env", reason));
        }
        Ok(())
    }
}
