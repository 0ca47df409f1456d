//! Opens the key-value store of extensions in the folder or database that the config names. If the config names none,
//! the store is where the tasks are.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annex_database::OpenError;
use annex_keyvalue::{KeyValueOpenError, PostgresKeyValueStore, SqliteKeyValueStore};
use annex_runtime::{KeyValueStore, MemoryKeyValueStore};

use crate::config::Config;
use crate::stores;
use crate::stores::place::{self, PlaceConfig, PlaceError, StorePlace};
use crate::stores::postgres::PostgresDatabases;

/// The name of the store's file in the data folder.
const FILE: &str = "keyvalue.sqlite";

/// The longest time that the hooks of one turn are assumed to take. The time limit of the agent and this time together
/// are the longest time of a turn. For that long, the sweep leaves keys that a turn has set.
const HOOKS: Duration = Duration::from_secs(60);

/// The reasons why the key-value store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum KeyValueStoreError {
    /// The folder or database of the store cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The process ended while the store was opened.
    #[error("opening the key-value store broke off")]
    Aborted,
    /// The SQLite file cannot be opened.
    #[error("the key-value store cannot be opened")]
    Open(#[from] KeyValueOpenError),
    /// The PostgreSQL database cannot be used.
    #[error("the key-value store cannot be opened")]
    Database(#[from] OpenError),
}

/// Opens the store. Relative paths of the config start at `folder`.
pub(crate) async fn open(
    config: &Config,
    folder: &Path,
    databases: &PostgresDatabases,
) -> Result<Arc<dyn KeyValueStore>, KeyValueStoreError> {
    let own = PlaceConfig {
        data_dir: ("keyvalue.data_dir", config.keyvalue.data_dir.as_ref()),
        postgres_env: ("keyvalue.postgres_env", config.keyvalue.postgres_env.as_ref()),
    };
    let place = StorePlace::beside(&config.tasks, &own, folder);
    let databases = databases.clone();
    let spared = Duration::from_secs(config.server.max_turn_seconds).saturating_add(HOOKS);
    let opening = stores::on_own_thread(move || open_store(place, databases, spared));
    opening.await.map_err(|_| KeyValueStoreError::Aborted)?
}

async fn open_store(
    place: StorePlace,
    databases: PostgresDatabases,
    spared: Duration,
) -> Result<Arc<dyn KeyValueStore>, KeyValueStoreError> {
    Ok(match place {
        StorePlace::Folder(key, path) => Arc::new(SqliteKeyValueStore::open(&place::file(key, &path, FILE)?).await?),
        StorePlace::Postgres(key, name) => Arc::new(
            PostgresKeyValueStore::open(&databases.at(&place::url(key, name).map_err(PlaceError::from)?)?, spared)
                .await?,
        ),
        StorePlace::Memory => Arc::new(MemoryKeyValueStore::default()),
    })
}
