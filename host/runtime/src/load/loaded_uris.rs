//! The URIs of the extensions that are loaded for one tenant.
//!
//! Keys belong to a URI, and a component names its own URI. Only the check of the whole set finds out that two
//! extensions have one URI. A hook that runs earlier must not get the keys of the other extension.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use annex_protocol::ExtensionUri;

use crate::confinement::profile::Profile;

/// The loaded extensions of one tenant, also those that were replaced and can be rolled back to.
#[derive(Default)]
pub(crate) struct LoadedUris(Mutex<Vec<LoadedUri>>);

struct LoadedUri {
    /// The name under which the operator has installed the extension.
    name: String,
    profile: Weak<Profile>,
}

impl LoadedUris {
    /// True if an extension with this URI was loaded under another name. A new version has the name of the old one.
    pub(crate) fn has_under_other_name(&self, uri: &ExtensionUri, name: &str) -> bool {
        let is_other = |loaded: &LoadedUri| {
            loaded.name != name && loaded.profile.upgrade().is_some_and(|profile| profile.uri == *uri)
        };
        self.lock().iter().any(is_other)
    }

    /// Adds an extension. It leaves by itself when it is dropped.
    pub(crate) fn add(&self, name: &str, profile: &Arc<Profile>) {
        let mut loaded = self.lock();
        loaded.retain(|loaded| loaded.profile.strong_count() > 0);
        loaded.push(LoadedUri { name: name.to_owned(), profile: Arc::downgrade(profile) });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LoadedUri>> {
        // Each change leaves a whole list, so it is usable after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
