//! Opens the stores of tenants: in the folder or database of the tasks, or in memory if the tasks are.

use std::path::Path;

use annex_database::OpenError;
use annex_tenants::{TenantStoreError, TenantStores};

use crate::config::Config;
use crate::stores;
use crate::stores::place::{self, PlaceError, StorePlace};
use crate::stores::postgres::PostgresDatabases;

/// The name of the stores' file in the data folder.
const FILE: &str = "tenants.sqlite";

/// The reasons why the stores of tenants cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TenantStoreOpenError {
    /// The folder or database of the stores cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The process ended while the stores were opened.
    #[error("opening the store of tenants broke off")]
    Aborted,
    /// The database cannot be opened.
    #[error("the store of tenants cannot be opened")]
    Open(#[from] OpenError),
    /// The stored tenants cannot be read.
    #[error("the stored tenants cannot be read")]
    Read(#[from] TenantStoreError),
}

/// Opens the stores. Relative paths of the config start at `folder`.
pub(crate) async fn open(
    config: &Config,
    folder: &Path,
    databases: &PostgresDatabases,
) -> Result<TenantStores, TenantStoreOpenError> {
    let place = StorePlace::of_tasks(&config.tasks, folder);
    let databases = databases.clone();
    let opening = stores::on_own_thread(move || open_stores(place, databases));
    opening.await.map_err(|_| TenantStoreOpenError::Aborted)?
}

async fn open_stores(place: StorePlace, databases: PostgresDatabases) -> Result<TenantStores, TenantStoreOpenError> {
    Ok(match place {
        StorePlace::Folder(key, path) => TenantStores::open_file(&place::file(key, &path, FILE)?).await?,
        StorePlace::Postgres(key, name) => {
            TenantStores::open_postgres(&databases.at(&place::url(key, name).map_err(PlaceError::from)?)?).await?
        }
        StorePlace::Memory => TenantStores::in_memory(),
    })
}
