//! Where extensions keep keys of their own: the contract of a store, and the one in memory.

use std::fmt;

use annex_protocol::ExtensionUri;
use async_trait::async_trait;

use crate::error::Source;

mod memory;

pub use memory::MemoryKeyValueStore;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;
/// The most keys that one listing gives.
pub const KEYS_PER_PAGE: usize = 256;

/// Whose keys. No extension and no tenant sees another's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Space {
    /// The tenant; empty where there are none.
    pub tenant: String,
    /// The extension.
    pub extension: ExtensionUri,
}

/// How much one space may hold. It is the grant `keyvalue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Keys.
    pub max_keys: usize,
    /// Bytes of one value.
    pub max_value_bytes: usize,
    /// Bytes of all keys and values.
    pub max_total_bytes: usize,
}

impl Default for Quota {
    /// 1,000 keys, 64 KiB per value, 1 MiB in all.
    fn default() -> Self {
        Self { max_keys: 1_000, max_value_bytes: 64 << 10, max_total_bytes: 1 << 20 }
    }
}

/// What a space holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Keys.
    pub keys: usize,
    /// Bytes of all keys and values.
    pub bytes: usize,
}

impl Quota {
    /// Whether a space that holds `used` may take the value, which replaces one of `replaced` bytes, if any.
    ///
    /// # Errors
    /// Which bound it would pass.
    pub fn check(&self, used: Usage, key: &str, value: &[u8], replaced: Option<usize>) -> Result<(), KeyValueError> {
        if key.len() > MAX_KEY_BYTES {
            return Err(KeyValueError::KeyTooLong { limit: MAX_KEY_BYTES });
        }
        if value.len() > self.max_value_bytes {
            return Err(KeyValueError::ValueTooLarge { limit: self.max_value_bytes });
        }
        let (keys, freed) = match replaced {
            Some(bytes) => (used.keys, bytes.saturating_add(key.len())),
            None => (used.keys.saturating_add(1), 0),
        };
        if keys > self.max_keys {
            return Err(KeyValueError::TooManyKeys { limit: self.max_keys });
        }
        let bytes = used.bytes.saturating_sub(freed).saturating_add(key.len()).saturating_add(value.len());
        if bytes > self.max_total_bytes {
            return Err(KeyValueError::Full { limit: self.max_total_bytes });
        }
        Ok(())
    }
}

/// Why a store did not do what it was asked for. But for the last one, the texts are for the extension.
#[derive(Debug, thiserror::Error)]
pub enum KeyValueError {
    /// The key is longer than any may be.
    #[error("the key is longer than {limit} bytes")]
    KeyTooLong {
        /// Bytes allowed.
        limit: usize,
    },
    /// The value is larger than one may be.
    #[error("the value is larger than {limit} bytes")]
    ValueTooLarge {
        /// Bytes allowed.
        limit: usize,
    },
    /// One key too many.
    #[error("there are {limit} keys, and no more are allowed")]
    TooManyKeys {
        /// Keys allowed.
        limit: usize,
    },
    /// Keys and values would be larger than they may be together.
    #[error("keys and values would be larger than {limit} bytes together")]
    Full {
        /// Bytes allowed.
        limit: usize,
    },
    /// What is to be incremented is no counter.
    #[error("the value is not a decimal number of 64 bits")]
    NotACounter,
    /// The counter is at its end.
    #[error("the counter would pass 64 bits")]
    CounterOverflow,
    /// The store does not work now. The cause is for the operator.
    #[error("the store cannot be reached now")]
    Unavailable(#[source] Source),
}

/// Keeps the keys of all extensions. Its functions are called while a guest waits, and given up when it has waited for
/// long enough.
#[async_trait]
pub trait KeyValueStore: fmt::Debug + Send + Sync {
    /// The value of a key.
    async fn get(&self, space: &Space, key: &str) -> Result<Option<Vec<u8>>, KeyValueError>;

    /// Sets a key, within the quota.
    async fn set(&self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError>;

    /// Removes a key, if it is there.
    async fn delete(&self, space: &Space, key: &str) -> Result<(), KeyValueError>;

    /// The keys in the order of their bytes, without the first `skip`; at most [`KEYS_PER_PAGE`].
    async fn keys(&self, space: &Space, skip: u64) -> Result<Vec<String>, KeyValueError>;

    /// Adds to a counter, which begins at 0 and is kept as decimal text, within the quota. Returns what it is then.
    async fn increment(&self, space: &Space, key: &str, delta: u64, quota: &Quota) -> Result<u64, KeyValueError>;
}

/// What a counter is after an increment.
///
/// # Errors
/// When `value` is no counter, or at its end.
pub fn incremented(value: Option<&[u8]>, delta: u64) -> Result<u64, KeyValueError> {
    let Some(value) = value else { return Ok(delta) };
    let count = str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
    count.ok_or(KeyValueError::NotACounter)?.checked_add(delta).ok_or(KeyValueError::CounterOverflow)
}
