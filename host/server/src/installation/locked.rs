//! Components that a config names by reference: found in `annex.lock`, read from the cache, and verified by `[trust]`.
//!
//! No registry is called, and no tag is looked up. The bytes that are verified are those that the caller compiles.

use std::io;
use std::path::PathBuf;

use annex_registry::{Cache, Cached, Digest, ManifestError, Reference, ReferenceError, component_layer};
use annex_telemetry::fault;
use annex_tenants::PulledComponent;
use annex_trust::{Policy, Refusal, TrustConfig, TrustError};

use crate::config::{Config, registries};
use crate::locations::Locations;
use crate::lock::{Lock, LockedComponent};

/// The lock, the cache and the policy of one agent, as they were when they were opened.
pub(crate) struct LockedComponents {
    /// `None` if there is no lock. An error is the reason for each reference.
    lock: Result<Option<Lock>, String>,
    /// The folder of the cache. `None` without a cache.
    cache: Option<PathBuf>,
    policy: Result<Policy, String>,
}

/// A component of a registry whose signatures satisfy the policy.
pub(crate) struct VerifiedComponent {
    pub(crate) bytes: Vec<u8>,
    /// The digest of its manifest.
    pub(crate) manifest: Digest,
    /// The names of the grants that the operator has accepted for it. `None` if `annex.lock` does not have it.
    pub(crate) accepted: Option<Vec<String>>,
}

/// The reasons why a component of a registry is not installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockedError {
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The lock or the policy cannot be used.
    #[error("{0}")]
    Unusable(String),
    #[error("{0} is not in annex.lock; run: annex lock CONFIG")]
    NotLocked(String),
    #[error("annex.lock has the manifest {locked} for {reference}; run: annex lock CONFIG")]
    OtherManifest { reference: String, locked: Digest },
    #[error("there is no folder for the components of registries; set XDG_CACHE_HOME or HOME")]
    NoCache,
    #[error("{reference} ({manifest}) is not in the cache {}; run: annex lock CONFIG, or annex load FILE", cache.display())]
    NotCached { reference: String, manifest: Digest, cache: PathBuf },
    #[error("{reference} cannot be read from the cache {}", cache.display())]
    Cache {
        reference: String,
        cache: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the manifest of {reference} cannot be used")]
    Manifest {
        reference: String,
        #[source]
        source: ManifestError,
    },
    #[error("annex.lock has the {what} {locked} for {reference}, but its manifest has {found}; run: annex lock CONFIG")]
    OtherComponent { reference: String, what: &'static str, locked: String, found: String },
    #[error("the stored component of {0} has been changed; send the text of the tenant again, which pulls it again")]
    Changed(String),
    #[error(transparent)]
    Untrusted(#[from] Refusal),
}

impl LockedComponents {
    /// Opens the lock in the folder of the config, and the keys of the policy. `trust` is the table of a tenant's file,
    /// which adds to that of `process`.
    pub(crate) fn open(locations: &Locations, process: &Config, trust: Option<&TrustConfig>) -> Self {
        let lock = Lock::read(&locations.config).map_err(|error| fault::text(&error));
        let policy = policy(locations, process, trust).map_err(|error| fault::text(&error));
        Self { lock, cache: locations.registry_cache(), policy }
    }

    /// Reads and verifies the component that `reference` stands for.
    ///
    /// # Errors
    /// [`LockedError`]
    pub(crate) fn read(&self, reference: &str) -> Result<VerifiedComponent, LockedError> {
        let reference: Reference = reference.parse()?;
        let locked = self.find(&reference)?;
        let Cached { manifest, component_digest, component, signatures } = self.cached(&reference, locked)?;
        let size = component_layer(&manifest)
            .map_err(|source| LockedError::Manifest { reference: reference.to_string(), source })?
            .size;
        let other = |what, locked: String, found: String| {
            Err(LockedError::OtherComponent { reference: reference.to_string(), what, locked, found })
        };
        if locked.component != component_digest {
            return other("component", locked.component.to_string(), component_digest.to_string());
        }
        // The manifest is the registry's, so its size is compared with the bytes as well.
        if locked.size != size || u64::try_from(component.len()) != Ok(size) {
            return other("size", locked.size.to_string(), size.to_string());
        }
        self.policy()?.verify(&reference.place(), locked.manifest.as_str(), &signatures)?;
        let LockedComponent { manifest, grants, .. } = locked.clone();
        Ok(VerifiedComponent { bytes: component, manifest, accepted: Some(grants) })
    }

    /// Verifies a component that was pulled for a tenant. Returns the digest of its manifest, which is that in the reference.
    ///
    /// # Errors
    /// [`LockedError`]
    pub(crate) fn verify_pulled(&self, reference: &Reference, pulled: &PulledComponent) -> Result<Digest, LockedError> {
        let PulledComponent { manifest, component, signatures } = pulled;
        let digest = Digest::of(manifest);
        let layer = component_layer(manifest)
            .map_err(|source| LockedError::Manifest { reference: reference.to_string(), source })?;
        let is_whole = layer.digest == Digest::of(component) && u64::try_from(component.len()) == Ok(layer.size);
        if reference.digest() != Some(&digest) || !is_whole {
            return Err(LockedError::Changed(reference.to_string()));
        }
        self.policy()?.verify(&reference.place(), digest.as_str(), signatures)?;
        Ok(digest)
    }

    fn policy(&self) -> Result<&Policy, LockedError> {
        self.policy.as_ref().map_err(|reason| LockedError::Unusable(reason.clone()))
    }

    fn find(&self, reference: &Reference) -> Result<&LockedComponent, LockedError> {
        let lock = self.lock.as_ref().map_err(|reason| LockedError::Unusable(reason.clone()))?;
        let locked = lock.as_ref().and_then(|lock| lock.find(reference));
        let locked = locked.ok_or_else(|| LockedError::NotLocked(reference.to_string()))?;
        match reference.digest() {
            Some(digest) if *digest != locked.manifest => {
                let (reference, locked) = (reference.to_string(), locked.manifest.clone());
                Err(LockedError::OtherManifest { reference, locked })
            }
            _ => Ok(locked),
        }
    }

    fn cached(&self, reference: &Reference, locked: &LockedComponent) -> Result<Cached, LockedError> {
        let cache = self.cache.clone().ok_or(LockedError::NoCache)?;
        match Cache::at(cache.clone()).get(&locked.manifest) {
            Ok(Some(cached)) => Ok(cached),
            Ok(None) => {
                let (reference, manifest) = (reference.to_string(), locked.manifest.clone());
                Err(LockedError::NotCached { reference, manifest, cache })
            }
            Err(source) => Err(LockedError::Cache { reference: reference.to_string(), cache, source }),
        }
    }
}

fn policy(locations: &Locations, process: &Config, trust: Option<&TrustConfig>) -> Result<Policy, TrustError> {
    let policy = process.policy(process.folder())?;
    match trust {
        Some(trust) => Ok(policy.strengthened(&registries::policy(trust, &locations.config)?)),
        None => Ok(policy),
    }
}
