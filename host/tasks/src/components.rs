//! Components that operators upload for the tenants that are added. What they do is decided elsewhere.

use annex_protocol::Timestamp;
use async_trait::async_trait;

use crate::StoreError;

/// The bounds on what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadBounds {
    /// The most components.
    pub count: u64,
    /// The most bytes of all of them together.
    pub bytes: u64,
}

/// A component in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedComponent {
    /// Its digest, as text.
    pub digest: String,
    /// Its bytes.
    pub size: u64,
    /// When it was uploaded first.
    pub uploaded_at: Timestamp,
}

/// The outcome of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// It is kept.
    Stored,
    /// It was there already.
    Known,
    /// It would be more than the bounds allow. So much is there.
    Full(UploadBounds),
}

/// Keeps components by their digests.
#[async_trait]
pub trait ComponentStore: Send + Sync {
    /// Keeps a component, unless that would be more than the bounds allow.
    ///
    /// # Errors
    /// [`StoreError::InvalidKey`] for the digest, [`StoreError::Database`].
    async fn put(&self, digest: &str, bytes: &[u8], bounds: UploadBounds) -> Result<Upload, StoreError>;

    /// The bytes of a component; `None` where it was not uploaded.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn find(&self, digest: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// True if the component was uploaded, which costs less than reading it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn has(&self, digest: &str) -> Result<bool, StoreError>;

    /// All that were uploaded, by digest. Their number is bounded.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn list(&self) -> Result<Vec<ListedComponent>, StoreError>;

    /// Removes a component. Returns false where there is none.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn remove(&self, digest: &str) -> Result<bool, StoreError>;
}
