//! Loading extensions on trial: to see whether they can be loaded, with no effect on anything that is served.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use annex_runtime::{Installed, Runtime};
use annex_tasks::TaskStore;

use super::loader::{Loader, Occasion, Present};
use super::{InstallError, Installer};
use crate::config::served::ServedConfig;
use crate::locations::Locations;

impl Installer {
    /// Loads the extensions of the config as a start does, up to the check of the whole set. What was compiled for it stays in the
    /// cache of compiled components.
    ///
    /// # Errors
    /// The extension that cannot be loaded, and why.
    pub(crate) async fn try_out(
        config: &ServedConfig,
        runtime: Runtime,
        locations: Locations,
        uploads: Arc<dyn TaskStore>,
    ) -> Result<Installed, InstallError> {
        let loader = Loader {
            runtime,
            locations,
            folder: None,
            process: Mutex::new(Arc::clone(&config.process)),
            loaded: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            // Nothing is kept for other processes: they load the tenant themselves.
            editions: None,
            uploads: Some(uploads),
        };
        let nothing = Present { versions: &[], overruled: &[] };
        Ok(loader.plan(&config.extensions, &nothing, Occasion::Start).await?.installed)
    }
}
