//! Keys in memory, which end with the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{KEYS_PER_PAGE, KeyValueError, KeyValueStore, Quota, Space, Usage, incremented};

/// Keys in memory. What it can take is bounded by the quotas of the extensions.
#[derive(Debug, Default)]
pub struct MemoryKeyValueStore {
    spaces: Mutex<HashMap<Space, Keys>>,
}

#[derive(Debug, Default)]
struct Keys {
    values: BTreeMap<String, Vec<u8>>,
    bytes: usize,
}

impl MemoryKeyValueStore {
    fn lock(&self) -> MutexGuard<'_, HashMap<Space, Keys>> {
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    fn set(&mut self, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError> {
        let used = Usage { keys: self.values.len(), bytes: self.bytes };
        quota.check(used, key, &value, self.values.get(key).map(Vec::len))?;
        self.remove(key);
        self.bytes += key.len() + value.len();
        self.values.insert(key.to_owned(), value);
        Ok(())
    }

    fn remove(&mut self, key: &str) {
        if let Some(value) = self.values.remove(key) {
            self.bytes -= key.len() + value.len();
        }
    }
}

#[async_trait]
impl KeyValueStore for MemoryKeyValueStore {
    async fn get(&self, space: &Space, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        Ok(self.lock().get(space).and_then(|keys| keys.values.get(key)).cloned())
    }

    async fn set(&self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError> {
        self.lock().entry(space.clone()).or_default().set(key, value, quota)
    }

    async fn delete(&self, space: &Space, key: &str) -> Result<(), KeyValueError> {
        if let Some(keys) = self.lock().get_mut(space) {
            keys.remove(key);
        }
        Ok(())
    }

    async fn keys(&self, space: &Space, skip: u64) -> Result<Vec<String>, KeyValueError> {
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let spaces = self.lock();
        let keys = spaces.get(space).into_iter().flat_map(|keys| keys.values.keys());
        Ok(keys.skip(skip).take(KEYS_PER_PAGE).cloned().collect())
    }

    async fn increment(&self, space: &Space, key: &str, delta: u64, quota: &Quota) -> Result<u64, KeyValueError> {
        let mut spaces = self.lock();
        let keys = spaces.entry(space.clone()).or_default();
        let count = incremented(keys.values.get(key).map(Vec::as_slice), delta)?;
        keys.set(key, count.to_string().into_bytes(), quota)?;
        Ok(count)
    }
}
