//! The key-value store of extensions, as the config names it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_keyvalue::{KeyValueOpenError, SqliteKeyValueStore};
use annex_runtime::{KeyValueStore, MemoryKeyValueStore};

use crate::config::Config;
use crate::stores;

/// The file in the config's folder for data.
const FILE: &str = "keyvalue.sqlite";

/// The reasons for which there is no store for keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyValueStoreError {
    /// The folder cannot be made.
    #[error("keyvalue.data_dir: cannot create {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The store was opening when the process ended.
    #[error("opening the key-value store broke off")]
    Aborted,
    /// The file does not open.
    #[error("the key-value store cannot be opened")]
    Open(#[from] KeyValueOpenError),
}

/// Opens the store; relative paths start in `folder`.
pub(crate) async fn open(config: &Config, folder: &Path) -> Result<Arc<dyn KeyValueStore>, KeyValueStoreError> {
    // There is no key-value store on PostgreSQL. Where tasks are kept there and no folder is named, keys are in memory.
    let Some(data) = config.keyvalue.data_dir.as_ref().or(config.tasks.data_dir.as_ref()) else {
        return Ok(Arc::new(MemoryKeyValueStore::default()));
    };
    let path = folder.join(data);
    let opening = stores::on_own_thread(move || open_store(path));
    Ok(Arc::new(opening.await.map_err(|_| KeyValueStoreError::Aborted)??))
}

async fn open_store(folder: PathBuf) -> Result<SqliteKeyValueStore, KeyValueStoreError> {
    fs::create_dir_all(&folder).map_err(|source| KeyValueStoreError::Folder { path: folder.clone(), source })?;
    Ok(SqliteKeyValueStore::open(&folder.join(FILE)).await?)
}
