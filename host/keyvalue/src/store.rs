//! The contract of key-value stores: spaces, quotas and operations.

use std::error::Error;
use std::fmt;

use annex_protocol::{ContextId, ExtensionUri, TaskId};
use async_trait::async_trait;

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;
/// Number of keys in a page of [`KeyValueStore::keys`].
pub const KEYS_PER_PAGE: usize = 256;
/// Number of scopes in a page of [`KeyValueStore::scopes`].
pub const SCOPES_PER_PAGE: usize = 256;

/// One bucket: the keys of an extension in a scope. Extensions cannot see each other's buckets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Space {
    /// Extension that owns the keys.
    pub extension: ExtensionUri,
    /// Lifetime of the keys.
    pub scope: Scope,
}

/// The lifetime of keys, and the owner of the keys. Keys live as long as a task, as long as a conversation, or without a limit.
/// Tenants and owners cannot see each other's scopes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// How long the keys live.
    pub kind: ScopeKind,
    /// Tenant; empty for a server without tenants.
    pub tenant: String,
    /// Owner of the task or conversation. Empty for anonymous callers and lasting keys.
    pub principal: String,
    /// Id of the task or conversation. Empty for lasting keys.
    pub id: String,
}

/// How long the keys of a [`Scope`] live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeKind {
    /// The keys outlive turns, tasks and conversations.
    Lasting,
    /// The keys are removed with their conversation.
    Context,
    /// The keys are removed with their task.
    Task,
}

impl Scope {
    /// Scope of lasting keys.
    #[must_use]
    pub fn lasting(tenant: &str) -> Self {
        Self { kind: ScopeKind::Lasting, tenant: tenant.to_owned(), principal: String::new(), id: String::new() }
    }

    /// Scope of a conversation.
    #[must_use]
    pub fn context(tenant: &str, principal: &str, id: &ContextId) -> Self {
        let tenant = tenant.to_owned();
        let principal = principal.to_owned();
        Self { kind: ScopeKind::Context, tenant, principal, id: id.to_string() }
    }

    /// Scope of a task.
    #[must_use]
    pub fn task(tenant: &str, principal: &str, id: &TaskId) -> Self {
        let tenant = tenant.to_owned();
        let principal = principal.to_owned();
        Self { kind: ScopeKind::Task, tenant, principal, id: id.to_string() }
    }
}

impl ScopeKind {
    /// All kinds, in ascending order.
    pub const ALL: [Self; 3] = [Self::Lasting, Self::Context, Self::Task];

    /// Name under which databases store the kind; empty for lasting keys.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lasting => "",
            Self::Context => "context",
            Self::Task => "task",
        }
    }

    /// True if the keys are removed with a task or conversation.
    #[must_use]
    pub fn ends(self) -> bool {
        self != Self::Lasting
    }
}

/// Quota of an extension, from the grant `keyvalue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Maximum number of keys in a bucket of the extension.
    pub max_keys: usize,
    /// Maximum size of a value, in bytes.
    pub max_value_bytes: usize,
    /// Maximum size of all keys and values in a bucket, in bytes.
    pub max_total_bytes: usize,
    /// Maximum number of keys of the extension in all tasks and conversations of a tenant.
    pub max_scoped_keys: usize,
    /// Maximum size of all keys and values that the extension has in the tasks and conversations of a tenant, in bytes.
    pub max_scoped_bytes: usize,
}

impl Default for Quota {
    /// Allows 1,000 keys, 64 KiB per value and 1 MiB in a bucket. Allows 100,000 keys and 64 MiB in all tasks and
    /// conversations.
    fn default() -> Self {
        Self {
            max_keys: 1_000,
            max_value_bytes: 64 << 10,
            max_total_bytes: 1 << 20,
            max_scoped_keys: 100_000,
            max_scoped_bytes: 64 << 20,
        }
    }
}

/// Number and size of keys in one bucket or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of keys.
    pub keys: usize,
    /// Size of all keys and values, in bytes.
    pub bytes: usize,
}

impl Quota {
    /// Checks that a bucket with usage `used` may store the value. `replaced` is the size of the key's present value,
    /// if the key exists.
    ///
    /// # Errors
    /// The limit that would be exceeded.
    pub fn check(&self, used: Usage, key: &str, value: &[u8], replaced: Option<usize>) -> Result<(), KeyValueError> {
        if key.len() > MAX_KEY_BYTES {
            return Err(KeyValueError::KeyTooLong { limit: MAX_KEY_BYTES });
        }
        if value.len() > self.max_value_bytes {
            return Err(KeyValueError::ValueTooLarge { limit: self.max_value_bytes });
        }
        let Usage { keys, bytes } = used.with(key, value, replaced);
        if keys > self.max_keys {
            return Err(KeyValueError::TooManyKeys { limit: self.max_keys });
        }
        if bytes > self.max_total_bytes {
            return Err(KeyValueError::Full { limit: self.max_total_bytes });
        }
        Ok(())
    }

    /// Checks the limits on all tasks and conversations together, whose usage is `used`. The other arguments are the arguments
    /// of [`check`](Self::check).
    ///
    /// # Errors
    /// The limit that would be exceeded.
    pub fn check_scoped(
        &self,
        used: Usage,
        key: &str,
        value: &[u8],
        replaced: Option<usize>,
    ) -> Result<(), KeyValueError> {
        self.check_all_scoped(used.with(key, value, replaced))
    }

    /// Checks a total usage against the limits on all tasks and conversations.
    pub(crate) fn check_all_scoped(&self, Usage { keys, bytes }: Usage) -> Result<(), KeyValueError> {
        if keys > self.max_scoped_keys {
            return Err(KeyValueError::TooManyScopedKeys { limit: self.max_scoped_keys });
        }
        if bytes > self.max_scoped_bytes {
            return Err(KeyValueError::ScopedFull { limit: self.max_scoped_bytes });
        }
        Ok(())
    }
}

impl Usage {
    /// The usage after the key was set to `value`. `replaced` is the size of the key's present value, if the key exists.
    pub(crate) fn with(self, key: &str, value: &[u8], replaced: Option<usize>) -> Self {
        let (keys, freed) = match replaced {
            // The key counts again below, so its bytes are freed with those of the old value.
            Some(bytes) => (self.keys, bytes.saturating_add(key.len())),
            None => (self.keys.saturating_add(1), 0),
        };
        let bytes = self.bytes.saturating_sub(freed).saturating_add(key.len()).saturating_add(value.len());
        Self { keys, bytes }
    }

    pub(crate) fn subtract(&mut self, freed: Self) {
        self.keys = self.keys.saturating_sub(freed.keys);
        self.bytes = self.bytes.saturating_sub(freed.bytes);
    }
}

/// The reason why a store refused a call, or why a call failed. The messages of these errors are for the extension. The
/// source of [`Unavailable`](Self::Unavailable) is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum KeyValueError {
    /// The key is longer than [`MAX_KEY_BYTES`].
    #[error("the key is longer than {limit} bytes")]
    KeyTooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The value is larger than [`Quota::max_value_bytes`].
    #[error("the value is larger than {limit} bytes")]
    ValueTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The bucket would have more than [`Quota::max_keys`] keys.
    #[error("there are {limit} keys, and no more are allowed")]
    TooManyKeys {
        /// Maximum number of keys.
        limit: usize,
    },
    /// The bucket would be larger than [`Quota::max_total_bytes`].
    #[error("keys and values would be larger than {limit} bytes together")]
    Full {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The tasks and conversations of the tenant would together have more than [`Quota::max_scoped_keys`] keys.
    #[error("there are {limit} keys of tasks and conversations, and no more are allowed")]
    TooManyScopedKeys {
        /// Maximum number of keys.
        limit: usize,
    },
    /// The keys and values in the tasks and conversations of the tenant would together exceed [`Quota::max_scoped_bytes`].
    #[error("keys and values of tasks and conversations would be larger than {limit} bytes together")]
    ScopedFull {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The value to increment is not a decimal number of 64 bits.
    #[error("the value is not a decimal number of 64 bits")]
    NotACounter,
    /// The counter would exceed 64 bits.
    #[error("the counter would pass 64 bits")]
    CounterOverflow,
    /// The store failed. The source is for the operator.
    #[error("the store cannot be reached now")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

/// Stores the keys of all extensions. A guest waits for each call. If the guest's time runs out, the call is
/// cancelled.
#[async_trait]
pub trait KeyValueStore: fmt::Debug + Send + Sync {
    /// The value of a key; `None` if the key does not exist.
    async fn get(&self, space: &Space, key: &str) -> Result<Option<Vec<u8>>, KeyValueError>;

    /// Sets a key, within the quota.
    async fn set(&self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError>;

    /// Deletes a key. A missing key is not an error.
    async fn delete(&self, space: &Space, key: &str) -> Result<(), KeyValueError>;

    /// The keys of a bucket in byte order, at most [`KEYS_PER_PAGE`]. Skips the first `skip` keys.
    async fn keys(&self, space: &Space, skip: u64) -> Result<Vec<String>, KeyValueError>;

    /// Adds `delta` to a counter and returns the new value. The counter is stored as decimal text, and a missing key
    /// counts as 0. The quota applies.
    async fn increment(&self, space: &Space, key: &str, delta: u64, quota: &Quota) -> Result<u64, KeyValueError>;

    /// A page of the scopes of tasks and conversations that have keys, in an order that the store chooses. The page starts
    /// after the scope `after`. Each page except the last has at least [`SCOPES_PER_PAGE`] scopes.
    async fn scopes(&self, after: Option<&Scope>) -> Result<Vec<Scope>, KeyValueError>;

    /// Number of keys of all extensions of a tenant. Reads all keys, so it is too slow to call on each request. Keys of the
    /// host, whose names have no colon, do not count. The default returns 0, for stores that live for one turn.
    async fn count(&self, _tenant: &str) -> Result<u64, KeyValueError> {
        Ok(0)
    }

    /// Removes the keys of all extensions in a task or conversation.
    async fn remove(&self, scope: &Scope) -> Result<(), KeyValueError>;

    /// Waits for running calls and closes connections. Later calls fail.
    async fn close(&self) {}
}

/// The value of a counter after an increment. `value` is the stored text; `None` counts as 0.
///
/// # Errors
/// `value` is not a counter, or the result exceeds 64 bits.
pub fn incremented(value: Option<&[u8]>, delta: u64) -> Result<u64, KeyValueError> {
    // `wasi:keyvalue/atomics`: a missing key counts as 0.
    let Some(value) = value else { return Ok(delta) };
    let count = str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
    count.ok_or(KeyValueError::NotACounter)?.checked_add(delta).ok_or(KeyValueError::CounterOverflow)
}
