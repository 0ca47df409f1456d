//! The three stores in one SQL database. SQLite and PostgreSQL share this code.

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
