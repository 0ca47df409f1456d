//! Uploaded and pulled components in memory. They are lost when the process ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::Timestamp;
use async_trait::async_trait;

use crate::{ComponentStore, ListedComponent, PulledComponent, TenantStoreError, Upload, UploadBounds, key};

#[derive(Debug, Default)]
pub(crate) struct MemoryComponents(Mutex<StoredComponents>);

#[derive(Debug, Default)]
struct StoredComponents {
    /// The uploaded components by their digests.
    uploaded: BTreeMap<String, StoredComponent>,
    /// The pulled components by the digests of their manifests.
    pulled: BTreeMap<String, Arc<PulledComponent>>,
    /// The digests of pulled components by tenant.
    claims: BTreeSet<(String, String)>,
}

#[derive(Debug)]
struct StoredComponent {
    bytes: Arc<[u8]>,
    at: Timestamp,
}

impl MemoryComponents {
    fn lock(&self) -> MutexGuard<'_, StoredComponents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoredComponents {
    /// The present number and size of all components, if one more of `bytes` would exceed the bounds.
    fn full(&self, bytes: usize, bounds: UploadBounds) -> Option<UploadBounds> {
        let uploaded = self.uploaded.values().map(|component| component.bytes.len() as u64);
        let pulled = self.pulled.values().map(|component| component.size() as u64);
        let count = (self.uploaded.len() + self.pulled.len()) as u64;
        let held = UploadBounds { count, bytes: uploaded.chain(pulled).sum() };
        let is_full = held.count >= bounds.count || held.bytes.saturating_add(bytes as u64) > bounds.bytes;
        is_full.then_some(held)
    }

    fn claim(&mut self, tenant: &str, digest: &str) {
        self.claims.insert((tenant.to_owned(), digest.to_owned()));
    }
}

#[async_trait]
impl ComponentStore for MemoryComponents {
    async fn put(&self, digest: &str, bytes: &[u8], bounds: UploadBounds) -> Result<Upload, TenantStoreError> {
        key::check_name("digest", digest)?;
        let mut components = self.lock();
        if components.uploaded.contains_key(digest) {
            return Ok(Upload::Known);
        }
        if let Some(held) = components.full(bytes.len(), bounds) {
            return Ok(Upload::Full(held));
        }
        let component = StoredComponent { bytes: bytes.into(), at: Timestamp::now() };
        components.uploaded.insert(digest.to_owned(), component);
        Ok(Upload::Stored)
    }

    async fn find(&self, digest: &str) -> Result<Option<Vec<u8>>, TenantStoreError> {
        let bytes = self.lock().uploaded.get(digest).map(|component| Arc::clone(&component.bytes));
        // The copy is made without the lock.
        Ok(bytes.map(|bytes| bytes.to_vec()))
    }

    async fn has(&self, digest: &str) -> Result<bool, TenantStoreError> {
        Ok(self.lock().uploaded.contains_key(digest))
    }

    async fn put_pulled(
        &self,
        tenant: &str,
        digest: &str,
        pulled: &PulledComponent,
        bounds: UploadBounds,
    ) -> Result<Upload, TenantStoreError> {
        key::check_name("tenant", tenant)?;
        key::check_name("digest", digest)?;
        let mut components = self.lock();
        let is_known = components.pulled.contains_key(digest);
        if !is_known && let Some(held) = components.full(pulled.size(), bounds) {
            return Ok(Upload::Full(held));
        }
        components.pulled.insert(digest.to_owned(), Arc::new(pulled.clone()));
        components.claim(tenant, digest);
        Ok(if is_known { Upload::Known } else { Upload::Stored })
    }

    async fn claim_pulled(&self, tenant: &str, digest: &str) -> Result<bool, TenantStoreError> {
        let mut components = self.lock();
        let is_known = components.pulled.contains_key(digest);
        if is_known {
            components.claim(tenant, digest);
        }
        Ok(is_known)
    }

    async fn find_pulled(&self, digest: &str) -> Result<Option<PulledComponent>, TenantStoreError> {
        let found = self.lock().pulled.get(digest).cloned();
        // The copy is made without the lock.
        Ok(found.map(Arc::unwrap_or_clone))
    }

    async fn release_pulled(&self, tenant: &str, text: &str) -> Result<(), TenantStoreError> {
        let mut components = self.lock();
        let StoredComponents { pulled, claims, .. } = &mut *components;
        claims.retain(|(of, digest)| of != tenant || text.contains(digest));
        pulled.retain(|digest, _| claims.iter().any(|(_, claimed)| claimed == digest));
        Ok(())
    }

    async fn list(&self) -> Result<Vec<ListedComponent>, TenantStoreError> {
        let components = self.lock();
        let listed = components.uploaded.iter().map(|(digest, StoredComponent { bytes, at })| ListedComponent {
            digest: digest.clone(),
            size: bytes.len() as u64,
            uploaded_at: *at,
        });
        Ok(listed.collect())
    }

    async fn remove(&self, digest: &str) -> Result<bool, TenantStoreError> {
        Ok(self.lock().uploaded.remove(digest).is_some())
    }
}
