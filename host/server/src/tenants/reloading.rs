//! The outcome of reading all configs again: what counts now, and what needs a restart, also where the reload has failed.

use super::Installers;
use crate::config::Config;
use crate::installation::installer::{InstallError, ReloadOutcome};

/// The reason for which a config that was read again does not count.
#[derive(Debug, thiserror::Error)]
#[error("not all that was read again counts")]
pub struct ReloadError {
    /// The reason.
    #[source]
    pub error: Box<InstallError>,
    /// Keys of the config that have changed and count only after a restart, each with the reason. One of them may be meant to
    /// help.
    pub needs_restart: Vec<String>,
}

impl Installers {
    /// Reads all configs again: puts limits, callers and other settings that need no restart into effect, adds, changes and removes
    /// the tenants that the config names, and tries those again that are not served. A config that cannot be used keeps no other
    /// from being applied.
    ///
    /// # Errors
    /// The first one; the others are in the log.
    pub async fn reload(&self) -> Result<ReloadOutcome, ReloadError> {
        let _door = self.door.lock().await;
        let before = self.config();
        let reloaded = self.reload_all().await;
        let changed_keys = changed_keys(&before, &self.config());
        let keys = changed_keys.join(", ");
        match reloaded {
            Ok(reloaded) => {
                let ReloadOutcome { edition, extensions_changed, .. } = reloaded;
                tracing::info!(edition, extensions_changed, changed_keys = keys, "the config was read again");
                Ok(ReloadOutcome { changed_keys, ..reloaded })
            }
            Err(error) => {
                if !changed_keys.is_empty() {
                    tracing::info!(
                        changed_keys = keys,
                        "the config was read again, and that of a tenant cannot be used"
                    );
                }
                Err(ReloadError { needs_restart: self.tell_what_needs_restart(&error), error: Box::new(error) })
            }
        }
    }

    fn tell_what_needs_restart(&self, error: &InstallError) -> Vec<String> {
        let keys = self.own.needs_restart();
        // Of what fails later it is told before.
        if matches!(error, InstallError::Config(_) | InstallError::Table { .. }) && !keys.is_empty() {
            tracing::warn!(keys = keys.join(", "), "these keys of the config have changed too, and need a restart");
        }
        keys
    }
}

/// The keys that say something else now and count.
fn changed_keys(before: &Config, now: &Config) -> Vec<String> {
    let files = before.file.as_ref().zip(now.file.as_ref());
    let mut keys = files.map(|(before, now)| before.that_count(now)).unwrap_or_default();
    if before.tenants != now.tenants {
        keys.push("tenant".to_owned());
    }
    keys
}
