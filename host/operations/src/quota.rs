//! Quotas of tenants: what each may use, what it has used, and the refusal of what is beyond.
//!
//! Requests and CPU time are counted here, and each process lets its part of them through: the limit divided by the processes
//! that are alive. Turns are counted by [`permits`](crate::permits). What is stored is counted at intervals, while the tenant
//! is asked for something, so a tenant can go a little beyond before it is refused.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use annex_agent::{CpuTime, TokenCount};
use annex_protocol::A2aError;
use annex_runtime::{BusyTime, KeyValueError, KeyValueStore};
use annex_session::{SessionError, SessionService};
use annex_tasks::{StoreError, TaskStore};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::looks::look_until;
use crate::permits::shared::SharedPlaces;

mod bucket;
mod held;
mod rates;
mod tokens;

use bucket::{Bucket, nanos};
use held::Held;
use rates::Rates;
use tokens::Tokens;

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
    tenants: Mutex<Vec<Weak<TenantUse>>>,
}

/// Where what tenants keep is counted.
pub struct Stores {
    pub tasks: Arc<dyn TaskStore>,
    pub sessions: Arc<dyn SessionService>,
    pub keys: Arc<dyn KeyValueStore>,
    /// Finished tasks that a tenant keeps.
    pub keep_tasks: u64,
}

/// The use that one tenant has made of its quota.
pub struct TenantUse {
    tenant: Arc<str>,
    quota: TenantQuota,
    quotas: Arc<Quotas>,
    requests: Bucket,
    cpu: Bucket,
    /// The CPU time that the bucket knows of, in nanoseconds.
    charged: AtomicU64,
    busy: BusyTime,
    rates: Rates,
    held: Held,
    tokens: Tokens,
    /// True if something was asked for since it was looked at last.
    was_asked: AtomicBool,
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
    /// Finished tasks of which no more are kept.
    pub keep_tasks: u64,
    /// Keys.
    pub keys: u64,
    /// Tokens of today: over all processes where there is a quota, and of this process otherwise.
    pub tokens_per_day: u64,
    /// Requests that were refused since the tenant was loaded, in this process.
    pub refused: u64,
    /// The processes that were alive lately.
    pub processes: usize,
}

impl Quotas {
    pub fn new(stores: Stores, places: Arc<SharedPlaces>) -> Arc<Self> {
        Arc::new(Self { stores, places, tenants: Mutex::default() })
    }

    /// Begins to count for a tenant. `busy` is the time that its extensions take, and gets that of its agent.
    pub fn of_tenant(self: &Arc<Self>, tenant: &str, quota: TenantQuota, busy: BusyTime) -> Arc<TenantUse> {
        let charged = AtomicU64::new(nanos(busy.read()));
        let used = Arc::new(TenantUse {
            tenant: tenant.into(),
            quota,
            quotas: Arc::clone(self),
            requests: Bucket::new(),
            cpu: Bucket::new(),
            charged,
            rates: Rates::new(&busy),
            busy,
            held: Held::default(),
            tokens: Tokens::new(),
            // Things that it has from before are counted at once.
            was_asked: AtomicBool::new(true),
        });
        let mut tenants = self.tenants();
        // Those that are served no more go here, so that the list does not grow with each that is loaded.
        tenants.retain(|tenant| tenant.strong_count() > 0);
        tenants.push(Arc::downgrade(&used));
        used
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
    }

    async fn look(&self) {
        let tenants: Vec<Arc<TenantUse>> = self.tenants().iter().filter_map(Weak::upgrade).collect();
        let look = |used: Arc<TenantUse>| async move {
            // One that takes long keeps nobody else waiting, and is counted again.
            if timeout(LONGEST_COUNT, used.look()).await.is_err() {
                used.note_asked();
            }
        };
        stream::iter(tenants).for_each_concurrent(AT_ONCE, look).await;
    }

    fn tenants(&self) -> MutexGuard<'_, Vec<Weak<TenantUse>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TenantUse {
    /// The most that it may use.
    #[must_use]
    pub fn quota(&self) -> &TenantQuota {
        &self.quota
    }

    pub(crate) fn tenant(&self) -> Arc<str> {
        Arc::clone(&self.tenant)
    }

    /// Counts a request, before anything is done for it.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`] when there were too many, or when extensions and the agent took too long for those before.
    pub fn admit(&self) -> Result<(), A2aError> {
        self.rates.count_request();
        self.note_asked();
        let processes = self.quotas.places.processes();
        if let Some(limit) = self.quota.requests_per_second {
            let cost = times(Duration::from_secs(1), processes, limit);
            self.requests.take(cost).map_err(|wait| self.refused("requests_per_second", (limit, limit), wait))?;
        }
        if let Some(limit) = self.quota.cpu_ms_per_second {
            let busy = nanos(self.busy.read());
            // Of several at once, each charges what nobody has charged.
            let new = busy.saturating_sub(self.charged.fetch_max(busy, Ordering::Relaxed));
            // A second of it takes so many seconds to come.
            let cost = times(Duration::from_nanos(new), processes.saturating_mul(1_000), limit);
            let over = |wait| self.refused("cpu_ms_per_second", (limit, limit), wait);
            self.cpu.charge(cost).map_err(over)?;
        }
        Ok(())
    }

    /// Checks that the tenant may begin something that keeps state or keys, or asks a model.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`] when it has, or has used, as much as it may.
    pub(crate) fn check_work(&self) -> Result<(), A2aError> {
        self.check("state_bytes", self.quota.state_bytes, self.held.state_bytes(), LATER)?;
        self.check("keys", self.quota.keys, self.held.keys(), LATER)?;
        if self.quota.tokens_per_day.is_some() {
            self.check("tokens_per_day", self.quota.tokens_per_day, self.tokens.used(), tokens::until_tomorrow())?;
        }
        Ok(())
    }

    /// Counts a session that is about to be made.
    ///
    /// # Errors
    /// [`A2aError::QuotaExceeded`] when the tenant has as many as it may.
    pub(crate) fn check_new_session(&self) -> Result<(), A2aError> {
        self.check("sessions", self.quota.sessions, self.held.sessions(), LATER)?;
        self.held.add_session();
        Ok(())
    }

    /// The refusal of a turn, of which there are as many as there may be.
    pub(crate) fn has_enough_turns(&self, turns: usize) -> A2aError {
        self.refused("turns", (turns as u64, turns as u64), SOON)
    }

    /// Where models count for it.
    pub(crate) fn tokens(&self) -> TokenCount {
        self.tokens.count().clone()
    }

    /// Where the time counts that its agent takes of the cores, beside that of its extensions.
    pub(crate) fn cpu(&self) -> CpuTime {
        let busy = self.busy.clone();
        CpuTime::new(move |took| busy.add(took))
    }

    /// Its present use. Stored things are counted for this, so this is for an operator and for no request.
    ///
    /// # Errors
    /// When a store fails.
    pub async fn amounts(&self) -> Result<Amounts, CountError> {
        let stores = &self.quotas.stores;
        let holdings = stores.sessions.holdings(&self.tenant).await?;
        let turns_of_all = match stores.tasks.places() {
            Some(places) => Some(places.running(&self.tenant).await?),
            None => None,
        };
        if self.quota.tokens_per_day.is_some() {
            self.tokens.settle(&self.tenant, stores.keys.as_ref()).await?;
        }
        Ok(Amounts {
            requests_per_second: self.rates.requests(),
            cpu_ms_per_second: self.rates.cpu_ms(),
            turns_of_all,
            sessions: holdings.sessions,
            state_bytes: holdings.state_bytes,
            tasks: stores.tasks.count(&self.tenant).await?,
            keep_tasks: self.quota.tasks.map_or(stores.keep_tasks, |tasks| tasks.min(stores.keep_tasks)),
            keys: stores.keys.count(&self.tenant).await?,
            tokens_per_day: self.tokens.used(),
            refused: self.rates.refused(),
            processes: self.quotas.places.processes(),
        })
    }

    fn check(&self, quota: &'static str, limit: Option<u64>, used: u64, wait: Duration) -> Result<(), A2aError> {
        match limit {
            Some(limit) if used >= limit => Err(self.refused(quota, (used, limit), wait)),
            _ => Ok(()),
        }
    }

    fn refused(&self, quota: &'static str, (used, limit): (u64, u64), wait: Duration) -> A2aError {
        self.rates.count_refusal();
        let retry_seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
        A2aError::QuotaExceeded { quota, used, limit, retry_seconds }
    }

    fn note_asked(&self) {
        // Read first: nearly always it is noted, and a write takes the cache line from the other cores.
        if !self.was_asked.load(Ordering::Relaxed) {
            self.was_asked.store(true, Ordering::Relaxed);
        }
    }

    async fn look(&self) {
        self.rates.sample(&self.busy);
        let has_tokens = self.tokens.count().read() > 0;
        if self.quota.tokens_per_day.is_none() {
            self.tokens.settle_here();
        }
        let was_asked = self.was_asked.swap(false, Ordering::Relaxed);
        if !was_asked && !has_tokens {
            return;
        }
        // Whoever looks at the tasks of other processes says that the store fails.
        if self.count().await.is_err() {
            self.note_asked();
        }
    }

    /// Counts what has a quota.
    async fn count(&self) -> Result<(), CountError> {
        let stores = &self.quotas.stores;
        if self.quota.tokens_per_day.is_some() {
            self.tokens.settle(&self.tenant, stores.keys.as_ref()).await?;
        }
        if !self.held.is_due() {
            self.note_asked();
            return Ok(());
        }
        let began = Instant::now();
        if self.quota.sessions.is_some() || self.quota.state_bytes.is_some() {
            self.held.set_sessions(stores.sessions.holdings(&self.tenant).await?);
        }
        if let Some(limit) = self.quota.tasks {
            // Counted first: a sweep waits for those of other processes.
            if stores.tasks.count(&self.tenant).await? > limit {
                stores.tasks.sweep_tenant(&self.tenant, limit).await?;
            }
        }
        if self.quota.keys.is_some() {
            self.held.set_keys(stores.keys.count(&self.tenant).await?);
        }
        self.held.counted(began.elapsed());
        Ok(())
    }
}

/// The time, so many times over, divided by a limit that is not zero.
fn times(time: Duration, factor: usize, limit: u64) -> Duration {
    let product = time.as_nanos().saturating_mul(factor as u128) / u128::from(limit.max(1));
    Duration::from_nanos(u64::try_from(product).unwrap_or(u64::MAX))
}
