//! Applies the config to all served agents after the config was read again.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use super::{Bounds, Installers};
use crate::config::{Config, StoredTenantsConfig};
use crate::installation::installer::{InstallError, ReloadOutcome};
use crate::settings::SettingsChange;

impl Installers {
    /// Reads the config of the server again. Applies the extensions of the config and the settings that need no
    /// restart. If an extension or a setting cannot be applied, applies nothing. The caller then applies the tenants
    /// that the returned config names.
    pub(super) async fn reload_own(&self) -> Result<(ReloadOutcome, Arc<Config>), InstallError> {
        let prepared = self.own.config_now().and_then(|read| {
            let prepared = self.settings.prepare(&read)?;
            let file = read.file.ok_or(InstallError::NoFile)?;
            Ok((prepared, (file, read.extensions)))
        });
        let (prepared, read) = prepared.inspect_err(|error| self.own.note(error))?;
        let config = Arc::clone(&prepared.config);
        // The config's ceilings and callers are set first, because the extensions are checked against them.
        let before = self.own.set_process(Arc::clone(&config));
        let reloaded = self.own.reload_read(read).await;
        let mut reloaded = reloaded.inspect_err(|_| drop(self.own.set_process(before)))?;
        let change = self.settings.put(prepared);
        reloaded.changed |= change.is_any;
        self.put_in_force(change, &config).await;
        Ok((reloaded, config))
    }

    async fn put_in_force(&self, change: SettingsChange, config: &Arc<Config>) {
        let SettingsChange { turns, security, concerns_added, .. } = change;
        if let (Some(added), Some(stored)) = (&self.others.added, &config.stored_tenants) {
            added.set_bounds(Bounds::of(stored));
            if concerns_added {
                added.load_anew();
            }
        }
        let serving = self.others.serving();
        for limiter in
            iter::once(&self.own_turns).chain(serving.iter().map(|(_, serving)| &serving.handler.turn_limiter))
        {
            limiter.set_bounds(turns);
        }
        for (_, serving) in &serving {
            drop(serving.installer.set_process(Arc::clone(config)));
        }
        if let Some(security) = security {
            for installer in self.serving() {
                installer.set_security(&security).await;
            }
        }
    }
}

impl Bounds {
    pub(crate) fn of(config: &StoredTenantsConfig) -> Self {
        Self { max_loaded: config.max_loaded, idle: Duration::from_secs(config.idle_seconds) }
    }
}
