//! Where the components of a config come from: registries and the cache of pulled components. Each component is verified by the
//! config's `[trust]` and inspected. None of its code runs.

use std::io::ErrorKind;
use std::path::Path;

use annex_registry::{Cache, Client, Credentials, Pulled, Reference, RegistryError, Resolved};
use annex_runtime::{Access, GrantNeeded, Inspection, Runtime, RuntimeConfig};
use annex_server::lock::LockedComponent;
use annex_server::{Config, Locations};
use annex_trust::Policy;
use anyhow::Context;

use super::bar::Bar;
use super::{failed, grants};
use crate::exit::Failure;
use crate::{output, progress};

/// The maximum size of a version in a line, in bytes.
const MAX_VERSION: usize = 40;

/// The registries, the policy and the cache of a config.
pub(super) struct ComponentSource<'a> {
    config: &'a Config,
    folder: &'a Path,
    policy: Policy,
    cache: Cache,
    runtime: Runtime,
}

/// A component that the policy accepts.
pub(super) struct InspectedComponent {
    pub(super) pulled: Pulled,
    /// The number of signatures that the component has.
    pub(super) signatures: usize,
    /// The signers that the policy names and that have signed the component.
    pub(super) signers: Vec<String>,
    pub(super) inspection: Inspection,
}

impl<'a> ComponentSource<'a> {
    pub(super) fn new(config: &'a Config, locations: &'a Locations) -> anyhow::Result<Self> {
        let folder = locations.config.as_path();
        let policy = config.policy(folder)?;
        let cache = locations.registry_cache().context("there is no cache folder; set XDG_CACHE_HOME or HOME")?;
        let runtime = Runtime::new(&RuntimeConfig { instances: 1, ..RuntimeConfig::default() })?;
        Ok(Self { config, folder, policy, cache: Cache::at(cache), runtime })
    }

    /// The policy of the config's `[trust]`.
    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Finds out which manifest the reference names now.
    pub(super) async fn resolve(&self, reference: &Reference) -> anyhow::Result<Resolved> {
        let client = self.client(reference.registry()).await?;
        client.resolve(reference).await.map_err(|error| failed_in_config(reference, error))
    }

    /// Pulls a component into the cache.
    ///
    /// # Errors
    /// When the registry fails, or when the component is not trusted or no extension.
    pub(super) async fn pull(&self, reference: &Reference, policy: &Policy) -> anyhow::Result<InspectedComponent> {
        let client = self.client(reference.registry()).await?;
        let bar = Bar::new("pulling");
        let pulled = client.pull(reference, &bar).await;
        drop(bar);
        let pulled = pulled.map_err(|error| failed_in_config(reference, error))?;
        let signatures = client.signatures(reference, &pulled.manifest_digest).await;
        let signatures =
            signatures.map_err(|error| failed_in_config(reference, error)).context("cannot read the signatures")?;
        let component = self.inspected(reference, pulled, &signatures, policy).await?;
        let stored = self.cache.put(&component.pulled, &signatures);
        stored.with_context(|| format!("cannot store {reference} in the cache"))?;
        Ok(component)
    }

    /// Reads a locked component from the cache. If the cache lacks it, or has no signatures that the policy accepts, pulls the
    /// digest in the lock.
    ///
    /// # Errors
    /// As [`pull`](Self::pull), and when the lock has another digest or size.
    pub(super) async fn locked(&self, locked: &LockedComponent, policy: &Policy) -> anyhow::Result<InspectedComponent> {
        let LockedComponent { reference, manifest, component, size, .. } = locked;
        let changed = |reason: &str| {
            Failure::Refused.error(format!(
                "annex.lock has been changed: {reason} for {reference}; delete its [[component]] there and run \
                 `annex lock` again"
            ))
        };
        if reference.digest().is_some_and(|digest| digest != manifest) {
            return Err(changed("it has another manifest"));
        }
        let found = match self.cached(locked, policy).await {
            None => self.pull_locked(locked, policy).await?,
            Some(Ok(found)) => found,
            // The registry may have newer signatures. If not, the reason is the one of the cache.
            Some(Err(refusal)) => self.pull_locked(locked, policy).await.map_err(|_| refusal)?,
        };
        let bytes = u64::try_from(found.pulled.component.len()).unwrap_or(u64::MAX);
        if found.pulled.component_digest != *component || bytes != *size {
            return Err(changed("it has another digest or size of the component"));
        }
        Ok(found)
    }

    /// The version of a locked component. `None` if that cannot be found out without a registry.
    pub(super) async fn version_in_cache(&self, locked: &LockedComponent) -> Option<String> {
        let cached = self.cache.get(&locked.manifest).ok()??;
        let result = self.runtime.inspect(cached.component).await.ok()?;
        version(&result.inspection)
    }

    async fn pull_locked(&self, locked: &LockedComponent, policy: &Policy) -> anyhow::Result<InspectedComponent> {
        let pulled = self.pull(&locked.reference.with_digest(&locked.manifest), policy).await;
        pulled.context("annex.lock names a component that is not in the cache")
    }

    /// A locked component in the cache, or the reason for which it cannot be used. `None` if it is not there.
    async fn cached(&self, locked: &LockedComponent, policy: &Policy) -> Option<anyhow::Result<InspectedComponent>> {
        let LockedComponent { reference, manifest, .. } = locked;
        let cached = match self.cache.get(manifest) {
            Ok(cached) => cached?,
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                output::note(&format!("{reference} is pulled again: {error}"));
                return None;
            }
            Err(error) => return Some(Err(error).context("cannot read the cache of pulled components")),
        };
        let pulled = Pulled {
            manifest_digest: manifest.clone(),
            manifest: cached.manifest,
            component_digest: cached.component_digest,
            component: cached.component,
        };
        Some(self.inspected(reference, pulled, &cached.signatures, policy).await)
    }

    async fn inspected(
        &self,
        reference: &Reference,
        pulled: Pulled,
        signatures: &[Vec<u8>],
        policy: &Policy,
    ) -> anyhow::Result<InspectedComponent> {
        let verified = policy.verify(&reference.place(), pulled.manifest_digest.as_str(), signatures);
        let signers = verified.map_err(|refusal| Failure::Refused.error(refusal.to_string()))?.signers;
        let _progress = progress::of_compiling();
        let result = self.runtime.inspect(pulled.component.clone()).await;
        let result = result.with_context(|| format!("{reference} is refused"));
        let inspection = result.map_err(|error| Failure::Refused.of(error))?.inspection;
        let mut unknown = inspection.imports.iter().filter(|import| import.access == Access::Unknown);
        if let Some(import) = unknown.next() {
            let text = format!("{reference} is refused: this host does not offer its import {}", import.name);
            return Err(Failure::Refused.error(text));
        }
        let checked = inspection.check_manifest().with_context(|| format!("{reference} is refused"));
        checked.map_err(|error| Failure::Refused.of(error))?;
        Ok(InspectedComponent { pulled, signatures: signatures.len(), signers, inspection })
    }

    async fn client(&self, host: &str) -> anyhow::Result<Client> {
        client_in_config(self.config, self.folder, host).await
    }
}

/// A client with the config's settings for a registry and the person's credentials. Relative paths start at `folder`.
pub(super) async fn client_in_config(config: &Config, folder: &Path, host: &str) -> anyhow::Result<Client> {
    let login = Credentials::from_env().find(host).await?;
    Ok(super::client(host, config.registry(host, folder), login))
}

impl InspectedComponent {
    /// The needed grants, sorted by name: those of the imports and hooks, and those of the descriptor, which only the manifest
    /// names before the component runs.
    pub(super) fn needs(&self) -> Vec<GrantNeeded> {
        self.inspection.declared_needs()
    }

    /// The author's reason for a grant.
    pub(super) fn reason(&self, grant: GrantNeeded) -> Option<&str> {
        self.inspection.manifest.as_ref()?.reason(grant.name())
    }

    /// The entry of the lock. The caller has checked that the operator accepts the needed grants.
    pub(super) fn to_lock(&self, reference: &Reference) -> LockedComponent {
        LockedComponent {
            reference: reference.clone(),
            manifest: self.pulled.manifest_digest.clone(),
            component: self.pulled.component_digest.clone(),
            size: u64::try_from(self.pulled.component.len()).unwrap_or(u64::MAX),
            signers: self.signers.clone(),
            grants: grants::names(&self.needs()).into_iter().map(str::to_owned).collect(),
        }
    }

    pub(super) fn version(&self) -> Option<String> {
        version(&self.inspection)
    }
}

/// Marks the error of a registry with its exit code, and says which setting of the config allows a private address.
pub(super) fn failed_in_config(reference: &Reference, error: RegistryError) -> anyhow::Error {
    if !matches!(error, RegistryError::Refused { .. }) {
        return failed(error);
    }
    let host = reference.registry();
    let hint = format!("if {host} is on a private network, set allow_private = true in its [registries.\"{host}\"]");
    Failure::Refused.error(format!("{error}; {hint}"))
}

/// The version that the component's project names.
fn version(inspection: &Inspection) -> Option<String> {
    let manifest = inspection.manifest.as_ref()?;
    Some(annex_text::line_within(&manifest.version, MAX_VERSION))
}
