//! How a component differs from the version in `annex.lock`.

use std::fmt;
use std::path::Path;

use annex_registry::{Digest, Reference};
use annex_runtime::GrantNeeded;
use annex_server::lock::{LOCK_FILE, Lock};
use serde::Serialize;

use crate::{output, serve};

/// The version of a component in `annex.lock`, and what another version needs beyond it.
#[derive(Serialize)]
pub(crate) struct LockDifference {
    /// The reference in the lock.
    reference: String,
    /// The digest of the manifest in the lock.
    manifest: Digest,
    /// The size of the locked component in bytes.
    size: u64,
    /// The accepted grants.
    grants: Vec<String>,
    /// True if the lock has the inspected component itself.
    is_same: bool,
    /// The grants that the inspected component needs and the lock does not list.
    further_grants: Vec<&'static str>,
}

impl LockDifference {
    /// Finds the version in the lock beside a config: the one of the same reference, or else of the same path. `manifest` is the
    /// digest of the inspected component.
    pub(crate) fn read(config: &Path, reference: &Reference, manifest: &Digest) -> anyhow::Result<Option<Self>> {
        let lock = Lock::read(&serve::locations(config).config)?.unwrap_or_default();
        let of_path = || lock.components.iter().find(|locked| locked.reference.place() == reference.place());
        let Some(locked) = lock.find(reference).or_else(of_path) else {
            output::note(&format!("the {LOCK_FILE} of {} has no version of {}", config.display(), reference.place()));
            return Ok(None);
        };
        Ok(Some(Self {
            reference: locked.reference.to_string(),
            manifest: locked.manifest.clone(),
            size: locked.size,
            grants: locked.grants.clone(),
            is_same: locked.manifest == *manifest,
            further_grants: Vec::new(),
        }))
    }

    /// Compares the grants that the inspected component needs.
    pub(crate) fn compare(&mut self, needs: &[GrantNeeded]) {
        let names = needs.iter().map(|grant| grant.name());
        self.further_grants = names.filter(|name| !self.grants.iter().any(|accepted| accepted == name)).collect();
    }
}

impl fmt::Display for LockDifference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reference, manifest, size, is_same, further_grants, .. } = self;
        if *is_same {
            return formatter.write_str("has this component");
        }
        write!(formatter, "has {reference} at {manifest}, {size} bytes; this component needs ")?;
        match further_grants.as_slice() {
            [] => formatter.write_str("no further grants"),
            names => write!(formatter, "further grants: {}", names.join(", ")),
        }
    }
}
