//! The tenants of the config by name, each with its serving parts or the reason why it is not served. Failed tenants
//! are retried.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use annex_protocol::Timestamp;
use futures::future::{BoxFuture, join_all};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::loading::Attempt;
use super::serving::{ServingParts, UnloadReason};
use crate::config::TenantConfig;

/// The longest time that a start or a reload waits for the agents of all tenants together. An unreachable upstream
/// agent delays the start or reload by no more than this time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The reason why a tenant is not served while its first load runs.
const LOADING: &str = "it is being loaded";
/// The pause before the first retry of failed tenants. The pause before each further retry is twice as long, up to
/// [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// A function that loads a tenant. It fails if the tenant's agent is not ready in time. The error is the reason,
/// without secrets.
pub(crate) type Load<T> =
    Box<dyn Fn(Arc<TenantConfig>, Attempt) -> BoxFuture<'static, Result<T, String>> + Send + Sync>;

/// A function that gets the serving parts of each loaded tenant.
pub(crate) type LoadListener<T> = Box<dyn Fn(&T) + Send + Sync>;

/// The tenants of a config. `T` is the type of the parts that serve one tenant.
pub(crate) struct Directory<T> {
    tenants: RwLock<BTreeMap<String, Arc<Tenant<T>>>>,
    load: Load<T>,
    /// The listener that is called after each load.
    loaded: OnceLock<LoadListener<T>>,
    /// Notified when tenants may need another attempt to load.
    changed: Notify,
}

struct Tenant<T> {
    config: Arc<TenantConfig>,
    /// The principals that may call the tenant. `None` if all may.
    callers: Option<HashSet<String>>,
    state: RwLock<Result<T, TenantFailure>>,
    /// Held during a load, so that only one load of the tenant runs.
    door: tokio::sync::Mutex<()>,
}

/// Why a tenant is not served.
#[derive(Clone, Debug)]
pub struct TenantFailure {
    /// The reason, for operators: it may name files and hosts, and has no secrets.
    pub reason: String,
    /// The time of the last attempt to load the tenant.
    pub at: Timestamp,
}

impl TenantFailure {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), at: Timestamp::now() }
    }
}

/// The tenants that a new config removes or changes.
pub(crate) struct Changes {
    /// The names of tenants that were served and are not in the config any more. [`ServingParts::leave`] was called for
    /// each of these tenants.
    pub(crate) removed: Vec<String>,
    /// The names of changed tenants. Each changed tenant is served with its old config until it is loaded again.
    pub(crate) changed: Vec<String>,
}

impl<T: ServingParts> Directory<T> {
    /// Makes the directory of the tenants of a config. Loads no tenant yet.
    pub(crate) fn new(tenants: &[TenantConfig], load: Load<T>) -> Arc<Self> {
        let tenants =
            tenants.iter().map(|config| (config.name.clone(), Arc::new(Tenant::new(config.clone())))).collect();
        Arc::new(Self { tenants: RwLock::new(tenants), load, loaded: OnceLock::new(), changed: Notify::new() })
    }

    /// Replaces the config. New and failed tenants are loaded by [`load_missing`](Self::load_missing).
    pub(crate) fn set(&self, configs: &[TenantConfig]) -> Changes {
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *tenants);
        let mut changed = Vec::new();
        for config in configs {
            let tenant = match before.remove(&config.name) {
                Some(same) if *same.config == *config => same,
                Some(other) => {
                    // The old parts serve until the new config is loaded. A change of `callers` applies at once.
                    let state = other.state().clone();
                    if state.is_ok() {
                        changed.push(config.name.clone());
                    }
                    Arc::new(Tenant { state: RwLock::new(state), ..Tenant::new(config.clone()) })
                }
                None => Arc::new(Tenant::new(config.clone())),
            };
            tenants.insert(config.name.clone(), tenant);
        }
        drop(tenants);
        self.changed.notify_one();
        let removed = before.into_iter().filter_map(|(name, tenant)| {
            tenant.state().clone().ok()?.leave(&name, UnloadReason::Removed);
            Some(name)
        });
        Changes { removed: removed.collect(), changed }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tenants().is_empty()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.tenants().keys().cloned().collect()
    }

    /// True if the config has a tenant with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tenants().contains_key(name)
    }

    /// The serving parts of a tenant, or the reason why the tenant is not served. `None` if no tenant has the name, or
    /// if `caller` may not call the tenant. If `caller` is `None`, no permission is checked.
    pub(crate) fn find(&self, name: &str, caller: Option<&str>) -> Option<Result<T, TenantFailure>> {
        let tenants = self.tenants();
        let tenant = tenants.get(name)?;
        let admits = |caller| tenant.callers.as_ref().is_none_or(|callers| callers.contains(caller));
        caller.is_none_or(admits).then(|| tenant.state().clone())
    }

    /// The serving parts of all loaded tenants, by name.
    pub(crate) fn serving(&self) -> Vec<(String, T)> {
        let tenants = self.tenants();
        let serving =
            tenants.iter().filter_map(|(name, tenant)| Some((name.clone(), tenant.state().as_ref().ok()?.clone())));
        serving.collect()
    }

    /// The tenants that are not served, with the reasons.
    pub(crate) fn failing(&self) -> Vec<(String, TenantFailure)> {
        let tenants = self.tenants();
        let failing =
            tenants.iter().filter_map(|(name, tenant)| Some((name.clone(), tenant.state().as_ref().err()?.clone())));
        failing.collect()
    }

    /// Registers the listener for loads. Calls it now for each loaded tenant, and from now on after every load.
    pub(crate) fn tell_of_loaded(&self, listener: LoadListener<T>) {
        let listener = self.loaded.get_or_init(|| listener);
        self.serving().iter().for_each(|(_, serving)| listener(serving));
    }

    /// Loads all tenants that are not served, and returns each name with the outcome. The failure of one tenant does
    /// not affect the other tenants.
    pub(crate) async fn load_missing(self: &Arc<Self>) -> Vec<(String, Result<T, TenantFailure>)> {
        let until = Instant::now() + PATIENCE;
        let missing: Vec<String> = self.failing().into_iter().map(|(name, _)| name).collect();
        // All loads start at once. `loading` bounds the costly parts, so that no tenant waits for the agents of others.
        let loads = missing.into_iter().map(|name| {
            let all = Arc::clone(self);
            // Each load is a task, so that all threads take part and a panic fails only this tenant.
            let named = name.clone();
            let loading = tokio::spawn(async move { all.load_one(named, until).await });
            async move { (name, loading.await.unwrap_or_else(|panicked| Err(TenantFailure::new(panicked.to_string())))) }
        });
        join_all(loads).await
    }

    async fn load_one(&self, name: String, until: Instant) -> Result<T, TenantFailure> {
        let tenant = self.tenants().get(&name).cloned();
        let Some(tenant) = tenant else { return Err(TenantFailure::new("there is no such tenant")) };
        let _door = tenant.door.lock().await;
        // A concurrent load may have served the tenant before this one got the lock.
        let before = match &*tenant.state() {
            Ok(serving) => return Ok(serving.clone()),
            Err(failure) => failure.reason.clone(),
        };
        let attempt = Attempt { until: Some(until), failed_before: before != LOADING };
        let loaded = (self.load)(Arc::clone(&tenant.config), attempt).await.map_err(TenantFailure::new);
        match &loaded {
            Ok(_) => tracing::debug!(tenant = name, "the tenant is served"),
            // The same reason is logged once, not after each retry.
            Err(failure) if failure.reason == before => {}
            Err(TenantFailure { reason, .. }) => {
                tracing::error!(tenant = name, "the tenant is not served, and is tried again: {reason}");
            }
        }
        self.put(&name, &tenant, &loaded);
        loaded
    }

    /// Loads a served tenant again and replaces its serving parts. If the load fails, the old parts keep serving.
    pub(crate) async fn load_again(&self, name: &str) -> Result<(), TenantFailure> {
        let tenant = self.tenants().get(name).cloned();
        let Some(tenant) = tenant else { return Ok(()) };
        let _door = tenant.door.lock().await;
        let attempt = Attempt { until: Some(Instant::now() + PATIENCE), failed_before: false };
        let loading = (self.load)(Arc::clone(&tenant.config), attempt);
        let serving = loading.await.map_err(TenantFailure::new)?;
        self.put(name, &tenant, &Ok(serving));
        Ok(())
    }

    /// Stores the outcome of a load. If the tenant was served before, calls [`ServingParts::leave`] for the old parts.
    fn put(&self, name: &str, tenant: &Tenant<T>, loaded: &Result<T, TenantFailure>) {
        let mut state = tenant.state.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *state, loaded.clone());
        drop(state);
        if let (Ok(serving), Some(listener)) = (loaded, self.loaded.get()) {
            listener(serving);
        }
        if let Ok(before) = before {
            before.leave(name, UnloadReason::Changed);
        }
    }

    /// Retries failed tenants until `stop` is cancelled.
    pub(crate) async fn keep_trying(self: Arc<Self>, stop: CancellationToken) {
        let trying = async {
            loop {
                self.try_until_all_serve().await;
                self.changed.notified().await;
            }
        };
        stop.run_until_cancelled(trying).await;
    }

    async fn try_until_all_serve(self: &Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        while !self.failing().is_empty() {
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
            for (name, tried) in self.load_missing().await {
                if tried.is_ok() {
                    tracing::info!(tenant = name, "the tenant is served now");
                }
            }
        }
    }

    fn tenants(&self) -> RwLockReadGuard<'_, BTreeMap<String, Arc<Tenant<T>>>> {
        self.tenants.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Tenant<T> {
    fn new(config: TenantConfig) -> Self {
        let callers = config.callers.as_ref().map(|callers| callers.iter().cloned().collect());
        let state = RwLock::new(Err(TenantFailure::new(LOADING)));
        Self { config: Arc::new(config), callers, state, door: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> RwLockReadGuard<'_, Result<T, TenantFailure>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
