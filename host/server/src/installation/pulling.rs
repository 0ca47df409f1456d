//! Pulls components of registries for added tenants. An operator's request that puts the text of a tenant pulls them, and
//! no other request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use annex_registry::{
    Client, ClientConfig, Credentials, CredentialsError, Reference, ReferenceError, RegistryError, Resolved,
};
use annex_telemetry::fault;
use annex_tenants::{ComponentStore, PulledComponent, TenantStoreError, Upload, UploadBounds};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

use super::denied::{Denial, DeniedComponents};
use super::locked::{LockedComponents, LockedError};
use crate::config::{Config, ExtensionConfig};
use crate::locations::Locations;

/// The time limit for pulling all components of a text. With the time limit of the trial load it stays within the
/// timeout of clients of the admin API.
const PULL: Duration = Duration::from_secs(50);

/// Pulls components for tenants, one after the other.
#[derive(Clone)]
pub(crate) struct Puller {
    pub(crate) components: Arc<dyn ComponentStore>,
    pub(crate) denied: Arc<DeniedComponents>,
    pub(crate) locations: Locations,
    /// Held while components are pulled, which bounds their memory.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
}

/// The reasons why a component is not pulled.
#[derive(Debug, thiserror::Error)]
enum PullError {
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error(transparent)]
    Untrusted(#[from] LockedError),
    #[error("{0}; use another component, or ask the operator to remove the digest from trust.deny_file")]
    Denied(Denial),
    #[error("it cannot be pulled")]
    Registry(#[from] RegistryError),
    #[error("it cannot be pulled")]
    Credentials(#[from] CredentialsError),
    #[error(
        "there is no room for it: the server has {} components of tenants with {} bytes, of at most {} \
         (tenants.max_uploads) with {} (tenants.max_upload_bytes)",
        .held.count, .held.bytes, .bounds.count, .bounds.bytes
    )]
    Full { held: UploadBounds, bounds: UploadBounds },
    #[error("the server stores no components for tenants; ask the operator to raise tenants.max_uploads, which is 0")]
    Off,
    #[error("the components of tenants cannot be read or stored now")]
    Store(#[from] TenantStoreError),
    #[error("verifying it broke off")]
    BrokenOff(#[from] JoinError),
    #[error("the components of the text are not pulled after {} seconds; send the text again", PULL.as_secs())]
    Late,
}

/// The tenant of the pulled components, and the settings of the pull.
struct PullScope<'a> {
    tenant: &'a str,
    config: &'a Config,
    bounds: UploadBounds,
    locked: Arc<LockedComponents>,
}

impl Puller {
    /// Stores the components that a text names in registries of `tenants.registries`, unless they are stored. Does nothing
    /// for other components.
    ///
    /// # Errors
    /// The first component that cannot be pulled, as a pair of the config key and the reason.
    pub(crate) async fn pull(
        &self,
        tenant: &str,
        extensions: &[ExtensionConfig],
        config: &Arc<Config>,
    ) -> Result<(), (String, String)> {
        let numbered = extensions.iter().enumerate().filter(|(_, extension)| extension.is_pulled);
        let named: Vec<(usize, &str)> = numbered.map(|(number, named)| (number, named.component.as_str())).collect();
        let Some((first, _)) = named.first().copied() else { return Ok(()) };
        let pulling = Box::pin(self.pull_all(tenant, &named, config));
        let pulled = timeout(PULL, pulling).await.unwrap_or_else(|_| Err((first, fault::text(&PullError::Late))));
        pulled.map_err(|(number, reason)| (format!("extension[{number}].component"), reason))
    }

    async fn pull_all(
        &self,
        tenant: &str,
        named: &[(usize, &str)],
        config: &Arc<Config>,
    ) -> Result<(), (usize, String)> {
        let _turn = self.turn.lock().await;
        let stored = config.stored_tenants.clone().unwrap_or_default();
        let bounds = UploadBounds { count: stored.max_uploads, bytes: stored.max_upload_bytes };
        let (locations, process) = (self.locations.clone(), Arc::clone(config));
        let opening = spawn_blocking(move || LockedComponents::open(&locations, &process, None)).await;
        let first = named.first().map(|(number, _)| *number).unwrap_or_default();
        let locked = Arc::new(opening.map_err(|error| (first, fault::text(&PullError::from(error))))?);
        let scope = PullScope { tenant, config, bounds, locked };
        for (number, component) in named {
            Box::pin(self.pull_one(component, &scope)).await.map_err(|error| (*number, fault::text(&error)))?;
        }
        Ok(())
    }

    async fn pull_one(&self, component: &str, scope: &PullScope<'_>) -> Result<(), PullError> {
        let PullScope { tenant, config, bounds, locked } = scope;
        let reference: Reference = component.parse()?;
        let Some(digest) = reference.digest().cloned() else { return Ok(()) };
        if self.components.claim_pulled(tenant, digest.as_str()).await?
            && let Some(stored) = self.components.find_pulled(digest.as_str()).await?
            && verified(locked, &reference, stored).await.is_ok()
        {
            return Ok(());
        }
        if bounds.count == 0 {
            return Err(PullError::Off);
        }
        let client = self.client(reference.registry(), config).await?;
        let Resolved { layer, .. } = client.resolve(&reference).await?;
        if let Some(denial) = self.denied.denial(layer.digest.as_str(), Some(digest.as_str())) {
            return Err(PullError::Denied(denial));
        }
        let pulled = client.pull(&reference, &()).await?;
        let signatures = client.signatures(&reference, &digest).await?;
        let pulled = PulledComponent { manifest: pulled.manifest, component: pulled.component, signatures };
        let pulled = verified(locked, &reference, pulled).await?;
        match self.components.put_pulled(tenant, digest.as_str(), &pulled, *bounds).await? {
            Upload::Full(held) => Err(PullError::Full { held, bounds: *bounds }),
            Upload::Stored | Upload::Known => Ok(()),
        }
    }

    /// A client with the settings of the registry, and with the credentials that `annex login` stores.
    async fn client(&self, host: &str, config: &Config) -> Result<Client, PullError> {
        let login = Credentials::from_env().find(host).await?;
        Ok(Client::new(ClientConfig {
            registries: BTreeMap::from([(host.to_owned(), config.registry(host, &self.locations.config))]),
            logins: login.map(|login| (host.to_owned(), login)).into_iter().collect(),
        }))
    }
}

/// Verifies a component of up to 32 MiB on a blocking thread, and returns it.
async fn verified(
    locked: &Arc<LockedComponents>,
    reference: &Reference,
    pulled: PulledComponent,
) -> Result<PulledComponent, PullError> {
    let (locked, reference) = (Arc::clone(locked), reference.clone());
    let verifying = spawn_blocking(move || locked.verify_pulled(&reference, &pulled).map(|_| pulled));
    Ok(verifying.await??)
}
