//! Quotas of tenants and of their callers: counts the usage and refuses requests beyond a limit.
//!
//! Requests and CPU time are counted in this process. Each process allows its fraction of the limit: the limit divided by the
//! number of live processes. Turns are counted by [`permits`](crate::permits). Stored data is counted periodically while the
//! tenant gets requests, so a tenant can exceed a limit on stored data a little before it is refused.
//!
//! A tenant's [`Ledger`] survives unloading the tenant and changing its config. A ledger in its initial state is dropped.
//! The ledger of a tenant has the ledgers of the tenant's callers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use annex_agent::{CpuTime, TokenCount};
use annex_conversation::{Store, StoreError};
use annex_protocol::A2aError;
use annex_runtime::{KeyValueError, KeyValueStore};
use annex_tenants::{Consumption, TenantStoreError, UsageStore};
use futures::{StreamExt, stream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::looks::look_until;
use crate::permits::shared::SharedPlaces;

mod bucket;
mod callers;
mod cpu;
mod held;
mod ledger;
mod limits;
mod rates;
mod tokens;
mod used;
mod written;

use bucket::times;
use callers::CallerLedger;

pub use ledger::Ledger;
pub use limits::{CallerQuota, TenantQuota};
use written::Written;
pub use written::{LATELY, MOST_HOURS};

/// The time between two updates of the usage of tenants.
const LOOK: Duration = Duration::from_secs(1);
/// The maximum number of tenants that are updated at the same time.
const AT_ONCE: usize = 4;
/// The maximum number of callers of one tenant whose tokens are stored in one update.
const MOST_SETTLED: usize = 256;
/// The time limit for counting the stored data of one tenant.
const LONGEST_COUNT: Duration = Duration::from_secs(5);
/// The `Retry-After` for a limit that clears when a turn ends.
const SOON: Duration = Duration::from_secs(1);
/// The `Retry-After` for a limit on stored data, which clears when data is deleted.
const LATER: Duration = Duration::from_secs(10);

/// The usage of all tenants of a process.
pub struct Quotas {
    stores: Stores,
    places: Arc<SharedPlaces>,
    ledgers: Mutex<HashMap<Arc<str>, Arc<Ledger>>>,
    /// The progress of writing usage to the store. Locked during a write.
    writing: tokio::sync::Mutex<Written>,
}

/// The stores whose content is counted.
pub struct Stores {
    pub conversations: Arc<dyn Store>,
    pub keys: Arc<dyn KeyValueStore>,
    /// The store that adds up the usage of all processes.
    pub usage: Arc<dyn UsageStore>,
}

/// A served tenant's quota and usage.
pub struct TenantUse {
    quota: TenantQuota,
    ledger: Arc<Ledger>,
    quotas: Arc<Quotas>,
}

/// The reason why the usage of a tenant cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// The conversations and tasks cannot be counted.
    #[error("the conversations and tasks of the tenant cannot be counted")]
    Conversations(#[from] StoreError),
    /// The usage cannot be read.
    #[error("the usage of the tenant cannot be read")]
    Usage(#[from] TenantStoreError),
    /// The keys cannot be counted, or the tokens cannot be read.
    #[error("the keys of the tenant's extensions cannot be counted")]
    Keys(#[from] KeyValueError),
}

/// The current usage of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    /// The number of requests in the last second, in this process.
    pub requests_per_second: u64,
    /// The milliseconds of CPU time of extensions and the agent in the last second, in this process.
    pub cpu_ms_per_second: u64,
    /// The number of running turns with a task, over all processes. `None` if only one process can use the store.
    pub turns_of_all: Option<u64>,
    /// The number of stored sessions.
    pub sessions: u64,
    /// The bytes of state in all sessions.
    pub state_bytes: u64,
    /// The number of stored tasks.
    pub tasks: u64,
    /// The number of stored keys.
    pub keys: u64,
    /// The tokens of today: over all processes if the tenant has a quota on tokens, else in this process.
    pub tokens_per_day: u64,
    /// The usage of the last 24 hours, over all processes.
    pub lately: Consumption,
    /// The number of live processes at the last query.
    pub processes: usize,
}

impl Quotas {
    pub fn new(stores: Stores, places: Arc<SharedPlaces>) -> Arc<Self> {
        Arc::new(Self { stores, places, ledgers: Mutex::default(), writing: tokio::sync::Mutex::default() })
    }

    /// Returns the ledger of a tenant, and creates a missing one. CPU time that is not charged yet is charged now, under the
    /// limits of the last quota.
    pub fn ledger(&self, tenant: &str) -> Arc<Ledger> {
        let mut ledgers = self.ledgers();
        if let Some(ledger) = ledgers.get(tenant) {
            ledger.settle_cpu(self.places.processes());
            return Arc::clone(ledger);
        }
        let ledger = Arc::new(Ledger::new(tenant));
        ledgers.insert(tenant.into(), Arc::clone(&ledger));
        ledger
    }

    /// Starts serving a tenant with this quota. Counts the tenant's stored data first, so that its quotas apply from
    /// the first request.
    pub async fn begin(self: &Arc<Self>, ledger: Arc<Ledger>, quota: TenantQuota) -> Arc<TenantUse> {
        ledger.set_quota(&quota);
        self.count_in_time(&ledger).await;
        Arc::new(TenantUse { quota, ledger, quotas: Arc::clone(self) })
    }

    /// Counts a read of the tenant's Agent Card. `None` if the tenant has no ledger in this process.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`] after too many reads.
    pub fn admit_card_read(&self, tenant: &str) -> Option<Result<(), A2aError>> {
        let ledger = self.ledgers().get(tenant).map(Arc::clone)?;
        ledger.rates.count_request();
        let Some(limit) = ledger.quota().requests_per_second else { return Some(Ok(())) };
        let taken = ledger.card_reads.take(times(Duration::from_secs(1), self.places.processes(), limit));
        Some(taken.map_err(|wait| refused(&ledger, "requests_per_second", (limit, limit), wait)))
    }

    /// Updates the usage of all tenants periodically until `stop` is cancelled.
    pub async fn watch(&self, stop: CancellationToken) {
        let look = || async {
            self.look().await;
            Ok::<_, Infallible>(())
        };
        look_until(stop.cancelled(), LOOK, look).await;
        // Writes the usage since the last update.
        self.look().await;
        self.write_used().await;
    }

    async fn look(&self) {
        let ledgers: Vec<Arc<Ledger>> = self.ledgers().values().map(Arc::clone).collect();
        stream::iter(ledgers).for_each_concurrent(AT_ONCE, |ledger| self.look_at(ledger)).await;
        if self.is_to_write_used().await {
            self.write_used().await;
        }
        let processes = self.places.processes();
        // Unused ledgers are dropped here, so that the table does not grow with every loaded tenant.
        self.ledgers().retain(|_, ledger| Arc::strong_count(ledger) > 1 || !ledger.is_as_new(processes));
    }

    async fn look_at(&self, ledger: Arc<Ledger>) {
        ledger.sample();
        let has_tokens = ledger.tokens.count().read() > 0;
        if ledger.quota().tokens_per_day.is_none() {
            ledger.tokens.settle_here();
        }
        if ledger.take_asked() || has_tokens {
            self.count_in_time(&ledger).await;
        }
        // A store that fails or hangs is tried again with the next update. Until then the tokens count in this process.
        let _ = timeout(LONGEST_COUNT, self.settle_callers(&ledger)).await;
        ledger.drop_unused_callers(self.places.processes());
    }

    /// Adds the tokens of callers to the counts of all processes.
    async fn settle_callers(&self, ledger: &Ledger) -> Result<(), KeyValueError> {
        if ledger.quota().caller.tokens_per_day.is_none() {
            return Ok(());
        }
        for caller in ledger.callers.to_settle(MOST_SETTLED) {
            caller.tokens.settle(&ledger.tenant, self.stores.keys.as_ref()).await?;
        }
        Ok(())
    }

    /// Counts the stored data that has a quota. Failures of the store are not logged here, because the periodic query for tasks
    /// of other processes logs them.
    async fn count_in_time(&self, ledger: &Ledger) {
        let began = Instant::now();
        match timeout(LONGEST_COUNT, self.count(ledger, &ledger.quota())).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => ledger.note_asked(),
            // A count that takes too long is abandoned, so that other tenants do not wait. It is tried again later.
            Err(_) => {
                ledger.held.counted(began.elapsed());
                ledger.note_asked();
            }
        }
    }

    async fn count(&self, ledger: &Ledger, quota: &TenantQuota) -> Result<(), CountError> {
        let Stores { conversations, keys, .. } = &self.stores;
        let tenant = &ledger.tenant;
        if quota.tokens_per_day.is_some() {
            ledger.tokens.settle(tenant, keys.as_ref()).await?;
        }
        if !ledger.held.is_due() {
            ledger.note_asked();
            return Ok(());
        }
        let began = Instant::now();
        if quota.sessions.is_some() || quota.state_bytes.is_some() || quota.tasks.is_some() {
            let holdings = conversations.holdings(tenant).await?;
            ledger.held.set_conversations(holdings);
            // Counting comes first, because a sweep waits for the sweeps of other processes.
            if let Some(limit) = quota.tasks.filter(|limit| holdings.tasks > *limit) {
                conversations.sweep_tenant(tenant, limit).await?;
            }
        }
        if quota.keys.is_some() {
            ledger.held.set_keys(keys.count(tenant).await?);
        }
        ledger.held.counted(began.elapsed());
        Ok(())
    }

    fn ledgers(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Ledger>>> {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TenantUse {
    /// The limits of the tenant.
    #[must_use]
    pub fn quota(&self) -> &TenantQuota {
        &self.quota
    }

    pub(crate) fn tenant(&self) -> Arc<str> {
        Arc::clone(&self.ledger.tenant)
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Counts a request of a caller. An anonymous caller has an empty principal. Called before any work for the request.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`] after too many requests, or while the caller or the tenant is in debt for the CPU time
    /// of extensions and the agent.
    pub fn admit(&self, principal: &str) -> Result<(), A2aError> {
        self.ledger.rates.count_request();
        self.ledger.note_asked();
        let processes = self.quotas.places.processes();
        // The limits of the caller come first, so that a caller beyond them takes nothing from the tenant's other callers.
        if let Some(caller) = self.caller(principal) {
            let over = |over: callers::Over| self.refused(over.quota, (over.limit, over.limit), over.wait);
            caller.admit(&self.quota.caller, processes).map_err(over)?;
            caller.charge_request();
        }
        if let Some(limit) = self.quota.requests_per_second {
            let cost = times(Duration::from_secs(1), processes, limit);
            let over = |wait| self.refused("requests_per_second", (limit, limit), wait);
            self.ledger.requests.take(cost).map_err(over)?;
        }
        if let Some(limit) = self.quota.cpu_ms_per_second {
            let over = |wait| self.refused("cpu_ms_per_second", (limit, limit), wait);
            self.ledger.charge_cpu(limit, processes).map_err(over)?;
        }
        Ok(())
    }

    /// True while the tenant is in debt for the CPU time of extensions and the agent. Work that no request asks for must
    /// wait until the debt is paid back.
    #[must_use]
    pub fn owes_cpu(&self) -> bool {
        let processes = self.quotas.places.processes();
        self.quota.cpu_ms_per_second.is_some_and(|limit| self.ledger.charge_cpu(limit, processes).is_err())
    }

    /// Checks that the tenant and the caller may begin work that stores state or keys, or calls a model. Reads the stored
    /// tokens of a caller whose tokens of today this process has not read yet.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`] if the tenant or the caller has reached a limit.
    pub(crate) async fn check_work(&self, principal: &str) -> Result<(), A2aError> {
        if let (Some(limit), Some(caller)) = (self.quota.caller.tokens_per_day, self.caller(principal)) {
            // If the store fails, the tokens that this process has counted apply.
            let _ = caller.tokens.learn(&self.ledger.tenant, self.quotas.stores.keys.as_ref()).await;
            self.check(CallerQuota::TOKENS, Some(limit), caller.tokens.used(), tokens::until_tomorrow())?;
        }
        self.check("state_bytes", self.quota.state_bytes, self.ledger.held.state_bytes(), LATER)?;
        self.check("keys", self.quota.keys, self.ledger.held.keys(), LATER)?;
        if self.quota.tokens_per_day.is_some() {
            self.check(
                "tokens_per_day",
                self.quota.tokens_per_day,
                self.ledger.tokens.used(),
                tokens::until_tomorrow(),
            )?;
        }
        Ok(())
    }

    /// Counts a session that is about to be created.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`] if the tenant already has the allowed number of sessions.
    pub(crate) fn check_new_session(&self) -> Result<(), A2aError> {
        self.check("sessions", self.quota.sessions, self.ledger.held.sessions(), LATER)?;
        self.ledger.held.add_session();
        Ok(())
    }

    /// The error for a turn beyond the tenant's limit on turns.
    pub(crate) fn has_enough_turns(&self, turns: usize) -> A2aError {
        self.refused("turns", (turns as u64, turns as u64), SOON)
    }

    /// The ledger of a caller. `None` if callers have no quota.
    pub(crate) fn caller(&self, principal: &str) -> Option<Arc<CallerLedger>> {
        (!self.quota.caller.is_empty()).then(|| self.ledger.callers.of(principal))
    }

    /// The counter for the tokens of the tenant and of the caller. Models add to the counter.
    pub(crate) fn tokens(&self, caller: Option<&CallerLedger>) -> TokenCount {
        let count = self.ledger.tokens.count();
        match caller.filter(|_| self.quota.caller.tokens_per_day.is_some()) {
            Some(caller) => count.and(caller.tokens.count()),
            None => count.clone(),
        }
    }

    /// The counter for the CPU time of the tenant's agent, which is the caller's too. The time of extensions is counted
    /// separately.
    pub(crate) fn cpu(&self, caller: Option<Arc<CallerLedger>>) -> CpuTime {
        let busy = self.ledger.busy();
        // The counter holds the caller's ledger, so that the ledger is not dropped before the turn has ended.
        CpuTime::new(move |took| {
            busy.add(took);
            if let Some(caller) = &caller {
                caller.add_busy(took);
            }
        })
    }

    /// The current usage. This call counts the stored data, which is slow. It is for operators and never part of a
    /// request.
    ///
    /// # Errors
    /// When a store fails.
    pub async fn amounts(&self) -> Result<Amounts, CountError> {
        let stores = &self.quotas.stores;
        let holdings = stores.conversations.holdings(&self.ledger.tenant).await?;
        let turns_of_all = Some(holdings.turns).filter(|_| self.quotas.places.is_shared());
        if self.quota.tokens_per_day.is_some() {
            self.ledger.tokens.settle(&self.ledger.tenant, stores.keys.as_ref()).await?;
        }
        Ok(Amounts {
            requests_per_second: self.ledger.rates.requests(),
            cpu_ms_per_second: self.ledger.rates.cpu_ms(),
            turns_of_all,
            sessions: holdings.conversations,
            state_bytes: holdings.state_bytes,
            tasks: holdings.tasks,
            keys: stores.keys.count(&self.ledger.tenant).await?,
            tokens_per_day: self.ledger.tokens.used(),
            lately: self.quotas.used_lately(&self.ledger.tenant, LATELY).await?,
            processes: self.quotas.places.processes(),
        })
    }

    fn check(&self, quota: &'static str, limit: Option<u64>, used: u64, wait: Duration) -> Result<(), A2aError> {
        match limit {
            Some(limit) if used >= limit => Err(self.refused(quota, (used, limit), wait)),
            _ => Ok(()),
        }
    }

    fn refused(&self, quota: &'static str, used_and_limit: (u64, u64), wait: Duration) -> A2aError {
        refused(&self.ledger, quota, used_and_limit, wait)
    }
}

fn refused(ledger: &Ledger, quota: &'static str, (used, limit): (u64, u64), wait: Duration) -> A2aError {
    ledger.rates.count_refusal();
    let retry_seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
    A2aError::QuotaExceeded { quota, used, limit, retry_seconds }
}
