//! The usage of tenants by the hour, summed over all processes that share the store.

use async_trait::async_trait;

use crate::TenantStoreError;

/// The usage of a tenant in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consumption {
    /// The number of requests, including refused requests.
    pub requests: u64,
    /// The number of requests that were refused because of a quota.
    pub refused: u64,
    /// Microseconds of CPU time in the extensions and the agent of the tenant.
    pub cpu_micros: u64,
    /// The number of tokens that models have counted, in prompts and answers.
    pub tokens: u64,
}

/// The cap for each number of a tenant's usage in one hour. With this cap, the sum over all stored hours stays far below the
/// largest integer of a database.
pub(crate) const MOST_OF_HOUR: u64 = 1 << 50;

impl Consumption {
    /// The usage with each number capped at [`MOST_OF_HOUR`].
    #[must_use]
    pub(crate) fn of_hour(&self) -> Self {
        Self {
            requests: self.requests.min(MOST_OF_HOUR),
            refused: self.refused.min(MOST_OF_HOUR),
            cpu_micros: self.cpu_micros.min(MOST_OF_HOUR),
            tokens: self.tokens.min(MOST_OF_HOUR),
        }
    }

    /// The usage minus `before`, an earlier usage of the same tenant.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            refused: self.refused.saturating_sub(before.refused),
            cpu_micros: self.cpu_micros.saturating_sub(before.cpu_micros),
            tokens: self.tokens.saturating_sub(before.tokens),
        }
    }

    /// Adds further usage.
    pub fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.refused = self.refused.saturating_add(other.refused);
        self.cpu_micros = self.cpu_micros.saturating_add(other.cpu_micros);
        self.tokens = self.tokens.saturating_add(other.tokens);
    }
}

/// Keeps the usage of tenants. Hours are counted since 1970-01-01T00:00:00Z.
#[async_trait]
pub trait UsageStore: Send + Sync {
    /// Adds the usage of tenants in an hour. Either all usage is added or none. Each tenant appears once in `used`. Each number
    /// of a tenant is capped at 2⁵⁰ per hour.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn add(&self, hour: u64, used: &[(String, Consumption)]) -> Result<(), TenantStoreError>;

    /// The usage of a tenant since the beginning of an hour.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn of_tenant(&self, tenant: &str, since: u64) -> Result<Consumption, TenantStoreError>;

    /// At most `limit` tenants with their usage since the beginning of an hour. The tenants with the most CPU time come first.
    /// Among tenants with the same CPU time, the tenants with the most requests come first.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn costliest(&self, since: u64, limit: usize) -> Result<Vec<(String, Consumption)>, TenantStoreError>;

    /// Deletes the usage of the hours before `hour`.
    ///
    /// # Errors
    /// [`TenantStoreError::Database`].
    async fn forget_before(&self, hour: u64) -> Result<(), TenantStoreError>;
}
