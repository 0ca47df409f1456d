//! The authenticator, which a reload of the config can replace.

use std::sync::{Arc, PoisonError, RwLock};

use annex_auth::Authenticator;

/// The current authenticator. A reload of the config replaces it, for all clones.
#[derive(Clone)]
pub(crate) struct Authentication(Arc<RwLock<Arc<Authenticator>>>);

impl Authentication {
    pub(crate) fn new(authenticator: Authenticator) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(authenticator))))
    }

    /// The authenticator for the next request.
    pub(crate) fn current(&self) -> Arc<Authenticator> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the authenticator for later requests.
    pub(crate) fn replace(&self, authenticator: Arc<Authenticator>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = authenticator;
    }
}
