//! Opens the stores of tenants, in the same place as the tasks.

use std::fs;
use std::path::{Path, PathBuf};

use annex_database::OpenError;
use annex_tenants::{TenantStoreError, TenantStores};

use crate::config::Config;
use crate::stores;
use crate::stores::place::{self, NoVariable, StorePlace};
use crate::stores::postgres::PostgresDatabases;

/// The file name in the data folder.
const FILE: &str = "tenants.sqlite";

/// The reasons why the stores of tenants cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TenantStoreOpenError {
    /// The data folder cannot be created.
    #[error("{key}: cannot create {}", path.display())]
    Folder {
        /// The config key that names the folder.
        key: &'static str,
        /// The folder.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The environment variable with the URL is not set.
    #[error(transparent)]
    Variable(#[from] NoVariable),
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

/// Opens the stores. Relative paths start in `folder`.
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
        StorePlace::Folder(key, path) => {
            let folder = |source| TenantStoreOpenError::Folder { key, path: path.clone(), source };
            fs::create_dir_all(&path).map_err(folder)?;
            TenantStores::open_file(&path.join(FILE)).await?
        }
        StorePlace::Postgres(key, name) => TenantStores::open_postgres(&databases.at(&place::url(key, name)?)?).await?,
        StorePlace::Memory => TenantStores::in_memory(),
    })
}
