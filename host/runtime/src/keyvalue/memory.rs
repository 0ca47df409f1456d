//! Keys in memory, which end with the process.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use annex_protocol::ExtensionUri;
use async_trait::async_trait;

use super::{KEYS_PER_PAGE, KeyValueError, KeyValueStore, Quota, SCOPES_PER_PAGE, Scope, Space, Usage, incremented};

/// Keys in memory. What it can take is bounded by the quotas of the extensions.
#[derive(Debug, Default)]
pub struct MemoryKeyValueStore {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// No bucket is empty.
    scopes: BTreeMap<Scope, HashMap<ExtensionUri, Bucket>>,
    /// What all buckets of an extension that end hold together, by tenant.
    scoped: HashMap<(String, ExtensionUri), Usage>,
}

#[derive(Debug, Default)]
struct Bucket {
    values: BTreeMap<String, Vec<u8>>,
    used: Usage,
}

impl MemoryKeyValueStore {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn bucket(&self, space: &Space) -> Option<&Bucket> {
        self.scopes.get(&space.scope)?.get(&space.extension)
    }

    fn value(&self, space: &Space, key: &str) -> Option<&Vec<u8>> {
        self.bucket(space)?.values.get(key)
    }

    /// Nothing is made before it is settled that there is room, so that what is refused leaves nothing behind.
    fn set(&mut self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError> {
        let bucket = self.bucket(space);
        let used = bucket.map_or_else(Usage::default, |bucket| bucket.used);
        let replaced = bucket.and_then(|bucket| bucket.values.get(key)).map(Vec::len);
        quota.check(used, key, &value, replaced)?;
        if space.scope.kind.ends() {
            let scoped = self.scoped.get(&sum_of(space)).copied().unwrap_or_default();
            quota.check_scoped(scoped, key, &value, replaced)?;
            self.scoped.insert(sum_of(space), scoped.with(key, &value, replaced));
        }
        let bucket = self.scopes.entry(space.scope.clone()).or_default().entry(space.extension.clone()).or_default();
        bucket.used = used.with(key, &value, replaced);
        bucket.values.insert(key.to_owned(), value);
        Ok(())
    }

    fn delete(&mut self, space: &Space, key: &str) {
        let Some(buckets) = self.scopes.get_mut(&space.scope) else { return };
        let Some(bucket) = buckets.get_mut(&space.extension) else { return };
        let Some(value) = bucket.values.remove(key) else { return };
        let freed = Usage { keys: 1, bytes: key.len() + value.len() };
        bucket.used.subtract(freed);
        if bucket.values.is_empty() {
            buckets.remove(&space.extension);
        }
        if buckets.is_empty() {
            self.scopes.remove(&space.scope);
        }
        self.free(&space.scope, &space.extension, freed);
    }

    fn remove(&mut self, scope: &Scope) {
        for (extension, bucket) in self.scopes.remove(scope).into_iter().flatten() {
            self.free(scope, &extension, bucket.used);
        }
    }

    /// Takes what a bucket no longer holds from the sum over all that end.
    fn free(&mut self, scope: &Scope, extension: &ExtensionUri, freed: Usage) {
        let sum = (scope.tenant.clone(), extension.clone());
        let Some(used) = self.scoped.get_mut(&sum).filter(|_| scope.kind.ends()) else { return };
        used.subtract(freed);
        if *used == Usage::default() {
            self.scoped.remove(&sum);
        }
    }
}

fn sum_of(space: &Space) -> (String, ExtensionUri) {
    (space.scope.tenant.clone(), space.extension.clone())
}

#[async_trait]
impl KeyValueStore for MemoryKeyValueStore {
    async fn get(&self, space: &Space, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        Ok(self.lock().value(space, key).cloned())
    }

    async fn set(&self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError> {
        self.lock().set(space, key, value, quota)
    }

    async fn delete(&self, space: &Space, key: &str) -> Result<(), KeyValueError> {
        self.lock().delete(space, key);
        Ok(())
    }

    async fn keys(&self, space: &Space, skip: u64) -> Result<Vec<String>, KeyValueError> {
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let table = self.lock();
        let keys = table.bucket(space).into_iter().flat_map(|bucket| bucket.values.keys());
        Ok(keys.skip(skip).take(KEYS_PER_PAGE).cloned().collect())
    }

    async fn increment(&self, space: &Space, key: &str, delta: u64, quota: &Quota) -> Result<u64, KeyValueError> {
        let mut table = self.lock();
        let count = incremented(table.value(space, key).map(Vec::as_slice), delta)?;
        table.set(space, key, count.to_string().into_bytes(), quota)?;
        Ok(count)
    }

    async fn scopes(&self, after: Option<&Scope>) -> Result<Vec<Scope>, KeyValueError> {
        let table = self.lock();
        let rest = table.scopes.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
        let scopes = rest.map(|(scope, _)| scope).filter(|scope| scope.kind.ends());
        Ok(scopes.take(SCOPES_PER_PAGE).cloned().collect())
    }

    async fn remove(&self, scope: &Scope) -> Result<(), KeyValueError> {
        self.lock().remove(scope);
        Ok(())
    }
}
