//! Keys in memory. They are lost when the process ends.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use annex_protocol::ExtensionUri;
use async_trait::async_trait;

use crate::store::{
    KEYS_PER_PAGE, KeyValueError, KeyValueStore, Quota, SCOPES_PER_PAGE, Scope, Space, Usage, incremented,
};

/// Keys in memory. The quotas of the extensions bound the memory.
#[derive(Debug, Default)]
pub struct MemoryKeyValueStore {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Scopes by hash: comparing hashes is faster than comparing scopes that share long prefixes. No entry is empty.
    scopes: BTreeMap<u64, Vec<(Scope, Buckets)>>,
    // Randomly keyed, so that clients cannot choose conversation ids with equal hashes.
    hasher: RandomState,
    /// Usage of all buckets of tasks and conversations, by tenant and extension.
    scoped: HashMap<(String, ExtensionUri), Usage>,
}

/// The buckets of one scope, by extension.
type Buckets = HashMap<ExtensionUri, Bucket>;

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
        let mut alike = self.scopes.get(&self.hasher.hash_one(&space.scope))?.iter();
        alike.find(|(scope, _)| *scope == space.scope)?.1.get(&space.extension)
    }

    /// Changes the buckets of a scope.
    fn change<T>(&mut self, scope: &Scope, change: impl FnOnce(&mut Buckets) -> T) -> T {
        let hash = self.hasher.hash_one(scope);
        let alike = self.scopes.entry(hash).or_default();
        let index = alike.iter().position(|(found, _)| found == scope);
        let mut entry = index.map_or_else(|| (scope.clone(), Buckets::new()), |index| alike.swap_remove(index));
        let changed = change(&mut entry.1);
        // An empty scope is removed, so that tasks and conversations without keys take no memory.
        if !entry.1.is_empty() {
            alike.push(entry);
        } else if alike.is_empty() {
            self.scopes.remove(&hash);
        }
        changed
    }

    fn value(&self, space: &Space, key: &str) -> Option<&Vec<u8>> {
        self.bucket(space)?.values.get(key)
    }

    /// Sets a key within the quota. A refused call changes nothing.
    fn set(&mut self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError> {
        let bucket = self.bucket(space);
        let used = bucket.map_or_else(Usage::default, |bucket| bucket.used);
        let replaced = bucket.and_then(|bucket| bucket.values.get(key)).map(Vec::len);
        quota.check(used, key, &value, replaced)?;
        // Lasting keys are bounded by the quota of their bucket alone.
        if space.scope.kind.ends() {
            let scoped = self.scoped.get(&sum_of(space)).copied().unwrap_or_default();
            quota.check_scoped(scoped, key, &value, replaced)?;
            self.scoped.insert(sum_of(space), scoped.with(key, &value, replaced));
        }
        self.change(&space.scope, |buckets| {
            let bucket = buckets.entry(space.extension.clone()).or_default();
            bucket.used = used.with(key, &value, replaced);
            bucket.values.insert(key.to_owned(), value);
        });
        Ok(())
    }

    fn delete(&mut self, space: &Space, key: &str) {
        let freed = self.change(&space.scope, |buckets| {
            let bucket = buckets.get_mut(&space.extension)?;
            let freed = Usage { keys: 1, bytes: key.len() + bucket.values.remove(key)?.len() };
            bucket.used.subtract(freed);
            if bucket.values.is_empty() {
                buckets.remove(&space.extension);
            }
            Some(freed)
        });
        if let Some(freed) = freed {
            self.free(&space.scope, &space.extension, freed);
        }
    }

    fn remove(&mut self, scope: &Scope) {
        for (extension, bucket) in self.change(scope, mem::take) {
            self.free(scope, &extension, bucket.used);
        }
    }

    /// Subtracts freed keys and bytes from the usage of tasks and conversations.
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
        // One lock for reading and writing, so that concurrent increments both count.
        let mut table = self.lock();
        let count = incremented(table.value(space, key).map(Vec::as_slice), delta)?;
        table.set(space, key, count.to_string().into_bytes(), quota)?;
        Ok(count)
    }

    async fn scopes(&self, after: Option<&Scope>) -> Result<Vec<Scope>, KeyValueError> {
        let table = self.lock();
        let after = after.map_or(Bound::Unbounded, |after| Bound::Excluded(table.hasher.hash_one(after)));
        let mut scopes = Vec::new();
        for alike in table.scopes.range((after, Bound::Unbounded)).map(|(_, alike)| alike) {
            // Scopes with equal hashes go into the same page, because the next page begins after their hash.
            scopes.extend(alike.iter().map(|(scope, _)| scope).filter(|scope| scope.kind.ends()).cloned());
            if scopes.len() >= SCOPES_PER_PAGE {
                break;
            }
        }
        Ok(scopes)
    }

    async fn count(&self, tenant: &str) -> Result<u64, KeyValueError> {
        let table = self.lock();
        let scopes = table.scopes.values().flatten().filter(|(scope, _)| scope.tenant == tenant);
        let buckets = scopes.flat_map(|(_, buckets)| buckets);
        let counted = buckets.filter(|(extension, _)| extension.as_str().contains(':'));
        Ok(counted.map(|(_, bucket)| bucket.values.len() as u64).sum())
    }

    async fn remove(&self, scope: &Scope) -> Result<(), KeyValueError> {
        self.lock().remove(scope);
        Ok(())
    }
}
