//! Where a store keeps its data: in a folder, in a PostgreSQL database or in memory.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::config::{TasksConfig, environment};

/// Where a store keeps its data: the folder or database, and the config key that names it.
#[derive(Clone)]
pub(super) enum StorePlace {
    Folder(&'static str, PathBuf),
    Postgres(&'static str, String),
    Memory,
}

/// The two settings of a config table that can name a store's folder or database, each with its config key for errors.
pub(super) struct PlaceConfig<'a> {
    pub(super) data_dir: (&'static str, Option<&'a PathBuf>),
    pub(super) postgres_env: (&'static str, Option<&'a String>),
}

/// The environment variable with the URL of a database is not set.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {}", environment::unusable(name))]
pub struct NoVariable {
    /// The config key that names the variable.
    pub key: &'static str,
    /// The name of the variable.
    pub name: String,
}

/// The reasons why a store's folder or database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The data folder cannot be created.
    #[error("{key}: cannot create {}", path.display())]
    Folder {
        /// The config key that names the folder.
        key: &'static str,
        /// The folder.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: io::Error,
    },
    /// The environment variable with the URL is not set.
    #[error(transparent)]
    Variable(#[from] NoVariable),
}

impl StorePlace {
    /// Where the tasks are stored: in a folder, in a database or in memory. Relative paths of the config start at
    /// `folder`.
    pub(super) fn of_tasks(tasks: &TasksConfig, folder: &Path) -> Self {
        let named = PlaceConfig {
            data_dir: ("tasks.data_dir", tasks.data_dir.as_ref()),
            postgres_env: ("tasks.postgres_env", tasks.postgres_env.as_ref()),
        };
        named.place(folder).unwrap_or(Self::Memory)
    }

    /// The folder or database that the config names for the store. If the config names none, the store is where the
    /// tasks are. Relative paths of the config start at `folder`.
    pub(super) fn beside(tasks: &TasksConfig, own: &PlaceConfig<'_>, folder: &Path) -> Self {
        // `Config::check_homes` ensures that a table names a folder or a database and never both.
        own.place(folder).unwrap_or_else(|| Self::of_tasks(tasks, folder))
    }
}

impl PlaceConfig<'_> {
    fn place(&self, folder: &Path) -> Option<StorePlace> {
        let in_folder = self.data_dir.1.map(|data| StorePlace::Folder(self.data_dir.0, folder.join(data)));
        in_folder.or_else(|| self.postgres_env.1.map(|name| StorePlace::Postgres(self.postgres_env.0, name.clone())))
    }
}

/// Reads a URL from the environment variable `name`. `key` is the config key for the error.
pub(super) fn url(key: &'static str, name: String) -> Result<String, NoVariable> {
    env::var(&name).map_err(|_| NoVariable { key, name })
}

/// Returns the path of a store's file in its data folder. Creates the folder if it is missing.
pub(super) fn file(key: &'static str, folder: &Path, name: &str) -> Result<PathBuf, PlaceError> {
    fs::create_dir_all(folder).map_err(|source| PlaceError::Folder { key, path: folder.to_owned(), source })?;
    Ok(folder.join(name))
}
