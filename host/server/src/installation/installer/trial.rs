//! Loads extensions to check them, with no effect on requests.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use annex_runtime::{Installed, Runtime};
use annex_tenants::ComponentStore;

use super::loader::{self, Loader, Occasion, Present};
use super::{InstallError, Installer};
use crate::config::served::ServedConfig;
use crate::installation::denied::DeniedComponents;
use crate::locations::Locations;

impl Installer {
    /// Loads the extensions of the config as a start does, up to the check of the whole set. The compiled code stays in
    /// the cache.
    ///
    /// # Errors
    /// The first extension that cannot be loaded, with the reason.
    pub(crate) async fn try_out(
        config: &ServedConfig,
        runtime: Runtime,
        locations: Locations,
        uploads: Arc<dyn ComponentStore>,
        denied: Arc<DeniedComponents>,
    ) -> Result<Installed, InstallError> {
        let loader = Loader {
            runtime,
            locations,
            folder: None,
            process: Mutex::new(Arc::clone(&config.process)),
            trust: config.trust.clone(),
            loaded: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            // A trial shares no components with other processes: each loads the tenant itself.
            editions: None,
            uploads: Some(uploads),
            unsteered: loader::unsteered(config),
            denied,
        };
        let nothing = Present { versions: &[], overruled: &[] };
        Ok(loader.plan(&config.extensions, &nothing, Occasion::Start).await?.installed)
    }
}
