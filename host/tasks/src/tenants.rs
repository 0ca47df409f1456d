//! Tenants that operators add while servers run, as texts. What a text says is decided elsewhere.

use async_trait::async_trait;

use crate::StoreError;

/// The state of a tenant: to be served, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantState {
    /// It is.
    Active,
    /// It is kept and not served.
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
    /// As in [`StoredTenant`].
    pub rev: u64,
    /// Its state.
    pub state: TenantState,
}

/// A tenant that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedTenant {
    /// Its name.
    pub name: String,
    /// As in [`StoredTenant`].
    pub rev: u64,
    /// Its state; `None` when it is removed.
    pub state: Option<TenantState>,
}

/// The tenant as whoever changes it believes it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Believed {
    /// There is none of the name.
    Absent,
    /// Its last change has this number.
    Rev(u64),
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantChange {
    /// It is stored under this number.
    Stored(u64),
    /// Nothing is changed: the last change has this number; `None` where there is no such tenant.
    Other(Option<u64>),
}

/// Keeps tenants. Of changes that believe the same, one is stored.
#[async_trait]
pub trait TenantStore: Send + Sync {
    /// The tenant of the name.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn find(&self, name: &str) -> Result<Option<StoredTenant>, StoreError>;

    /// At most `limit` tenants whose names come after `after`; an empty one starts at the first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn list(&self, after: &str, limit: usize) -> Result<Vec<ListedTenant>, StoreError>;

    /// Stores text and state under the name, in place of what is believed to be there.
    ///
    /// # Errors
    /// [`StoreError::InvalidKey`], [`StoreError::Database`].
    async fn put(
        &self,
        name: &str,
        believed: Believed,
        state: TenantState,
        config: &str,
    ) -> Result<TenantChange, StoreError>;

    /// Removes the tenant.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn remove(&self, name: &str, rev: u64) -> Result<TenantChange, StoreError>;

    /// At most `limit` tenants that were changed or removed after the change of this number, in the order of their last
    /// changes. A removal is told of for a day.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn changed_after(&self, rev: u64, limit: usize) -> Result<Vec<ChangedTenant>, StoreError>;

    /// The number of the last change of all.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn last_change(&self) -> Result<u64, StoreError>;
}
