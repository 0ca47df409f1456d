//! Opens the channel over which the processes on one task database wake each other.

use std::sync::Arc;

use annex_database::{OpenError, PostgresConnections};
use annex_leases::wake::{LocalWake, PostgresWake, Wake, WakeError};
use annex_operations::process::Process;

use crate::config::Config;
use crate::stores::place::{self, NoVariable};
use crate::stores::postgres::PostgresDatabases;

/// The reasons why the channel cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum WakeOpenError {
    /// The environment variable with the URL is not set.
    #[error(transparent)]
    Variable(#[from] NoVariable),
    /// The environment variable does not have the URL of a PostgreSQL database.
    #[error("{key}: {name} is no URL of a PostgreSQL database")]
    Url {
        /// The config key that names the variable.
        key: &'static str,
        /// The name of the variable.
        name: String,
        /// The fault of the URL.
        #[source]
        source: OpenError,
    },
    /// The channel cannot receive notifications.
    #[error("{LISTEN}")]
    Wake(#[source] WakeError),
}

const TASKS: &str = "tasks.postgres_env";
const LISTEN: &str = "postgres.listen_env";

/// Opens the channel. If the store of the tasks is not shared, the channel works only inside this process.
pub(crate) async fn open(
    config: &Config,
    databases: &PostgresDatabases,
    process: &Process,
) -> Result<Arc<dyn Wake>, WakeOpenError> {
    let Some(tasks) = config.tasks.postgres_env.as_ref().filter(|_| process.is_shared()) else {
        return Ok(Arc::new(LocalWake));
    };
    let is_none = |key, name: &String, source| WakeOpenError::Url { key, name: name.clone(), source };
    let requests = databases.at(&place::url(TASKS, tasks.clone())?).map_err(|source| is_none(TASKS, tasks, source))?;
    let direct = match &config.postgres.listen_env {
        Some(name) => PostgresConnections::new(&place::url(LISTEN, name.clone())?, 1)
            .map_err(|source| is_none(LISTEN, name, source))?,
        None => requests.clone(),
    };
    Ok(Arc::new(PostgresWake::open(&requests, &direct).await.map_err(WakeOpenError::Wake)?))
}
