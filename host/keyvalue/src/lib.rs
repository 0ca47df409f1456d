//! Key-value stores for extensions.
//!
//! A [`KeyValueStore`] keeps the keys of an extension in a [`Space`], within a [`Quota`]. Keys are kept in memory
//! ([`MemoryKeyValueStore`]) or in a database, where they outlive the process (`SqliteKeyValueStore` and
//! `PostgresKeyValueStore`, feature `sql`). This crate knows neither components nor imports: the runtime decides who
//! may call a store, and with which quota.

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
