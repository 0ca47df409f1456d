//! The extension's own keys, which outlive a turn (imports `wasi:keyvalue/store` and `atomics`, need the grant
//! `keyvalue`). Other extensions cannot see these keys.
//!
//! The grant limits the number and the size of the keys. A write beyond the limit fails and changes nothing.

use crate::imports::{atomics, store};

/// A bucket of the extension's keys.
#[derive(Debug)]
pub struct Keys(store::Bucket);

impl Keys {
    /// Opens the bucket of keys that outlive turns.
    ///
    /// # Errors
    /// When the host's store is not available.
    pub fn open() -> Result<Self, String> {
        // `wasi:keyvalue` leaves the names of buckets to the host. The empty name is the bucket that outlives turns.
        store::open("").map(Self).map_err(text)
    }

    /// Opens the bucket of the turn's task. Its keys are deleted with the task.
    ///
    /// # Errors
    /// When the turn has no task.
    pub fn of_task() -> Result<Self, String> {
        store::open("task").map(Self).map_err(text)
    }

    /// Opens the bucket of the turn's conversation. Its keys are deleted with the session.
    ///
    /// # Errors
    /// When the turn has no conversation.
    pub fn of_context() -> Result<Self, String> {
        store::open("context").map(Self).map_err(text)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When the host's store is not available.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        self.0.get(key).map_err(text)
    }

    /// Sets a key.
    ///
    /// # Errors
    /// When the grant's limit is reached, or the host's store is not available.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), String> {
        self.0.set(key, value).map_err(text)
    }

    /// Removes a key. A missing key is not an error.
    ///
    /// # Errors
    /// When the host's store is not available.
    pub fn delete(&self, key: &str) -> Result<(), String> {
        self.0.delete(key).map_err(text)
    }

    /// All keys, sorted by their bytes.
    ///
    /// # Errors
    /// When the host's store is not available.
    pub fn list(&self) -> Result<Vec<String>, String> {
        let mut keys = Vec::new();
        let mut cursor = None;
        loop {
            // The host gives 256 keys at a time, and each page counts as a host call.
            let page = self.0.list_keys(cursor).map_err(text)?;
            keys.extend(page.keys);
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(keys);
            }
        }
    }

    /// Adds `delta` to a counter, which begins at 0, and returns its new value. The operation is atomic.
    ///
    /// # Errors
    /// When the value is not a counter, the grant's limit is reached, or the host's store is not available.
    pub fn increment(&self, key: &str, delta: u64) -> Result<u64, String> {
        atomics::increment(&self.0, key, delta).map_err(text)
    }
}

fn text(error: store::Error) -> String {
    match error {
        store::Error::NoSuchStore => "there is no such store".to_owned(),
        store::Error::AccessDenied => "the store may not be used".to_owned(),
        store::Error::Other(reason) => reason,
    }
}
