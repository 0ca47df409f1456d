//! Opens the session store: the one that the config names, or else one in the same place as the tasks.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use annex_leases::Lease;
use annex_session::{
    Bounds, InMemorySessionService, Limits, OpenError, PostgresSessionService, Retention, SessionService,
    SqliteSessionService,
};

use crate::config::{Config, SessionsConfig};
use crate::stores;
use crate::stores::place::{self, NoVariable, PlaceConfig, StorePlace};
use crate::stores::postgres::PostgresDatabases;

/// The file name in the data folder.
const FILE: &str = "sessions.sqlite";

/// The reasons why the session store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SessionStoreError {
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
    /// Sessions and tasks are in two PostgreSQL databases. The leases that protect the turns of a session are in the
    /// database of the tasks.
    #[error(
        "sessions.postgres_env: sessions and tasks are in two PostgreSQL databases, and the turns of a conversation are kept in \
         order by leases, which are where tasks are; leave the key out, or let both variables have the same URL"
    )]
    OtherDatabase,
    /// The process ended while the store was opened.
    #[error("opening the session store broke off")]
    Aborted,
    /// The store cannot be opened.
    #[error("the session store cannot be opened")]
    Open(#[from] OpenError),
}

/// The link to the other processes on the database of the tasks.
struct Others {
    lease: Arc<Lease>,
    /// The environment variable with the URL of the database of the tasks.
    tasks: Option<String>,
}

/// Opens the store. Relative paths start in `folder`. With the `lease` of this process, the turns of a session run in
/// one order over all processes on the database.
pub(crate) async fn open(
    config: &Config,
    folder: &Path,
    databases: &PostgresDatabases,
    lease: Option<Arc<Lease>>,
) -> Result<Arc<dyn SessionService>, SessionStoreError> {
    let own = PlaceConfig {
        data_dir: ("sessions.data_dir", config.sessions.data_dir.as_ref()),
        postgres_env: ("sessions.postgres_env", config.sessions.postgres_env.as_ref()),
    };
    let place = StorePlace::beside(&config.tasks, &own, folder);
    let bounds = bounds(&config.sessions);
    let databases = databases.clone();
    let others = lease.map(|lease| Others { lease, tasks: config.tasks.postgres_env.clone() });
    let opening = stores::on_own_thread(move || open_store(place, bounds, databases, others));
    opening.await.map_err(|_| SessionStoreError::Aborted)?
}

async fn open_store(
    place: StorePlace,
    bounds: Bounds,
    databases: PostgresDatabases,
    others: Option<Others>,
) -> Result<Arc<dyn SessionService>, SessionStoreError> {
    Ok(match place {
        StorePlace::Folder(key, path) => {
            let folder = |source| SessionStoreError::Folder { key, path: path.clone(), source };
            std::fs::create_dir_all(&path).map_err(folder)?;
            Arc::new(SqliteSessionService::open(&path.join(FILE), bounds.limits).await?)
        }
        StorePlace::Postgres(key, name) => {
            let url = place::url(key, name)?;
            if others.as_ref().is_some_and(|others| !others.are_at(&url)) {
                return Err(SessionStoreError::OtherDatabase);
            }
            let service = PostgresSessionService::open(&databases.at(&url)?, bounds.limits).await?;
            match others {
                Some(Others { lease, .. }) => Arc::new(service.among_others(move || lease.replica())),
                None => Arc::new(service),
            }
        }
        StorePlace::Memory => Arc::new(InMemorySessionService::new(bounds)),
    })
}

impl Others {
    fn are_at(&self, url: &str) -> bool {
        self.tasks.as_ref().is_some_and(|name| env::var(name).is_ok_and(|tasks| tasks == url))
    }
}

fn bounds(config: &SessionsConfig) -> Bounds {
    let limits = Limits {
        state_bytes: config.max_state_bytes,
        state_keys: config.max_state_keys,
        state_depth: config.max_state_depth,
        events: config.max_events,
        artifacts: config.max_artifacts,
        artifact_bytes: config.max_artifact_bytes,
        null_removes: config.null_removes,
    };
    Bounds { max_sessions: config.max_sessions, max_bytes: config.max_bytes, limits }
}

/// The limits on age and number of stored sessions.
pub(crate) fn retention(config: &SessionsConfig) -> Retention {
    const DAY: u64 = 24 * 60 * 60;
    Retention { age: Duration::from_secs(config.keep_days.saturating_mul(DAY)), count: config.keep_count }
}
