//! Tenants that operators add while servers run, as texts. This crate does not interpret the texts.

use async_trait::async_trait;

use crate::TenantStoreError;

/// The state of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantState {
    /// The tenant is served.
    Active,
    /// The tenant is stored and not served.
    Suspended,
}

/// A tenant as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTenant {
    /// The name of the tenant.
    pub name: String,
    /// The number of the tenant's last change. The changes of all tenants are numbered together, so no number occurs
    /// twice. If a tenant is removed and added again, the tenant gets a new number.
    pub rev: u64,
    /// The state of the tenant.
    pub state: TenantState,
    /// The text of the tenant, as its operator wrote it.
    pub config: String,
}

/// A tenant in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTenant {
    /// The name of the tenant.
    pub name: String,
    /// The number of the tenant's last change, see [`StoredTenant::rev`].
    pub rev: u64,
    /// The state of the tenant.
    pub state: TenantState,
}

/// A tenant that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedTenant {
    /// The name of the tenant.
    pub name: String,
    /// The number of the tenant's last change, see [`StoredTenant::rev`].
    pub rev: u64,
    /// The new state of the tenant; `None` if the tenant was removed.
    pub state: Option<TenantState>,
}

/// The state that the caller expects a tenant to have before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// No tenant has the name.
    Absent,
    /// The last change of the tenant has this number.
    Rev(u64),
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantChange {
    /// The change was stored under this number.
    Stored(u64),
    /// Nothing was changed, because the tenant was not as expected. The last change of the tenant has this number;
    /// `None` if the tenant does not exist.
    Other(Option<u64>),
}

/// Keeps tenants. If several changes with the same expectation run at the same time, only one of these changes is stored.
#[async_trait]
pub trait TenantStore: Send + Sync {
    /// The tenant with this name; `None` if no tenant has the name.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn find(&self, name: &str) -> Result<Option<StoredTenant>, TenantStoreError>;

    /// At most `limit` tenants whose names come after `after`. An empty `after` starts at the first tenant.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn list(&self, after: &str, limit: usize) -> Result<Vec<ListedTenant>, TenantStoreError>;

    /// Stores the text and the state of a tenant, if the stored tenant matches `expectation`.
    ///
    /// # Errors
    /// [`TenantStoreError::InvalidKey`], [`TenantStoreError::Database`].
    async fn put(
        &self,
        name: &str,
        expectation: Expectation,
        state: TenantState,
        config: &str,
    ) -> Result<TenantChange, TenantStoreError>;

    /// Removes the tenant if its last change has the number `rev`.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn remove(&self, name: &str, rev: u64) -> Result<TenantChange, TenantStoreError>;

    /// At most `limit` tenants that were changed or removed after the change of this number, in the order of their last
    /// changes. A removal is listed for a day.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn changed_after(&self, rev: u64, limit: usize) -> Result<Vec<ChangedTenant>, TenantStoreError>;

    /// The number of the last change of any tenant.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn last_change(&self) -> Result<u64, TenantStoreError>;

    /// Waits for changes in progress and closes the connections of a database. Later calls fail.
    async fn close(&self) {}
}
