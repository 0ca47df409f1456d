//! Pulls a component and finds out who has signed it.

use annex_registry::{Client, Digest, Layer, Pulled, Reference};
use anyhow::Context;
use serde::Serialize;

use super::bar::Bar;
use super::difference::LockDifference;
use super::keys::{SignerArgs, SignerPolicy};
use super::{RegistryArgs, failed};

/// Where a component comes from, and its signatures.
#[derive(Serialize)]
pub(crate) struct Origin {
    /// The reference with the digest.
    pub(crate) reference: String,
    /// The digest of the manifest, which signatures are about.
    pub(crate) manifest: Digest,
    /// The number of signatures. Nobody has verified them, unless there are signers.
    pub(crate) signatures: usize,
    /// The signers that were asked for and that have signed the component: files of keys, and keyless identities.
    pub(crate) signers: Vec<String>,
    /// The SBOMs of the component, if a command lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sboms: Option<Vec<Layer>>,
    /// The version in `annex.lock`, if a command compares with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) locked: Option<LockDifference>,
}

/// A component that was pulled, with everything that its registry has about it.
pub(crate) struct SignedComponent {
    pub(crate) pulled: Pulled,
    pub(crate) signatures: Vec<Vec<u8>>,
    pub(crate) origin: Origin,
    client: Client,
}

impl SignedComponent {
    /// Lists the SBOMs of the component.
    ///
    /// # Errors
    /// When the registry fails.
    pub(crate) async fn list_sboms(&mut self, reference: &Reference) -> anyhow::Result<()> {
        let sboms = self.client.sboms(reference, &self.pulled.manifest_digest).await;
        self.origin.sboms = Some(sboms.map_err(failed).context("cannot read the list of SBOMs")?);
        Ok(())
    }

    /// Pulls the SBOMs of the component.
    ///
    /// # Errors
    /// When the registry fails.
    pub(crate) async fn pull_sboms(&self, reference: &Reference) -> anyhow::Result<Vec<Vec<u8>>> {
        let sboms = self.client.sboms(reference, &self.pulled.manifest_digest).await;
        let mut contents = Vec::new();
        for sbom in sboms.map_err(failed).context("cannot read the list of SBOMs")? {
            contents.push(self.client.pull_sbom(reference, &sbom).await.map_err(failed)?);
        }
        Ok(contents)
    }
}

/// Pulls a component, which each of these signers must have signed. `what` names the operation for the bar.
///
/// # Errors
/// When the component or its signatures cannot be read, or when a signer has not signed it.
pub(crate) async fn pull(
    reference: &Reference,
    signers: &SignerArgs,
    registry: &RegistryArgs,
    what: &'static str,
) -> anyhow::Result<SignedComponent> {
    let policy = signers.policy()?;
    let client = registry.client(reference.registry()).await?;
    let bar = Bar::new(what);
    let pulled = client.pull(reference, &bar).await;
    drop(bar);
    let pulled = pulled.map_err(failed)?;
    let signatures = client.signatures(reference, &pulled.manifest_digest).await;
    let signatures = signatures.map_err(failed).context("cannot read the signatures")?;
    let origin = origin(reference, &pulled.manifest_digest, &signatures, policy.as_ref())?;
    Ok(SignedComponent { pulled, signatures, origin, client })
}

/// Verifies the signatures, if there is a policy.
///
/// # Errors
/// When the signatures do not satisfy the policy.
pub(super) fn origin(
    reference: &Reference,
    manifest: &Digest,
    signatures: &[Vec<u8>],
    policy: Option<&SignerPolicy>,
) -> anyhow::Result<Origin> {
    let signers = policy.map(|policy| policy.verify(&reference.place(), manifest.as_str(), signatures)).transpose()?;
    let signers = signers.unwrap_or_default();
    let (reference, manifest) = (reference.with_digest(manifest).to_string(), manifest.clone());
    Ok(Origin { reference, manifest, signatures: signatures.len(), signers, sboms: None, locked: None })
}
