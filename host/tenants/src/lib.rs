//! Durable storage of the tenants that operators add while servers run: their texts, the components that are uploaded for
//! them, and the usage of all tenants.
//!
//! This crate interprets neither the texts nor the components. Other crates load tenants, authorize access to them and
//! enforce their quotas. Each of the three stores has an implementation in memory, and one on SQLite and PostgreSQL.
//! [`TenantStores`] opens all three in one place.

#![warn(missing_docs)]

mod components;
mod error;
mod key;
mod memory;
mod sql;
mod stores;
mod tenants;
mod usage;

pub use components::{ComponentStore, ListedComponent, Upload, UploadBounds};
pub use error::TenantStoreError;
pub use key::MAX_KEY_BYTES;
pub use stores::{POSTGRES_MIGRATIONS, TenantStores};
pub use tenants::{ChangedTenant, Expectation, ListedTenant, StoredTenant, TenantChange, TenantState, TenantStore};
pub use usage::{Consumption, UsageStore};
