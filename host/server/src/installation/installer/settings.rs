//! The settings of the process that an installer uses, and their replacement on a reload.

use std::sync::{Arc, PoisonError};

use annex_auth::SecurityDeclaration;

use super::loader::Occasion;
use super::{InstallError, Installer, ReloadOutcome};
use crate::config::{Config, ConfigFile, ExtensionConfig};

impl Installer {
    /// Reads the whole config file again.
    pub(crate) fn config_now(&self) -> Result<Config, InstallError> {
        self.config_file.as_ref().ok_or(InstallError::NoFile)?.config().map_err(InstallError::Config)
    }

    /// Reloads the extensions from a config that the caller has read, so that all parts of the server apply one text.
    ///
    /// # Errors
    /// When one of the config's extensions does not load. In that case nothing has changed.
    pub(crate) async fn reload_read(
        &self,
        (file, extensions): (ConfigFile, Vec<ExtensionConfig>),
    ) -> Result<ReloadOutcome, InstallError> {
        let _door = self.door.lock().await;
        let reloaded = self.try_reload(&file, extensions).await;
        reloaded.inspect_err(|error| self.note(error))
    }

    pub(super) async fn try_reload(
        &self,
        file: &ConfigFile,
        extensions: Vec<ExtensionConfig>,
    ) -> Result<ReloadOutcome, InstallError> {
        let running = self.config_file.as_ref().ok_or(InstallError::NoFile)?;
        // Names are checked before anything is compiled, and all mistakes are reported together.
        self.loader.check_read(extensions.clone()).await?;
        let needs_restart = running.that_need_restart(file);
        // A tenant's file has no such keys: after any change the whole tenant is loaded again.
        if !needs_restart.is_empty() && self.tenant.is_empty() {
            tracing::warn!(
                keys = needs_restart.join(", "),
                "these keys of the config have changed, and count after a restart"
            );
        }
        let changed = self.refresh(extensions, Occasion::Reload).await?;
        let failed = self.failures().into_iter().map(|failure| failure.source).collect();
        let edition = self.publisher.current().extensions.number;
        tracing::info!(edition, extensions_changed = changed, "the extensions of the config were read again");
        let (extensions_changed, changed_keys) = (changed, Vec::new());
        Ok(ReloadOutcome { changed, edition, extensions_changed, changed_keys, needs_restart, failed })
    }

    /// The changed keys of the config file that need a restart, each with the reason. Empty if the file is invalid.
    pub(crate) fn needs_restart(&self) -> Vec<String> {
        let Some(running) = &self.config_file else { return Vec::new() };
        running.read_again().map(|(file, _)| running.that_need_restart(&file)).unwrap_or_default()
    }

    /// Replaces the config of the process, and returns the previous one. Extensions that are loaded later are checked
    /// against the ceilings and callers of the new config.
    pub(crate) fn set_process(&self, process: Arc<Config>) -> Arc<Config> {
        std::mem::replace(&mut *self.loader.process.lock().unwrap_or_else(PoisonError::into_inner), process)
    }

    /// Sets how callers authenticate, and makes the cards again.
    pub(crate) async fn set_security(&self, security: &SecurityDeclaration) {
        self.issuer.set_security(security);
        self.reissue().await;
    }
}
