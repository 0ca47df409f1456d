//! Settings of the process that an installer keeps to, and that a reload of the config changes.

use std::sync::{Arc, PoisonError};

use annex_auth::SecurityDeclaration;

use super::{InstallError, Installer};
use crate::config::Config;

impl Installer {
    /// All that the config file says now.
    pub(crate) fn config_now(&self) -> Result<Config, InstallError> {
        self.config_file.as_ref().ok_or(InstallError::NoFile)?.config().map_err(InstallError::Config)
    }

    /// The keys of the config file that say something else now and need a restart, each with the reason; none where the file
    /// cannot be used.
    pub(crate) fn needs_restart(&self) -> Vec<String> {
        let Some(running) = &self.config_file else { return Vec::new() };
        running.read_again().map(|(file, _)| running.that_need_restart(&file)).unwrap_or_default()
    }

    /// Extensions that are loaded from now on are judged by this config of the process: by its ceiling of limits, and its callers.
    /// Returns the one that counted until now.
    pub(crate) fn set_process(&self, process: Arc<Config>) -> Arc<Config> {
        std::mem::replace(&mut *self.loader.process.lock().unwrap_or_else(PoisonError::into_inner), process)
    }

    /// Makes the cards again, because callers authenticate in another way.
    pub(crate) async fn set_security(&self, security: &SecurityDeclaration) {
        self.issuer.set_security(security);
        self.reissue().await;
    }
}
