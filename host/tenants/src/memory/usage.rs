//! The usage of tenants in memory. It is lost when the process ends.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::{Consumption, TenantStoreError, UsageStore};

/// The usage of tenants, by hour and name.
#[derive(Debug, Default)]
pub(crate) struct MemoryUsage(Mutex<BTreeMap<u64, HashMap<String, Consumption>>>);

impl MemoryUsage {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, HashMap<String, Consumption>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl UsageStore for MemoryUsage {
    async fn add(&self, hour: u64, used: &[(String, Consumption)]) -> Result<(), TenantStoreError> {
        let mut hours = self.lock();
        let of_hour = hours.entry(hour).or_default();
        for (tenant, used) in used {
            let sum = of_hour.entry(tenant.clone()).or_default();
            sum.add(used);
            *sum = sum.of_hour();
        }
        Ok(())
    }

    async fn of_tenant(&self, tenant: &str, since: u64) -> Result<Consumption, TenantStoreError> {
        let mut sum = Consumption::default();
        self.lock().range(since..).filter_map(|(_, of_hour)| of_hour.get(tenant)).for_each(|used| sum.add(used));
        Ok(sum)
    }

    async fn costliest(&self, since: u64, limit: usize) -> Result<Vec<(String, Consumption)>, TenantStoreError> {
        let mut sums: HashMap<String, Consumption> = HashMap::new();
        for (tenant, used) in self.lock().range(since..).flat_map(|(_, of_hour)| of_hour) {
            sums.entry(tenant.clone()).or_default().add(used);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        let rank = |used: &Consumption| (used.cpu_micros, used.requests);
        sums.sort_unstable_by(|(one, of_one), (other, of_other)| {
            rank(of_other).cmp(&rank(of_one)).then_with(|| one.cmp(other))
        });
        sums.truncate(limit);
        Ok(sums)
    }

    async fn forget_before(&self, hour: u64) -> Result<(), TenantStoreError> {
        let mut hours = self.lock();
        *hours = hours.split_off(&hour);
        Ok(())
    }
}
