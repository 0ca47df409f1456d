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
    /// Its name.
    pub name: String,
    /// The number of its last change. Numbers count the changes of all tenants, so that none is ever another change's, not even
    /// of a tenant that was removed and added again.
    pub rev: u64,
    /// Its state.
    pub state: TenantState,
    /// The text that its operator wrote.
    pub config: String,
}

/// A tenant in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTenant {
    /// Its name.
    pub name: String,
    /// The number of the last change, see [`StoredTenant`].
    pub rev: u64,
    /// Its state.
    pub state: TenantState,
}

/// A tenant that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedTenant {
    /// Its name.
    pub name: String,
    /// The number of the last change, see [`StoredTenant`].
    pub rev: u64,
    /// Its state; `None` when it is removed.
    pub state: Option<TenantState>,
}

/// The state that the caller expects a tenant to have before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// No tenant has the name.
    Absent,
    /// The last change has this number.
    Rev(u64),
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantChange {
    /// The change was stored under this number.
    Stored(u64),
    /// Nothing was changed: the last change has this number; `None` if the tenant does not exist.
    Other(Option<u64>),
}

/// Keeps tenants. Among concurrent changes with the same expectation, one is stored.
#[async_trait]
pub trait TenantStore: Send + Sync {
    /// The tenant of the name.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn find(&self, name: &str) -> Result<Option<StoredTenant>, TenantStoreError>;

    /// At most `limit` tenants whose names come after `after`; an empty one starts at the first.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn list(&self, after: &str, limit: usize) -> Result<Vec<ListedTenant>, TenantStoreError>;

    /// Stores text and state under the name, if the stored tenant matches `expectation`.
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

    /// Removes the tenant.
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

    /// The number of the last change of all.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn last_change(&self) -> Result<u64, TenantStoreError>;

    /// Waits for changes in progress and closes the connections of a database. Later calls fail.
    async fn close(&self) {}
}
