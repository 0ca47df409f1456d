//! The three stores in one SQL database, once for all databases.

mod components;
mod tenants;
mod usage;

/// Tenants, usage and components in one SQL database.
#[derive(Debug)]
pub(crate) struct SqlTenantStore<D> {
    database: D,
}

impl<D> SqlTenantStore<D> {
    pub(crate) fn on(database: D) -> Self {
        Self { database }
    }
}
