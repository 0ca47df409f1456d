//! The tenants by name: what serves each of them, or why nothing does. Those that nothing serves are tried again.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use annex_protocol::Timestamp;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Tenants that are loaded at the same time. Each may hold a component of 32 MiB meanwhile.
const AT_ONCE: usize = 8;
/// The longest that the agents of tenants may take to be there, all together: an agent elsewhere that cannot be reached holds
/// up the start, and a reload, for no longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before tenants are tried again. It doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Loads the tenant of a name, and gives up when its agent is not there by then. An error is the reason, without secrets.
pub(crate) type Load<T> = Box<dyn Fn(String, Instant) -> BoxFuture<'static, Result<T, String>> + Send + Sync>;

/// Told of what serves a tenant.
pub(crate) type Told<T> = Box<dyn Fn(&T) + Send + Sync>;

/// The tenants. `T` is what serves one.
pub(crate) struct Directory<T> {
    tenants: BTreeMap<String, Tenant<T>>,
    load: Load<T>,
    /// Told of each that has been loaded.
    loaded: OnceLock<Told<T>>,
}

/// One tenant.
struct Tenant<T> {
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
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), at: Timestamp::now() }
    }
}

impl<T: Clone + Send + Sync + 'static> Directory<T> {
    /// The tenants with those who may call them. None of them is served before it is loaded.
    pub(crate) fn new(tenants: impl Iterator<Item = (String, Option<HashSet<String>>)>, load: Load<T>) -> Arc<Self> {
        let tenant = |callers| Tenant {
            callers,
            state: RwLock::new(Err(TenantFailure::new("it is being loaded"))),
            door: tokio::sync::Mutex::default(),
        };
        let tenants = tenants.map(|(name, callers)| (name, tenant(callers))).collect();
        Arc::new(Self { tenants, load, loaded: OnceLock::new() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tenants.keys().map(String::as_str)
    }

    /// What serves the tenant, or why nothing does; `None` for a name that no tenant has.
    pub(crate) fn find(&self, name: &str) -> Option<Result<T, TenantFailure>> {
        Some(self.tenants.get(name)?.state().clone())
    }

    /// The same for a caller. A tenant that it may not call is none.
    pub(crate) fn find_for(&self, name: &str, principal: &str) -> Option<Result<T, TenantFailure>> {
        let tenant = self.tenants.get(name)?;
        let admits = tenant.callers.as_ref().is_none_or(|callers| callers.contains(principal));
        admits.then(|| tenant.state().clone())
    }

    /// What serves, by name.
    pub(crate) fn serving(&self) -> impl Iterator<Item = (&str, T)> {
        self.tenants.iter().filter_map(|(name, tenant)| Some((name.as_str(), tenant.state().as_ref().ok()?.clone())))
    }

    /// The tenants that nothing serves.
    pub(crate) fn failing(&self) -> impl Iterator<Item = (&str, TenantFailure)> {
        self.tenants.iter().filter_map(|(name, tenant)| Some((name.as_str(), tenant.state().as_ref().err()?.clone())))
    }

    /// From now on `told` hears of all that are loaded, and now of those that are.
    pub(crate) fn tell_of_loaded(&self, told: Told<T>) {
        let told = self.loaded.get_or_init(|| told);
        self.serving().for_each(|(_, serving)| told(&serving));
    }

    /// Loads those that nothing serves, and says which they were and how it went. One that fails keeps no other from being
    /// loaded.
    pub(crate) async fn load_missing(self: &Arc<Self>) -> Vec<(String, Result<T, TenantFailure>)> {
        let until = Instant::now() + PATIENCE;
        let missing: Vec<String> = self.failing().map(|(name, _)| name.to_owned()).collect();
        let loads = stream::iter(missing).map(|name| {
            let all = Arc::clone(self);
            async move {
                // A task of its own, so that all threads load, and a panic costs this tenant alone.
                let named = name.clone();
                let loading = tokio::spawn(async move { all.load_one(named, until).await });
                (name, loading.await.unwrap_or_else(|panicked| Err(TenantFailure::new(panicked.to_string()))))
            }
        });
        loads.buffer_unordered(AT_ONCE).collect().await
    }

    async fn load_one(&self, name: String, until: Instant) -> Result<T, TenantFailure> {
        let Some(tenant) = self.tenants.get(&name) else { return Err(TenantFailure::new("there is no such tenant")) };
        let _door = tenant.door.lock().await;
        // Somebody may have loaded it meanwhile.
        let before = match &*tenant.state() {
            Ok(serving) => return Ok(serving.clone()),
            Err(failure) => failure.reason.clone(),
        };
        let loaded = (self.load)(name.clone(), until).await.map_err(TenantFailure::new);
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

    /// Tries those again that nothing serves, until there are none.
    pub(crate) async fn keep_trying(self: Arc<Self>, stop: CancellationToken) {
        let trying = async {
            let mut pause = FIRST_PAUSE;
            while self.failing().next().is_some() {
                sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause * 2);
                for (name, tried) in self.load_missing().await {
                    if tried.is_ok() {
                        tracing::info!(tenant = name, "the tenant is served now");
                    }
                }
            }
        };
        stop.run_until_cancelled(trying).await;
    }
}

impl<T> Tenant<T> {
    fn state(&self) -> RwLockReadGuard<'_, Result<T, TenantFailure>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::{Instant, sleep_until};
    use tokio_util::sync::CancellationToken;

    use super::{Directory, FIRST_PAUSE, PATIENCE};

    /// A tenant that serves at once, one that fails three times, and one whose agent is never there.
    fn directory(tries: &Arc<AtomicUsize>) -> Arc<Directory<&'static str>> {
        let tries = Arc::clone(tries);
        let names = ["broken", "far", "fine"].map(|name| (name.to_owned(), None));
        Directory::new(
            names.into_iter(),
            Box::new(move |name, until| {
                let tries = Arc::clone(&tries);
                Box::pin(async move {
                    match name.as_str() {
                        "fine" => Ok("serves"),
                        "broken" if tries.fetch_add(1, Ordering::Relaxed) >= 3 => Ok("mended"),
                        "broken" => Err("its file is broken".to_owned()),
                        _ => {
                            sleep_until(until).await;
                            Err("its agent cannot be reached".to_owned())
                        }
                    }
                })
            }),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn tenants_that_fail_keep_no_other_waiting_for_long_and_are_tried_again() {
        let tries = Arc::new(AtomicUsize::new(0));
        let directory = directory(&tries);
        let told = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&told);
        let began = Instant::now();
        assert_eq!(directory.load_missing().await.len(), 3);
        assert!(began.elapsed() < PATIENCE + FIRST_PAUSE, "{:?}", began.elapsed());
        directory.tell_of_loaded(Box::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!(directory.serving().collect::<Vec<_>>(), [("fine", "serves")]);
        let reasons: Vec<_> = directory.failing().map(|(name, failure)| (name, failure.reason)).collect();
        let broken = ("broken", "its file is broken".to_owned());
        assert_eq!(reasons, [broken, ("far", "its agent cannot be reached".to_owned())]);
        assert!(directory.find("none").is_none() && directory.find("far").is_some_and(|found| found.is_err()));

        let stop = CancellationToken::new();
        let trying = tokio::spawn(Arc::clone(&directory).keep_trying(stop.clone()));
        while directory.find("broken").is_some_and(|found| found.is_err()) {
            tokio::time::sleep(FIRST_PAUSE).await;
        }
        assert_eq!((told.load(Ordering::Relaxed), tries.load(Ordering::Relaxed)), (2, 4));
        assert!(!trying.is_finished(), "one is still to be reached");
        stop.cancel();
        trying.await.expect("no panic");
    }
}
