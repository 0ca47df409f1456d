//! The places that the config names for its stores.

use std::env;
use std::path::{Path, PathBuf};

use crate::config::TasksConfig;

/// The place of a store, and the key of the config that names it.
#[derive(Clone)]
pub(super) enum Place {
    Folder(&'static str, PathBuf),
    Postgres(&'static str, String),
    Memory,
}

/// The places that the table of one store names; with the keys for the words about them.
pub(super) struct Named<'a> {
    pub(super) data_dir: (&'static str, Option<&'a PathBuf>),
    pub(super) postgres_env: (&'static str, Option<&'a String>),
}

/// The environment has no URL of a database.
#[derive(Debug, thiserror::Error)]
#[error("{key}: the environment variable {name} is not set")]
pub struct NoVariable {
    /// The key that names it.
    pub key: &'static str,
    /// Its name.
    pub name: String,
}

impl Place {
    /// The place that is named, or that of the tasks. Paths start in `folder`.
    pub(super) fn beside(tasks: &TasksConfig, own: &Named<'_>, folder: &Path) -> Self {
        let of_tasks = Named {
            data_dir: ("tasks.data_dir", tasks.data_dir.as_ref()),
            postgres_env: ("tasks.postgres_env", tasks.postgres_env.as_ref()),
        };
        // A table has a folder or a database and never both, which `Config::check_homes` has checked.
        own.place(folder).or_else(|| of_tasks.place(folder)).unwrap_or(Self::Memory)
    }
}

impl Named<'_> {
    fn place(&self, folder: &Path) -> Option<Place> {
        let in_folder = self.data_dir.1.map(|data| Place::Folder(self.data_dir.0, folder.join(data)));
        in_folder.or_else(|| self.postgres_env.1.map(|name| Place::Postgres(self.postgres_env.0, name.clone())))
    }
}

/// The URL in the environment variable that `key` names.
pub(super) fn url(key: &'static str, name: String) -> Result<String, NoVariable> {
    env::var(&name).map_err(|_| NoVariable { key, name })
}
