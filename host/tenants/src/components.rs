//! Components that operators upload for added tenants. This crate only stores their bytes.

use annex_protocol::Timestamp;
use async_trait::async_trait;

use crate::TenantStoreError;

/// The bounds on the stored components.
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
