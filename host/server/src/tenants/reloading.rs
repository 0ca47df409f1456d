//! Reloads all configs. The outcome lists the changed keys that apply now, and the changed keys that need a restart.
//! The error of a failed reload lists only the latter.

use futures::future::BoxFuture;

use super::Installers;
use crate::config::Config;
use crate::installation::installer::{InstallError, ReloadOutcome};

/// A failed reload.
#[derive(Debug, thiserror::Error)]
#[error("the config was not reloaded in full")]
pub struct ReloadError {
    /// The first failure of the reload.
    #[source]
    pub error: Box<InstallError>,
    /// The changed keys that apply only after a restart, each with the reason. The operator may have changed one of
    /// these keys to fix the error.
    pub needs_restart: Vec<String>,
}

impl Installers {
    /// Reads all configs again. Applies limits, callers and other settings that need no restart. Adds, changes and
    /// removes tenants of the config, and retries failed tenants. If the config of one agent is invalid, the configs of
    /// the other agents are applied nevertheless.
    ///
    /// # Errors
    /// The first failure. The log has all failures.
    pub fn reload(&self) -> BoxFuture<'_, Result<ReloadOutcome, ReloadError>> {
        Box::pin(async move {
            let _door = self.door.lock().await;
            let before = self.config();
            let reloaded = self.reload_all().await;
            let changed = changed_keys(&before, &self.config());
            let keys = changed.join(", ");
            match reloaded {
                Ok(reloaded) => {
                    let ReloadOutcome { edition, extensions_changed, .. } = reloaded;
                    let changed_keys = Some(keys.as_str()).filter(|keys| !keys.is_empty());
                    tracing::info!(edition, extensions_changed, changed_keys, "the config was read again");
                    Ok(ReloadOutcome { changed_keys: changed, ..reloaded })
                }
                Err(error) => {
                    if !changed.is_empty() {
                        tracing::info!(
                            changed_keys = keys,
                            "the config was read again, and that of a tenant cannot be used"
                        );
                    }
                    Err(ReloadError { needs_restart: self.tell_what_needs_restart(&error), error: Box::new(error) })
                }
            }
        })
    }

    fn tell_what_needs_restart(&self, error: &InstallError) -> Vec<String> {
        let keys = self.own.needs_restart();
        // The steps that fail later have logged these keys already.
        if matches!(error, InstallError::Config(_) | InstallError::Table { .. }) && !keys.is_empty() {
            tracing::warn!(keys = keys.join(", "), "these keys of the config have changed too, and need a restart");
        }
        keys
    }
}

/// The changed keys whose new values apply without a restart.
fn changed_keys(before: &Config, now: &Config) -> Vec<String> {
    let files = before.file.as_ref().zip(now.file.as_ref());
    let mut keys = files.map(|(before, now)| before.that_count(now)).unwrap_or_default();
    if before.tenants != now.tenants {
        keys.push("tenant".to_owned());
    }
    keys
}
