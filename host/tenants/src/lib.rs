//! Stores three kinds of data: the texts of the tenants that operators add while servers run, the components that operators
//! upload for such tenants or that are pulled from registries for them, and the usage of all tenants.
//!
//! This crate interprets neither the texts nor the components. Other crates load tenants, authorize access to them and enforce
//! their quotas. Each of the three stores has two implementations: one in memory, and one for SQLite and PostgreSQL.
//! [`TenantStores`] opens all three stores.

#![warn(missing_docs)]

mod components;
mod error;
mod key;
mod memory;
mod sql;
mod stores;
mod tenants;
mod usage;

pub use components::{ComponentStore, ListedComponent, PulledComponent, Upload, UploadBounds};
pub use error::TenantStoreError;
pub use key::MAX_KEY_BYTES;
pub use stores::{POSTGRES_MIGRATIONS, TenantStores};
pub use tenants::{ChangedTenant, Expectation, ListedTenant, StoredTenant, TenantChange, TenantState, TenantStore};
pub use usage::{Consumption, UsageStore};
