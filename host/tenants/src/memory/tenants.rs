//! Tenants in memory. They are lost when the process ends.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::{
    ChangedTenant, Expectation, ListedTenant, StoredTenant, TenantChange, TenantState, TenantStore, TenantStoreError,
    key,
};

/// The tenants of a store in memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryTenants(Mutex<Tenants>);

/// The tenants by their names.
#[derive(Debug, Default)]
struct Tenants {
    by_name: BTreeMap<String, StoredTenant>,
    /// The number of the last change.
    rev: u64,
}

impl Tenants {
    /// Makes the change if the tenant is in the expected state. Otherwise returns the number of the last change of the tenant.
    fn change(&mut self, name: &str, expectation: Expectation, change: impl FnOnce(&mut Self, u64)) -> TenantChange {
        let there = self.by_name.get(name).map(|tenant| tenant.rev);
        let is_there = match expectation {
            Expectation::Absent => there.is_none(),
            Expectation::Rev(rev) => there == Some(rev),
        };
        if !is_there {
            return TenantChange::Other(there);
        }
        self.rev += 1;
        change(self, self.rev);
        TenantChange::Stored(self.rev)
    }
}

impl MemoryTenants {
    fn lock(&self) -> MutexGuard<'_, Tenants> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl TenantStore for MemoryTenants {
    async fn find(&self, name: &str) -> Result<Option<StoredTenant>, TenantStoreError> {
        Ok(self.lock().by_name.get(name).cloned())
    }

    async fn list(&self, after: &str, limit: usize) -> Result<Vec<ListedTenant>, TenantStoreError> {
        let tenants = self.lock();
        let behind = tenants.by_name.range::<str, _>((Bound::Excluded(after), Bound::Unbounded)).take(limit);
        let listed = behind.map(|(name, StoredTenant { rev, state, .. })| ListedTenant {
            name: name.clone(),
            rev: *rev,
            state: *state,
        });
        Ok(listed.collect())
    }

    async fn put(
        &self,
        name: &str,
        expectation: Expectation,
        state: TenantState,
        config: &str,
    ) -> Result<TenantChange, TenantStoreError> {
        key::check_name("tenant", name)?;
        Ok(self.lock().change(name, expectation, |tenants, rev| {
            let tenant = StoredTenant { name: name.to_owned(), rev, state, config: config.to_owned() };
            tenants.by_name.insert(name.to_owned(), tenant);
        }))
    }

    async fn remove(&self, name: &str, rev: u64) -> Result<TenantChange, TenantStoreError> {
        Ok(self.lock().change(name, Expectation::Rev(rev), |tenants, _| {
            tenants.by_name.remove(name);
        }))
    }

    // Removals are not kept: nobody else has this store, and whoever removed a tenant knows.
    async fn changed_after(&self, rev: u64, limit: usize) -> Result<Vec<ChangedTenant>, TenantStoreError> {
        let tenants = self.lock();
        let changed = tenants.by_name.values().filter(|tenant| tenant.rev > rev);
        let changed = changed.map(|StoredTenant { name, rev, state, .. }| ChangedTenant {
            name: name.clone(),
            rev: *rev,
            state: Some(*state),
        });
        let mut changed: Vec<_> = changed.collect();
        changed.sort_unstable_by_key(|tenant| tenant.rev);
        changed.truncate(limit);
        Ok(changed)
    }

    async fn last_change(&self) -> Result<u64, TenantStoreError> {
        Ok(self.lock().rev)
    }
}
