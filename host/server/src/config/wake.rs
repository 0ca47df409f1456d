//! `[wake]`: the way in which processes on one PostgreSQL database wake each other.

use serde::Deserialize;

use super::tasks::TasksConfig;

/// `[wake]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WakeConfig {
    /// The name of the environment variable with the URL of a NATS server. Default: none, and the database wakes them.
    pub nats_env: Option<String>,
}

impl WakeConfig {
    /// Checks it beside the place of the tasks. An error is the key and the reason.
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
