//! `[replica]`: the name of this process among several on one PostgreSQL database.

use std::env;

use serde::Deserialize;

use super::environment;
use super::tasks::TasksConfig;

/// The maximum size of a name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The table `[replica]`: the name of this process among several on one database.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicaConfig {
    /// The name of this process, unique on the database. A process that starts with the name of a dead process settles
    /// the turns of the dead process at once, as `agent.on_lost_turn` says. Default: no name. Without a name, these
    /// turns are settled when the lease of the dead process ends, after five seconds.
    pub name: Option<String>,
    /// The environment variable with the name of this process. Needed if replicas share one config file. Excludes
    /// `name`.
    pub name_env: Option<String>,
}

impl ReplicaConfig {
    /// Checks the name, and that tasks are in PostgreSQL. The error is a pair of key and reason.
    pub(super) fn check(&self, tasks: &TasksConfig) -> Result<(), (&'static str, String)> {
        let key = match (&self.name, &self.name_env) {
            (None, None) => return Ok(()),
            (Some(_), Some(_)) => return Err(("replica", "needs one of name and name_env".to_owned())),
            (Some(_), None) => "replica.name",
            (None, Some(_)) => "replica.name_env",
        };
        tasks.check_shared(key)?;
        self.name.as_deref().map_or(Ok(()), |name| check_name(name).map_err(|reason| (key, reason)))
    }

    /// The name of this process, from `name` or from the environment variable in `name_env`.
    ///
    /// # Errors
    /// When the variable is not set, or when its value is not a valid name. The error is a pair of key and reason.
    pub(crate) fn name(&self) -> Result<Option<String>, (&'static str, String)> {
        let Some(variable) = &self.name_env else { return Ok(self.name.clone()) };
        let name = env::var(variable).map_err(|_| environment::unusable(variable));
        let name = name.and_then(|name| check_name(&name).map(|()| name));
        name.map(Some).map_err(|reason| ("replica.name_env", reason))
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("{name:?} is not a name: it takes 1 to {MAX_NAME_BYTES} letters, digits and signs"));
    }
    Ok(())
}
