//! Quotas of tenants: what each may use, what it has used, and the refusal of what is beyond.
//!
//! Requests and CPU time are counted here, and each process lets its part of them through: the limit divided by the processes
//! that are alive. Turns are counted by [`permits`](crate::permits). What is stored is counted at intervals, while the tenant
//! is asked for something, so a tenant can go a little beyond before it is refused.
//!
//! A tenant's [`Ledger`] stays when the tenant is unloaded or its config changes. Ledgers that are as new ones are dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use annex_agent::{CpuTime, TokenCount};
use annex_protocol::A2aError;
use annex_runtime::{KeyValueError, KeyValueStore};
use annex_session::{SessionError, SessionService};
use annex_tasks::{Consumption, StoreError, TaskStore};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::looks::look_until;
use crate::permits::shared::SharedPlaces;

mod bucket;
mod held;
mod ledger;
mod rates;
mod tokens;
mod used;
mod written;

use ledger::times;

pub use ledger::Ledger;
use written::Written;
pub use written::{LATELY, MOST_HOURS};

/// The time between two looks at what tenants have used.
const LOOK: Duration = Duration::from_secs(1);
/// Tenants that are looked at together.
const AT_ONCE: usize = 4;
/// The longest that counting one of them may take.
const LONGEST_COUNT: Duration = Duration::from_secs(5);
/// The time after which a turn may have ended, or a place may have been made.
const SOON: Duration = Duration::from_secs(1);
/// The time after which stored things may have been deleted.
const LATER: Duration = Duration::from_secs(10);

/// The most that a tenant may use of each thing. What is absent has no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantQuota {
    /// Requests per second, over all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// Milliseconds of CPU time in extensions and in the agent per second, over all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms_per_second: Option<u64>,
    /// Turns at once, those that wait for their context included, over all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<usize>,
    /// Sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// Bytes of the state of all sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_bytes: Option<u64>,
    /// Finished tasks that are kept. Nothing is refused: the oldest go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// Keys of all extensions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// Tokens that models count, of prompts and answers, in a day of UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
}

impl TenantQuota {
    /// The first quota of nothing, with which no request could be served.
    #[must_use]
    pub fn of_nothing(&self) -> Option<&'static str> {
        let quotas = [
            ("requests_per_second", self.requests_per_second),
            ("cpu_ms_per_second", self.cpu_ms_per_second),
            ("turns", self.turns.map(|turns| turns as u64)),
            ("sessions", self.sessions),
            ("state_bytes", self.state_bytes),
            ("tasks", self.tasks),
            ("keys", self.keys),
            ("tokens_per_day", self.tokens_per_day),
        ];
        quotas.into_iter().find(|(_, limit)| *limit == Some(0)).map(|(key, _)| key)
    }
}

/// The use of all tenants of a process.
pub struct Quotas {
    stores: Stores,
    places: Arc<SharedPlaces>,
    ledgers: Mutex<HashMap<Arc<str>, Arc<Ledger>>>,
    /// Held while what tenants have used is written.
    writing: tokio::sync::Mutex<Written>,
}

/// Where what tenants keep is counted.
pub struct Stores {
    pub tasks: Arc<dyn TaskStore>,
    pub sessions: Arc<dyn SessionService>,
    pub keys: Arc<dyn KeyValueStore>,
}

/// A tenant that is served: its quota, and the use that it has made of it.
pub struct TenantUse {
    quota: TenantQuota,
    ledger: Arc<Ledger>,
    quotas: Arc<Quotas>,
}

/// The reason why it cannot be told what a tenant has.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// The tasks cannot be counted.
    #[error("the tasks of the tenant cannot be counted")]
    Tasks(#[from] StoreError),
    /// The sessions cannot be counted.
    #[error("the sessions of the tenant cannot be counted")]
    Sessions(#[from] SessionError),
    /// The keys cannot be counted, or its tokens not be read.
    #[error("the keys of the tenant's extensions cannot be counted")]
    Keys(#[from] KeyValueError),
}

/// The present use of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    /// Requests in the last second, in this process.
    pub requests_per_second: u64,
    /// Milliseconds in extensions and in the agent in the last second, in this process.
    pub cpu_ms_per_second: u64,
    /// Turns that run with a task, over all processes; `None` where there is one.
    pub turns_of_all: Option<u64>,
    /// Sessions.
    pub sessions: u64,
    /// Bytes of state.
    pub state_bytes: u64,
    /// Tasks.
    pub tasks: u64,
    /// Keys.
    pub keys: u64,
    /// Tokens of today: over all processes where there is a quota, and of this process otherwise.
    pub tokens_per_day: u64,
    /// The use of the last hours, over all processes.
    pub lately: Consumption,
    /// The processes that were alive lately.
    pub processes: usize,
}

impl Quotas {
    pub fn new(stores: Stores, places: Arc<SharedPlaces>) -> Arc<Self> {
        Arc::new(Self { stores, places, ledgers: Mutex::default(), writing: tokio::sync::Mutex::default() })
    }

    /// The tenant's ledger. Use so far is charged under the limits in effect so far.
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

    /// Begins to serve a tenant with this quota. Counts the tenant's stored data first, so that its quotas apply from the first
    /// request.
    pub async fn begin(self: &Arc<Self>, ledger: Arc<Ledger>, quota: TenantQuota) -> Arc<TenantUse> {
        ledger.set_quota(&quota);
        self.count_in_time(&ledger).await;
        Arc::new(TenantUse { quota, ledger, quotas: Arc::clone(self) })
    }

    /// Counts a read of the tenant's card, loaded or not. `None` if the tenant has no ledger in this process.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`] when there were too many.
    pub fn admit_card_read(&self, tenant: &str) -> Option<Result<(), A2aError>> {
        let ledger = self.ledgers().get(tenant).map(Arc::clone)?;
        ledger.rates.count_request();
        let Some(limit) = ledger.quota().requests_per_second else { return Some(Ok(())) };
        let taken = ledger.card_reads.take(times(Duration::from_secs(1), self.places.processes(), limit));
        Some(taken.map_err(|wait| refused(&ledger, "requests_per_second", (limit, limit), wait)))
    }

    /// Looks again and again at what tenants have used, until it is told to stop.
    pub async fn watch(&self, stop: CancellationToken) {
        let look = || async {
            self.look().await;
            Ok(())
        };
        look_until(stop.cancelled(), LOOK, look).await;
        // For what was used since the last look.
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
        // Unused ledgers are dropped here, so that the table does not grow with each tenant that is loaded.
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
    }

    /// Counts what has a quota. Whoever looks at the tasks of other processes says that the store fails.
    async fn count_in_time(&self, ledger: &Ledger) {
        let began = Instant::now();
        match timeout(LONGEST_COUNT, self.count(ledger, &ledger.quota())).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => ledger.note_asked(),
            // One that takes long keeps nobody else waiting, and is counted again, but not at once.
            Err(_) => {
                ledger.held.counted(began.elapsed());
                ledger.note_asked();
            }
        }
    }

    async fn count(&self, ledger: &Ledger, quota: &TenantQuota) -> Result<(), CountError> {
        let Stores { tasks, sessions, keys } = &self.stores;
        let tenant = &ledger.tenant;
        if quota.tokens_per_day.is_some() {
            ledger.tokens.settle(tenant, keys.as_ref()).await?;
        }
        if !ledger.held.is_due() {
            ledger.note_asked();
            return Ok(());
        }
        let began = Instant::now();
        if quota.sessions.is_some() || quota.state_bytes.is_some() {
            ledger.held.set_sessions(sessions.holdings(tenant).await?);
        }
        if let Some(limit) = quota.tasks {
            // Counted first: a sweep waits for those of other processes.
            if tasks.count(tenant).await? > limit {
                tasks.sweep_tenant(tenant, limit).await?;
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
    /// The most that it may use.
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

    /// Counts a request, before anything is done for it.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`] when there were too many, or when extensions and the agent took too long for those before.
    pub fn admit(&self) -> Result<(), A2aError> {
        self.ledger.rates.count_request();
        self.ledger.note_asked();
        let processes = self.quotas.places.processes();
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

    /// Checks that the tenant may begin something that keeps state or keys, or asks a model.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`] when it has, or has used, as much as it may.
    pub(crate) fn check_work(&self) -> Result<(), A2aError> {
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

    /// Counts a session that is about to be made.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`] when the tenant has as many as it may.
    pub(crate) fn check_new_session(&self) -> Result<(), A2aError> {
        self.check("sessions", self.quota.sessions, self.ledger.held.sessions(), LATER)?;
        self.ledger.held.add_session();
        Ok(())
    }

    /// The refusal of a turn, of which there are as many as there may be.
    pub(crate) fn has_enough_turns(&self, turns: usize) -> A2aError {
        self.refused("turns", (turns as u64, turns as u64), SOON)
    }

    /// Where models count for it.
    pub(crate) fn tokens(&self) -> TokenCount {
        self.ledger.tokens.count().clone()
    }

    /// Where the time counts that its agent takes of the cores, beside that of its extensions.
    pub(crate) fn cpu(&self) -> CpuTime {
        let busy = self.ledger.busy();
        CpuTime::new(move |took| busy.add(took))
    }

    /// Its present use. Stored things are counted for this, so this is for an operator and for no request.
    ///
    /// # Errors
    /// When a store fails.
    pub async fn amounts(&self) -> Result<Amounts, CountError> {
        let stores = &self.quotas.stores;
        let holdings = stores.sessions.holdings(&self.ledger.tenant).await?;
        let turns_of_all = match stores.tasks.places() {
            Some(places) => Some(places.running(&self.ledger.tenant).await?),
            None => None,
        };
        if self.quota.tokens_per_day.is_some() {
            self.ledger.tokens.settle(&self.ledger.tenant, stores.keys.as_ref()).await?;
        }
        Ok(Amounts {
            requests_per_second: self.ledger.rates.requests(),
            cpu_ms_per_second: self.ledger.rates.cpu_ms(),
            turns_of_all,
            sessions: holdings.sessions,
            state_bytes: holdings.state_bytes,
            tasks: stores.tasks.count(&self.ledger.tenant).await?,
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
