//! The way in which this process hears of others on the database of the tasks.

use std::env;
use std::sync::Arc;

use annex_cluster::wake::{Local, PostgresWake, Wake, WakeError};
use annex_database::{OpenError, PostgresConnections};
use annex_tasks::TaskStore;

use crate::config::Config;
use crate::stores::postgres::PostgresDatabases;

/// The reasons for which others are not heard.
#[derive(Debug, thiserror::Error)]
pub enum WakeOpenError {
    /// The environment has no URL of a database.
    #[error("the environment variable {name} is not set")]
    Variable {
        /// Its name.
        name: String,
    },
    /// The variable has something else.
    #[error("{name} is no URL of a PostgreSQL database")]
    Url {
        /// Its name.
        name: String,
        /// The reason.
        #[source]
        source: OpenError,
    },
    /// The database does not tell.
    #[error(transparent)]
    Wake(#[from] WakeError),
}

/// Hears others from now on, where there can be some.
pub(crate) async fn open(
    config: &Config,
    databases: &PostgresDatabases,
    store: &dyn TaskStore,
) -> Result<Arc<dyn Wake>, WakeOpenError> {
    let Some(tasks) = config.tasks.postgres_env.as_ref().filter(|_| store.is_shared()) else {
        return Ok(Arc::new(Local));
    };
    let url = |name: &String| env::var(name).map_err(|_| WakeOpenError::Variable { name: name.clone() });
    let is_none = |name: &String, source| WakeOpenError::Url { name: name.clone(), source };
    let requests = databases.at(&url(tasks)?).map_err(|source| is_none(tasks, source))?;
    let direct = match &config.postgres.listen_env {
        Some(name) => PostgresConnections::new(&url(name)?, 1).map_err(|source| is_none(name, source))?,
        None => requests.clone(),
    };
    Ok(Arc::new(PostgresWake::start(&requests, &direct).await?))
}
