//! The tenants of the config by name: what serves each of them, or why nothing does. Those that nothing serves are tried again.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use annex_protocol::Timestamp;
use futures::future::{BoxFuture, join_all};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::loading::Attempt;
use crate::config::TenantConfig;

/// The longest that the agents of tenants may take to be there, all together: an agent elsewhere that cannot be reached holds
/// up the start, and a reload, for no longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Why a tenant is not served that was not tried yet.
const LOADING: &str = "it is being loaded";
/// The pause before tenants are tried again. It doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Loads a tenant, and gives up when its agent is not there in time. An error is the reason, without secrets.
pub(crate) type Load<T> =
    Box<dyn Fn(Arc<TenantConfig>, Attempt) -> BoxFuture<'static, Result<T, String>> + Send + Sync>;

/// Told of what serves a tenant.
pub(crate) type Told<T> = Box<dyn Fn(&T) + Send + Sync>;

/// The tenants. `T` is what serves one.
pub(crate) struct Directory<T> {
    tenants: RwLock<BTreeMap<String, Arc<Tenant<T>>>>,
    load: Load<T>,
    /// Told of each that has been loaded.
    loaded: OnceLock<Told<T>>,
    /// Notified when there may be some that nothing serves.
    changed: Notify,
}

/// One tenant.
struct Tenant<T> {
    config: Arc<TenantConfig>,
    /// The principals that may call it; `None` for all.
    callers: Option<HashSet<String>>,
    state: RwLock<Result<T, TenantFailure>>,
    /// Held by whoever loads it.
    door: tokio::sync::Mutex<()>,
}

/// Why a tenant is not served.
#[derive(Clone, Debug)]
pub struct TenantFailure {
    /// What failed, for operators: it may name files and hosts, and has no secrets.
    pub reason: String,
    /// When it was tried last.
    pub at: Timestamp,
}

impl TenantFailure {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), at: Timestamp::now() }
    }
}

/// The work that is to be done when the config has other tenants.
pub(crate) struct Changes<T> {
    /// The parts that served tenants which are no longer there.
    pub(crate) removed: Vec<(String, T)>,
    /// Those that are served as before and have to be loaded again.
    pub(crate) changed: Vec<String>,
}

impl<T: Clone + Send + Sync + 'static> Directory<T> {
    /// The tenants. None of them is served before it is loaded.
    pub(crate) fn new(tenants: &[TenantConfig], load: Load<T>) -> Arc<Self> {
        let tenants =
            tenants.iter().map(|config| (config.name.clone(), Arc::new(Tenant::new(config.clone())))).collect();
        Arc::new(Self { tenants: RwLock::new(tenants), load, loaded: OnceLock::new(), changed: Notify::new() })
    }

    /// Takes the tenants as the config has them now. Those that are new or not served are loaded by
    /// [`load_missing`](Self::load_missing).
    pub(crate) fn set(&self, configs: &[TenantConfig]) -> Changes<T> {
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *tenants);
        let mut changed = Vec::new();
        for config in configs {
            let tenant = match before.remove(&config.name) {
                Some(same) if *same.config == *config => same,
                Some(other) => {
                    // It is served as before until what it is now is loaded; who may call it counts at once.
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
        let removed =
            before.into_iter().filter_map(|(name, tenant)| Some((name, tenant.state().as_ref().ok()?.clone())));
        Changes { removed: removed.collect(), changed }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tenants().is_empty()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.tenants().keys().cloned().collect()
    }

    /// True if the config has a tenant of the name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tenants().contains_key(name)
    }

    /// The parts that serve the tenant, or why there are none; `None` for a name that no tenant has.
    pub(crate) fn find(&self, name: &str) -> Option<Result<T, TenantFailure>> {
        Some(self.tenants().get(name)?.state().clone())
    }

    /// The same for a caller. A tenant that it may not call is none.
    pub(crate) fn find_for(&self, name: &str, principal: &str) -> Option<Result<T, TenantFailure>> {
        let tenants = self.tenants();
        let tenant = tenants.get(name)?;
        let admits = tenant.callers.as_ref().is_none_or(|callers| callers.contains(principal));
        admits.then(|| tenant.state().clone())
    }

    /// The parts that serve, by name.
    pub(crate) fn serving(&self) -> Vec<(String, T)> {
        let tenants = self.tenants();
        let serving =
            tenants.iter().filter_map(|(name, tenant)| Some((name.clone(), tenant.state().as_ref().ok()?.clone())));
        serving.collect()
    }

    /// The tenants that nothing serves.
    pub(crate) fn failing(&self) -> Vec<(String, TenantFailure)> {
        let tenants = self.tenants();
        let failing =
            tenants.iter().filter_map(|(name, tenant)| Some((name.clone(), tenant.state().as_ref().err()?.clone())));
        failing.collect()
    }

    /// From now on `told` hears of all that are loaded, and now of those that are.
    pub(crate) fn tell_of_loaded(&self, told: Told<T>) {
        let told = self.loaded.get_or_init(|| told);
        self.serving().iter().for_each(|(_, serving)| told(serving));
    }

    /// Loads those that nothing serves, and says which they were and how it went. One that fails keeps no other from being
    /// loaded.
    pub(crate) async fn load_missing(self: &Arc<Self>) -> Vec<(String, Result<T, TenantFailure>)> {
        let until = Instant::now() + PATIENCE;
        let missing: Vec<String> = self.failing().into_iter().map(|(name, _)| name).collect();
        // All at once: how many do what at the same time is bounded where it costs something (`loading`), so that none waits
        // here for the agents of others.
        let loads = missing.into_iter().map(|name| {
            let all = Arc::clone(self);
            // A task of its own, so that all threads load, and a panic costs this tenant alone.
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
        // Somebody may have loaded it meanwhile.
        let before = match &*tenant.state() {
            Ok(serving) => return Ok(serving.clone()),
            Err(failure) => failure.reason.clone(),
        };
        let attempt = Attempt { until: Some(until), failed_before: before != LOADING };
        let loaded = (self.load)(Arc::clone(&tenant.config), attempt).await.map_err(TenantFailure::new);
        match &loaded {
            Ok(_) => tracing::debug!(tenant = name, "the tenant is served"),
            // Said once, however often it is tried.
            Err(failure) if failure.reason == before => {}
            Err(TenantFailure { reason, .. }) => {
                tracing::error!(tenant = name, "the tenant is not served, and is tried again: {reason}");
            }
        }
        *tenant.state.write().unwrap_or_else(PoisonError::into_inner) = loaded.clone();
        if let (Ok(serving), Some(told)) = (&loaded, self.loaded.get()) {
            told(serving);
        }
        loaded
    }

    /// Loads a tenant that is served, and serves it as it is now. Returns what served it until now. When it cannot be loaded
    /// that goes on.
    pub(crate) async fn load_again(&self, name: &str) -> Result<Option<T>, TenantFailure> {
        let tenant = self.tenants().get(name).cloned();
        let Some(tenant) = tenant else { return Ok(None) };
        let _door = tenant.door.lock().await;
        let attempt = Attempt { until: Some(Instant::now() + PATIENCE), failed_before: false };
        let loading = (self.load)(Arc::clone(&tenant.config), attempt);
        let serving = loading.await.map_err(TenantFailure::new)?;
        let now = Ok(serving.clone());
        let before = std::mem::replace(&mut *tenant.state.write().unwrap_or_else(PoisonError::into_inner), now);
        if let Some(told) = self.loaded.get() {
            told(&serving);
        }
        Ok(before.ok())
    }

    /// Tries those again that nothing serves, whenever there are some.
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
