//! Settings of the process that an installer keeps to, and that a reload of the config changes.

use std::sync::PoisonError;

use annex_auth::SecurityDeclaration;

use super::{InstallError, Installer};
use crate::config::{Config, LimitsConfig};

impl Installer {
    /// All that the config file says now.
    pub(crate) fn config_now(&self) -> Result<Config, InstallError> {
        self.config_file.as_ref().ok_or(InstallError::NoFile)?.config().map_err(InstallError::Config)
    }

    /// No limit of an extension that is loaded from now on may be above this. Returns what counted until now.
    pub(crate) fn set_ceiling(&self, ceiling: LimitsConfig) -> LimitsConfig {
        std::mem::replace(&mut *self.loader.ceiling.lock().unwrap_or_else(PoisonError::into_inner), ceiling)
    }

    /// Makes the cards again, because callers authenticate in another way.
    pub(crate) async fn set_security(&self, security: &SecurityDeclaration) {
        self.issuer.set_security(security);
        self.reissue().await;
    }
}
