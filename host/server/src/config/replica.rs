//! `[replica]`: this process among others on one PostgreSQL database.

use serde::Deserialize;

use super::tasks::TasksConfig;

/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// `[replica]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicaConfig {
    /// The name of this process, which no other one on the database has. When a process starts under it, what its
    /// predecessor worked on fails at once. Default: none, and that fails once a lease of five seconds is over.
    pub name: Option<String>,
}

impl ReplicaConfig {
    /// Checks it beside the place of the tasks. An error is the key and the reason.
    pub(super) fn check(&self, tasks: &TasksConfig) -> Result<(), (&'static str, String)> {
        if tasks.recover.is_some() {
            let reason = "is no longer a key: a start never touches what another process works on; take the line out";
            return Err(("tasks.recover", reason.to_owned()));
        }
        let Some(name) = &self.name else { return Ok(()) };
        if tasks.postgres_env.is_none() {
            let reason = "is for several processes on one PostgreSQL database, and there is no tasks.postgres_env";
            return Err(("replica.name", reason.to_owned()));
        }
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            let reason = format!("{name:?} is not a name: it takes 1 to {MAX_NAME_BYTES} letters, digits and signs");
            return Err(("replica.name", reason));
        }
        Ok(())
    }
}
