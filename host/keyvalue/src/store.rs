//! The contract of a store: where keys lie, how many there may be, and what a store does with them.

use std::error::Error;
use std::fmt;

use annex_protocol::{ContextId, ExtensionUri, TaskId};
use async_trait::async_trait;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;
/// The most keys that one listing gives.
pub const KEYS_PER_PAGE: usize = 256;
/// The most scopes that one listing gives.
pub const SCOPES_PER_PAGE: usize = 256;

/// One bucket: whose keys, and what they live and die with. No extension sees another's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Space {
    /// The extension.
    pub extension: ExtensionUri,
    /// The task or conversation that its keys live and die with, or none.
    pub scope: Scope,
}

/// The task or conversation that keys live and die with, or none. No tenant and no owner sees another's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// The kind: a task, a conversation, or without an end.
    pub kind: ScopeKind,
    /// The tenant; empty where there are none.
    pub tenant: String,
    /// The owner of the task or conversation; empty for anonymous callers, and where keys last.
    pub principal: String,
    /// The id of the task or the conversation; empty where keys last.
    pub id: String,
}

/// Kinds of [`Scope`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeKind {
    /// Keys outlive turns, tasks and conversations.
    Lasting,
    /// A conversation.
    Context,
    /// A task.
    Task,
}

impl Scope {
    /// Keys that last.
    #[must_use]
    pub fn lasting(tenant: &str) -> Self {
        Self { kind: ScopeKind::Lasting, tenant: tenant.to_owned(), principal: String::new(), id: String::new() }
    }

    /// Keys of a conversation.
    #[must_use]
    pub fn context(tenant: &str, principal: &str, id: &ContextId) -> Self {
        let tenant = tenant.to_owned();
        let principal = principal.to_owned();
        Self { kind: ScopeKind::Context, tenant, principal, id: id.to_string() }
    }

    /// Keys of a task.
    #[must_use]
    pub fn task(tenant: &str, principal: &str, id: &TaskId) -> Self {
        let tenant = tenant.to_owned();
        let principal = principal.to_owned();
        Self { kind: ScopeKind::Task, tenant, principal, id: id.to_string() }
    }
}

impl ScopeKind {
    /// Every kind, in order.
    pub const ALL: [Self; 3] = [Self::Lasting, Self::Context, Self::Task];

    /// The name of the bucket.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lasting => "",
            Self::Context => "context",
            Self::Task => "task",
        }
    }

    /// True when the scope has an end, and its keys with it.
    #[must_use]
    pub fn ends(self) -> bool {
        self != Self::Lasting
    }
}

/// The quota of an extension. It is the grant `keyvalue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Keys of one bucket.
    pub max_keys: usize,
    /// Bytes of one value.
    pub max_value_bytes: usize,
    /// Bytes of all keys and values of one bucket.
    pub max_total_bytes: usize,
    /// Keys of all tasks and conversations of a tenant together.
    pub max_scoped_keys: usize,
    /// Bytes of those keys and their values.
    pub max_scoped_bytes: usize,
}

impl Default for Quota {
    /// 1,000 keys, 64 KiB per value and 1 MiB in a bucket; 100,000 keys and 64 MiB for all tasks and conversations.
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

/// The content of one bucket or of several, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Keys.
    pub keys: usize,
    /// Bytes of all keys and values.
    pub bytes: usize,
}

impl Quota {
    /// Checks that a bucket that holds `used` may take the value, which replaces one of `replaced` bytes, if any.
    ///
    /// # Errors
    /// The bound that it would pass.
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

    /// The same for all buckets of tasks and conversations, which hold `used` together.
    ///
    /// # Errors
    /// The bound that they would pass.
    pub fn check_scoped(
        &self,
        used: Usage,
        key: &str,
        value: &[u8],
        replaced: Option<usize>,
    ) -> Result<(), KeyValueError> {
        self.check_all_scoped(used.with(key, value, replaced))
    }

    /// Checks that all buckets of tasks and conversations may hold this together.
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
    /// The usage once the value is there, in place of one of `replaced` bytes, if any.
    pub(crate) fn with(self, key: &str, value: &[u8], replaced: Option<usize>) -> Self {
        let (keys, freed) = match replaced {
            // The key is counted anew below, so that its bytes are freed with those of the value.
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

/// The reason for which a store refused or failed. But for the last one, the texts are for the extension.
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
    /// One key too many for all tasks and conversations together.
    #[error("there are {limit} keys of tasks and conversations, and no more are allowed")]
    TooManyScopedKeys {
        /// Keys allowed.
        limit: usize,
    },
    /// Keys and values of all tasks and conversations would be larger than they may be together.
    #[error("keys and values of tasks and conversations would be larger than {limit} bytes together")]
    ScopedFull {
        /// Bytes allowed.
        limit: usize,
    },
    /// The value to be incremented is no counter.
    #[error("the value is not a decimal number of 64 bits")]
    NotACounter,
    /// The counter is at its end.
    #[error("the counter would pass 64 bits")]
    CounterOverflow,
    /// The store does not work now. The cause is for the operator.
    #[error("the store cannot be reached now")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
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

    /// The tasks and conversations that have keys, in an order of the store's own and after `after`, as many as
    /// [`SCOPES_PER_PAGE`] or a few more where there are so many.
    async fn scopes(&self, after: Option<&Scope>) -> Result<Vec<Scope>, KeyValueError>;

    /// The keys of all extensions of a tenant. It looks at all of them, so it is not for each request. Names that are no
    /// URIs are the host's own, and their keys do not count. A store of one turn has nobody who asks.
    async fn count(&self, _tenant: &str) -> Result<u64, KeyValueError> {
        Ok(0)
    }

    /// Removes what all extensions keep with a task or a conversation.
    async fn remove(&self, scope: &Scope) -> Result<(), KeyValueError>;

    /// Waits for what is under way and closes what is open: a database's connections, after which later calls fail.
    async fn close(&self) {}
}

/// The counter after an increment.
///
/// # Errors
/// When `value` is no counter, or at its end.
pub fn incremented(value: Option<&[u8]>, delta: u64) -> Result<u64, KeyValueError> {
    // `wasi:keyvalue/atomics`: a key that is not there counts as 0.
    let Some(value) = value else { return Ok(delta) };
    let count = str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
    count.ok_or(KeyValueError::NotACounter)?.checked_add(delta).ok_or(KeyValueError::CounterOverflow)
}
