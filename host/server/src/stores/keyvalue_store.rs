//! Where extensions keep keys: the store that the config names.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_keyvalue::{OpenError, SqliteKeyValueStore};
use annex_runtime::{KeyValueStore, MemoryKeyValueStore};
use tokio::runtime::Handle;

use crate::config::Config;

/// The file in the config's folder for data.
const FILE: &str = "keyvalue.sqlite";

/// Why there is no store for keys.
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
    Open(#[from] OpenError),
}

/// Opens the store; relative paths start in `folder`.
///
/// On a thread of its own: the file is made there, and sqlx's migrations are no future that can be sent.
pub(crate) async fn open(config: &Config, folder: &Path) -> Result<Arc<dyn KeyValueStore>, KeyValueStoreError> {
    let Some(data) = config.keyvalue.data_dir.as_ref().or(config.tasks.data_dir.as_ref()) else {
        return Ok(Arc::new(MemoryKeyValueStore::default()));
    };
    let path = folder.join(data);
    let runtime = Handle::current();
    let opening = tokio::task::spawn_blocking(move || {
        fs::create_dir_all(&path).map_err(|source| KeyValueStoreError::Folder { path: path.clone(), source })?;
        Ok::<_, KeyValueStoreError>(runtime.block_on(SqliteKeyValueStore::open(&path.join(FILE)))?)
    });
    let store = opening.await.map_err(|_| KeyValueStoreError::Aborted)??;
    Ok(Arc::new(store))
}
