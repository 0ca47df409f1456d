//! Keys of extensions: what a store of them does, and the stores.
//!
//! A [`KeyValueStore`] keeps what extensions set in a [`Space`], within a [`Quota`]: in memory ([`MemoryKeyValueStore`]),
//! or in a SQLite file so that keys outlive the process (`SqliteKeyValueStore`, with the feature `sqlite`). The crate
//! knows no component and no import: the runtime decides who may call a store, and with which quota.

#![warn(missing_docs)]

mod memory;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;

pub use memory::MemoryKeyValueStore;
#[cfg(feature = "sqlite")]
pub use sqlite::{KeyValueOpenError, SqliteKeyValueStore};
pub use store::{
    KEYS_PER_PAGE, KeyValueError, KeyValueStore, MAX_KEY_BYTES, Quota, SCOPES_PER_PAGE, Scope, ScopeKind, Space, Usage,
    incremented,
};
