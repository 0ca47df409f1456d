//! Opens the editions: the agreement of all processes on one database about their installed extensions.

use std::sync::Arc;
use std::time::Duration;

use annex_database::OpenError;
use annex_leases::Lease;
use annex_leases::editions::Editions;
use annex_leases::wake::Wake;

use crate::config::Config;
use crate::installation::installer::Peers;
use crate::stores;
use crate::stores::place::{self, NoVariable};
use crate::stores::postgres::PostgresDatabases;

/// The reasons why the editions cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum EditionsOpenError {
    /// The environment variable with the URL is not set.
    #[error(transparent)]
    Variable(#[from] NoVariable),
    /// The database cannot be used.
    #[error("tasks.postgres_env")]
    Open(#[from] OpenError),
    /// The process ended while the editions were opened.
    #[error("opening the editions broke off")]
    Aborted,
}

/// Opens the editions. `None` if the config names no shared database in `tasks.postgres_env`.
pub(crate) async fn open(
    config: &Config,
    databases: &PostgresDatabases,
    lease: Option<&Arc<Lease>>,
    wake: &Arc<dyn Wake>,
) -> Result<Option<Peers>, EditionsOpenError> {
    let (Some(name), Some(lease)) = (&config.tasks.postgres_env, lease) else { return Ok(None) };
    let connections = databases.at(&place::url("tasks.postgres_env", name.clone())?)?;
    let lease = Arc::clone(lease);
    let opening = stores::on_own_thread(move || async move { Editions::open(&connections, lease).await });
    let editions = opening.await.map_err(|_| EditionsOpenError::Aborted)??;
    Ok(Some(Peers {
        editions: Arc::new(editions),
        wake: Arc::clone(wake),
        compiling: Duration::from_secs(config.runtime.compile_seconds),
        share_cards: config.server.public_url.is_some(),
    }))
}
