//! Components that operators upload for added tenants. This crate only stores their bytes.

use annex_protocol::Timestamp;
use async_trait::async_trait;

use crate::TenantStoreError;

/// The bounds on the stored components: uploaded and pulled ones together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadBounds {
    /// The maximum number of components.
    pub count: u64,
    /// The maximum size of all components together, in bytes.
    pub bytes: u64,
}

/// A component in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedComponent {
    /// The digest of the component, as text.
    pub digest: String,
    /// The size of the component, in bytes.
    pub size: u64,
    /// The time of the first upload of the component.
    pub uploaded_at: Timestamp,
}

/// A component of a registry, with everything that a replica needs to verify it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledComponent {
    /// The manifest as the registry has sent it.
    pub manifest: Vec<u8>,
    /// The component.
    pub component: Vec<u8>,
    /// The signatures of the manifest.
    pub signatures: Vec<Vec<u8>>,
}

impl PulledComponent {
    /// The size of all parts together, in bytes.
    pub(crate) fn size(&self) -> usize {
        let signatures: usize = self.signatures.iter().map(Vec::len).sum();
        self.manifest.len() + self.component.len() + signatures
    }
}

/// The outcome of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// The component was stored.
    Stored,
    /// The component was stored already.
    Known,
    /// The component was not stored, because all components together would exceed the bounds. Contains the present
    /// number of stored components and their present size.
    Full(UploadBounds),
}

/// Keeps components by their digests.
#[async_trait]
pub trait ComponentStore: Send + Sync {
    /// Stores a component, unless the stored components would then exceed the bounds.
    ///
    /// # Errors
    /// [`TenantStoreError::InvalidKey`] for the digest, [`TenantStoreError::Database`].
    async fn put(&self, digest: &str, bytes: &[u8], bounds: UploadBounds) -> Result<Upload, TenantStoreError>;

    /// The bytes of a component; `None` if it was not uploaded.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn find(&self, digest: &str) -> Result<Option<Vec<u8>>, TenantStoreError>;

    /// True if the component was uploaded. This check costs less than reading the component.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn has(&self, digest: &str) -> Result<bool, TenantStoreError>;

    /// Stores a component that was pulled for a tenant, unless the stored components would then exceed the bounds.
    /// `digest` is that of its manifest. The parts replace those of an earlier pull.
    ///
    /// # Errors
    /// [`TenantStoreError::InvalidKey`] for the tenant or the digest, [`TenantStoreError::Database`].
    async fn put_pulled(
        &self,
        tenant: &str,
        digest: &str,
        pulled: &PulledComponent,
        bounds: UploadBounds,
    ) -> Result<Upload, TenantStoreError>;

    /// Notes that a tenant has a pulled component. Returns false if the component is not stored.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn claim_pulled(&self, tenant: &str, digest: &str) -> Result<bool, TenantStoreError>;

    /// A pulled component by the digest of its manifest; `None` if it is not stored.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn find_pulled(&self, digest: &str) -> Result<Option<PulledComponent>, TenantStoreError>;

    /// Takes from a tenant the pulled components whose digests are not in `text`, the text of the tenant. Removes those
    /// that no tenant has any more.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn release_pulled(&self, tenant: &str, text: &str) -> Result<(), TenantStoreError>;

    /// All uploaded components, in the order of their digests. The bounds of uploads limit the number of components.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn list(&self) -> Result<Vec<ListedComponent>, TenantStoreError>;

    /// Removes a component. Returns false if no component has the digest.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn remove(&self, digest: &str) -> Result<bool, TenantStoreError>;
}
