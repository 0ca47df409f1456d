//! Who calls, as the config says it now.

use std::sync::{Arc, PoisonError, RwLock};

use annex_auth::Authenticator;

/// The authenticator in force. A reload of the config replaces it. Clones are the same.
#[derive(Clone)]
pub(crate) struct Authentication(Arc<RwLock<Arc<Authenticator>>>);

impl Authentication {
    pub(crate) fn new(authenticator: Authenticator) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(authenticator))))
    }

    /// The authenticator for a request that comes now.
    pub(crate) fn current(&self) -> Arc<Authenticator> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets callers in by another authenticator from now on.
    pub(crate) fn replace(&self, authenticator: Arc<Authenticator>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = authenticator;
    }
}
