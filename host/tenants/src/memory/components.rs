//! Uploaded components in memory. They are lost when the process ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::Timestamp;
use async_trait::async_trait;

use crate::{ComponentStore, ListedComponent, TenantStoreError, Upload, UploadBounds, key};

/// The components by their digests.
#[derive(Debug, Default)]
pub(crate) struct MemoryComponents(Mutex<BTreeMap<String, StoredComponent>>);

#[derive(Debug)]
struct StoredComponent {
    bytes: Arc<[u8]>,
    at: Timestamp,
}

impl MemoryComponents {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, StoredComponent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ComponentStore for MemoryComponents {
    async fn put(&self, digest: &str, bytes: &[u8], bounds: UploadBounds) -> Result<Upload, TenantStoreError> {
        key::check_name("digest", digest)?;
        let mut components = self.lock();
        if components.contains_key(digest) {
            return Ok(Upload::Known);
        }
        let held = components.values().map(|component| component.bytes.len() as u64).sum();
        let held = UploadBounds { count: components.len() as u64, bytes: held };
        if held.count >= bounds.count || held.bytes.saturating_add(bytes.len() as u64) > bounds.bytes {
            return Ok(Upload::Full(held));
        }
        components.insert(digest.to_owned(), StoredComponent { bytes: bytes.into(), at: Timestamp::now() });
        Ok(Upload::Stored)
    }

    async fn find(&self, digest: &str) -> Result<Option<Vec<u8>>, TenantStoreError> {
        let bytes = self.lock().get(digest).map(|component| Arc::clone(&component.bytes));
        // The copy is made without the lock.
        Ok(bytes.map(|bytes| bytes.to_vec()))
    }

    async fn has(&self, digest: &str) -> Result<bool, TenantStoreError> {
        Ok(self.lock().contains_key(digest))
    }

    async fn list(&self) -> Result<Vec<ListedComponent>, TenantStoreError> {
        let components = self.lock();
        let listed = components.iter().map(|(digest, StoredComponent { bytes, at })| ListedComponent {
            digest: digest.clone(),
            size: bytes.len() as u64,
            uploaded_at: *at,
        });
        Ok(listed.collect())
    }

    async fn remove(&self, digest: &str) -> Result<bool, TenantStoreError> {
        Ok(self.lock().remove(digest).is_some())
    }
}
