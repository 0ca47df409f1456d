//! Opens the store that counts the running turns of all processes on one database.

use std::sync::Arc;

use annex_database::OpenError;
use annex_leases::{Lease, TurnPlaces, TurnPlacesError};
use annex_operations::permits::shared::SharedPlaces;

use crate::config::Config;
use crate::stores;
use crate::stores::place::{self, NoVariable};
use crate::stores::postgres::PostgresDatabases;

/// The reasons why the places of turns cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TurnPlacesOpenError {
    /// The environment variable with the URL is not set.
    #[error(transparent)]
    Variable(#[from] NoVariable),
    /// The database cannot be used.
    #[error("tasks.postgres_env")]
    Open(#[from] OpenError),
    /// The live processes cannot be counted.
    #[error("tasks.postgres_env")]
    Count(#[from] TurnPlacesError),
    /// The process ended while the places were opened.
    #[error("opening the places of turns broke off")]
    Aborted,
}

/// Opens the places of turns and counts the live processes. Without a `lease`, this process alone has all places.
pub(crate) async fn open(
    config: &Config,
    databases: &PostgresDatabases,
    lease: Option<&Arc<Lease>>,
) -> Result<Arc<SharedPlaces>, TurnPlacesOpenError> {
    let (Some(name), Some(lease)) = (&config.tasks.postgres_env, lease) else { return Ok(SharedPlaces::new(None)) };
    let connections = databases.at(&place::url("tasks.postgres_env", name.clone())?)?;
    let lease = Arc::clone(lease);
    let opening = stores::on_own_thread(move || async move { TurnPlaces::open(&connections, lease).await });
    let places = opening.await.map_err(|_| TurnPlacesOpenError::Aborted)??;
    let places = SharedPlaces::new(Some(Arc::new(places)));
    places.look().await?;
    Ok(places)
}
