//! The usage of tenants per hour. A store has the sum over all processes.

use std::time::{Instant, SystemTime};

use annex_tenants::{Consumption, TenantStoreError};

use super::Quotas;
use super::written::{MOST_HOURS, Written};
use crate::fault;

/// The maximum number of tenants that are written in one transaction.
const AT_ONCE: usize = 200;
/// The maximum number of failed transactions of one write. After these failures the remaining tenants wait for the next write,
/// because a database that is down would fail every transaction.
const MOST_FAILURES: usize = 3;

impl Quotas {
    pub(super) async fn is_to_write_used(&self) -> bool {
        self.writing.lock().await.is_due()
    }

    /// Adds the usage of this process since the last write to the store. If a write fails, the usage is part of the
    /// next write.
    pub(super) async fn write_used(&self) {
        let mut written = self.writing.lock().await;
        written.at = Some(Instant::now());
        let outcome = self.try_to_write(&mut written).await;
        if let Err(error) = &outcome
            && !written.is_failing
        {
            fault::log(error);
        }
        written.is_failing = outcome.is_err();
    }

    async fn try_to_write(&self, written: &mut Written) -> Result<(), TenantStoreError> {
        let hour = hour();
        let store = &self.stores.usage;
        let ledgers: Vec<_> = self.ledgers().values().cloned().collect();
        let unwritten: Vec<_> = ledgers
            .into_iter()
            .map(|ledger| (ledger.unwritten(), ledger))
            .filter(|(used, _)| *used != Consumption::default())
            .collect();
        let mut failures = Vec::new();
        for part in unwritten.chunks(AT_ONCE) {
            let rows: Vec<_> = part.iter().map(|(used, ledger)| (ledger.tenant.as_ref().to_owned(), *used)).collect();
            match store.add(hour, &rows).await {
                Ok(()) => part.iter().for_each(|(used, ledger)| ledger.note_written(used)),
                // Other tenants of the transaction are not affected.
                Err(error) => failures.push(error),
            }
            if failures.len() == MOST_FAILURES {
                break;
            }
        }
        if written.cleared != hour {
            store.forget_before(hour.saturating_sub(MOST_HOURS)).await?;
            written.cleared = hour;
        }
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    /// The usage of a tenant in the last `hours`, including the current hour, over all processes.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn used_lately(&self, tenant: &str, hours: u64) -> Result<Consumption, TenantStoreError> {
        self.write_used().await;
        self.stores.usage.of_tenant(tenant, since(hours)).await
    }

    /// At most `limit` tenants with their usage in the last `hours`, including the current hour. The tenants with the most CPU
    /// time come first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn costliest(&self, hours: u64, limit: usize) -> Result<Vec<(String, Consumption)>, TenantStoreError> {
        self.write_used().await;
        self.stores.usage.costliest(since(hours), limit).await
    }
}

/// The first hour of a span of `hours` that ends with the current hour.
fn since(hours: u64) -> u64 {
    hour().saturating_sub(hours.clamp(1, MOST_HOURS) - 1)
}

/// The number of hours since 1970-01-01T00:00:00Z.
fn hour() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / 3_600
}
