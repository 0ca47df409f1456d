//! Keys of extensions: what a store of them does, and the stores.
//!
//! A [`KeyValueStore`] keeps what extensions set in a [`Space`], within a [`Quota`]: in memory ([`MemoryKeyValueStore`]),
//! or in a database so that keys outlive the process (`SqliteKeyValueStore` and `PostgresKeyValueStore`, with the feature
//! `sql`). The crate knows no component and no import: the runtime decides who may call a store, and with which quota.

#![warn(missing_docs)]

mod memory;
#[cfg(feature = "sql")]
mod postgres;
#[cfg(feature = "sql")]
mod sql;
#[cfg(feature = "sql")]
mod sqlite;
mod store;

pub use memory::MemoryKeyValueStore;
#[cfg(feature = "sql")]
pub use postgres::{MIGRATIONS as POSTGRES_MIGRATIONS, PostgresKeyValueStore};
#[cfg(feature = "sql")]
pub use sql::SqlKeyValueStore;
#[cfg(feature = "sql")]
pub use sqlite::{KeyValueOpenError, SqliteKeyValueStore};
pub use store::{
    KEYS_PER_PAGE, KeyValueError, KeyValueStore, MAX_KEY_BYTES, Quota, SCOPES_PER_PAGE, Scope, ScopeKind, Space, Usage,
    incremented,
};
