//! The tenants that were added while servers ran. Each is loaded when somebody asks for it, and let go when nobody has for a
//! while.
//!
//! Nothing here grows with the number of tenants that are stored: a start reads none of them, and a request reads the one that
//! it names, unless that is here already. What other processes change is looked for twice a second, by the number of the last
//! change that was seen.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_fairness::of_tenant;
use annex_operations::looks::look_until;
use annex_tasks::{ChangedTenant, StoreError, StoredTenant, TaskStore, TenantState};
use annex_telemetry::fault;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::directory::TenantFailure;
use super::loading::Attempt;
use crate::config::tenant;

mod entry;
mod failures;

use entry::{Described, Entry};
use failures::Failures;

/// The time between two looks at what other processes have changed. A removed tenant is refused everywhere within a second.
const LOOK: Duration = Duration::from_millis(500);
/// Changes that one look reads at once.
const PAGE: usize = 1_000;
/// The time without a look after which a change may have been missed: removals are told of for twice as long.
const MISSED: Duration = Duration::from_secs(12 * 60 * 60);
/// For how long a name that nobody has is remembered, and how many names.
const UNKNOWN: Duration = Duration::from_secs(1);
const MAX_UNKNOWN: usize = 10_000;

/// The time between two looks for tenants that nobody asks for.
const SHORTEST_ROUND: Duration = Duration::from_millis(100);
const LONGEST_ROUND: Duration = Duration::from_secs(30);

/// Loads tenants. `T` is what serves one.
pub(crate) trait TenantLoader<T>: Send + Sync {
    /// The principals that may call the tenant of the text; `None` for all. An error is the reason, without secrets.
    fn callers(&self, text: String) -> BoxFuture<'static, Result<Option<HashSet<String>>, String>>;

    /// Checks the text of a tenant of this name: loads it on trial, without its agent's peers. An error is the reason.
    fn check(&self, name: &str, text: String) -> BoxFuture<'static, Result<(), String>>;

    /// Cancels the turns of a tenant that is no more.
    fn stop_turns(&self, name: &str);

    /// Loads the tenant, and gives up when its agent is not there in time. An error is the reason, without secrets.
    fn load(&self, tenant: Arc<StoredTenant>, attempt: Attempt) -> BoxFuture<'static, Result<T, String>>;
}

/// The parts that serve a tenant.
pub(crate) trait Loaded: Clone + Send + Sync + 'static {
    /// True while a request or a turn uses it.
    fn is_in_use(&self) -> bool;

    /// Nothing more is begun with it, and its turns go on or, if it was `removed`, are cancelled.
    fn leave(self, name: &str, why: Leaving);
}

/// Why a tenant is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Nobody asks for it, or it is suspended.
    Idle,
    /// Another version of it takes its place.
    Changed,
    /// It is no more.
    Removed,
}

/// The number of tenants that are kept loaded, and the time for which they are.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) max_loaded: usize,
    pub(crate) idle: Duration,
}

/// The tenants. `T` is what serves one.
pub(crate) struct AddedTenants<T> {
    store: Arc<dyn TaskStore>,
    loader: Box<dyn TenantLoader<T>>,
    /// A reload of the config changes them.
    bounds: Mutex<Bounds>,
    known: Mutex<Known<T>>,
}

/// The tenants that are known.
struct Known<T> {
    entries: HashMap<String, Arc<Entry<T>>>,
    /// Names that nobody had a moment ago.
    unknown: HashMap<String, Instant>,
    /// Loads that failed lately. They outlive a change of the text.
    failures: Failures,
    /// The last change that was looked at, and when.
    seen: u64,
    looked: Instant,
}

impl<T: Loaded> AddedTenants<T> {
    /// The tenants of the store, none of which is read before somebody asks for it.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn open(
        store: Arc<dyn TaskStore>,
        loader: Box<dyn TenantLoader<T>>,
        bounds: Bounds,
    ) -> Result<Arc<Self>, StoreError> {
        let seen = store.tenants().last_change().await?;
        let known = Known {
            entries: HashMap::new(),
            unknown: HashMap::new(),
            failures: Failures::default(),
            seen,
            looked: Instant::now(),
        };
        Ok(Arc::new(Self { store, loader, bounds: Mutex::new(bounds), known: Mutex::new(known) }))
    }

    /// The store that they are in.
    pub(crate) fn store(&self) -> &Arc<dyn TaskStore> {
        &self.store
    }

    /// Loads them.
    pub(crate) fn loader(&self) -> &dyn TenantLoader<T> {
        self.loader.as_ref()
    }

    /// The parts that serve the tenant, or why there are none; `None` for a name that no tenant has, or none that this caller
    /// may call. Without a caller anybody's. The first to ask loads it, and others who ask meanwhile wait for the same.
    pub(crate) async fn find(self: &Arc<Self>, name: &str, caller: Option<&str>) -> Option<Result<T, TenantFailure>> {
        loop {
            let entry = self.entry(name)?;
            if caller.is_some() {
                entry.note_called();
            }
            let described = match entry.described.get() {
                Some(described) => described,
                None => match self.read(name, &entry).await {
                    Ok(true) => entry.described.get()?,
                    // It was changed while it was read.
                    Ok(false) => continue,
                    Err(failure) => return Some(Err(failure)),
                },
            };
            let Described::There(there) = described else { return None };
            if !caller.is_none_or(|caller| there.admits(caller)) {
                return None;
            }
            if there.tenant.state == TenantState::Suspended {
                return Some(Err(TenantFailure::new("it is suspended")));
            }
            match self.serving(&entry, &there.tenant).await {
                Err(_) if entry.may_be_tried() => self.drop_entry(name, &entry),
                serving => return Some(serving),
            }
        }
    }

    /// The entry of the name; `None` where nobody had it a moment ago, or can have it.
    fn entry(&self, name: &str) -> Option<Arc<Entry<T>>> {
        let mut known = self.known();
        if let Some(entry) = known.entries.get(name) {
            entry.touch();
            return Some(Arc::clone(entry));
        }
        if known.unknown.get(name).is_some_and(|since| since.elapsed() < UNKNOWN) || tenant::check_name(name).is_err() {
            return None;
        }
        // There before it is read: a change that others make meanwhile finds it here and takes it away.
        let entry = Arc::new(Entry::new());
        known.entries.insert(name.to_owned(), Arc::clone(&entry));
        Some(entry)
    }

    /// Reads the tenant. Returns false when it was changed meanwhile.
    async fn read(&self, name: &str, entry: &Arc<Entry<T>>) -> Result<bool, TenantFailure> {
        // Whoever asks may go away meanwhile.
        let _unread = Unread { all: self, name, entry };
        let found = match self.store.tenants().find(name).await {
            Ok(found) => found,
            Err(error) => {
                fault::log(&error);
                return Err(TenantFailure::new("the tenants cannot be read now"));
            }
        };
        let described = match found {
            Some(tenant) => Described::there(tenant, self.loader.as_ref()).await,
            None => Described::Absent,
        };
        let is_absent = matches!(described, Described::Absent);
        // Whoever reads beside this one finds the same.
        let _ = entry.described.set(described);
        let mut known = self.known();
        if !known.has(name, entry) {
            return Ok(false);
        }
        if is_absent {
            known.entries.remove(name);
            if known.unknown.len() >= MAX_UNKNOWN {
                known.unknown.clear();
            }
            known.unknown.insert(name.to_owned(), Instant::now());
        }
        Ok(true)
    }

    /// The parts that serve the tenant, once it is loaded.
    async fn serving(self: &Arc<Self>, entry: &Arc<Entry<T>>, tenant: &Arc<StoredTenant>) -> Result<T, TenantFailure> {
        let flight = entry.flight.get_or_init(|| {
            let (sender, receiver) = watch::channel(None);
            let (all, entry, tenant) = (Arc::clone(self), Arc::clone(entry), Arc::clone(tenant));
            // A task of its own: it goes on when whoever asked first goes away, and a panic costs this tenant alone.
            tokio::spawn(async move {
                let name = tenant.name.clone();
                let loading = tokio::spawn(of_tenant(name.as_str().into(), Arc::clone(&all).load(tenant)));
                let broke_off = |_| Err(TenantFailure::new("loading it broke off; the log has the reason"));
                let loaded = loading.await.unwrap_or_else(broke_off);
                all.note_outcome(&name, &entry, loaded.is_ok());
                sender.send_replace(Some(loaded));
                all.make_room();
            });
            receiver
        });
        if let Some(loaded) = &*flight.borrow() {
            return loaded.clone();
        }
        let mut flight = flight.clone();
        let loaded = flight.wait_for(Option::is_some).await.ok().and_then(|loaded| loaded.clone());
        loaded.unwrap_or_else(|| {
            // The task that loads is gone. So it is not tried again and again.
            entry.fails_for(failures::FIRST_PAUSE);
            Err(TenantFailure::new("it is being loaded"))
        })
    }

    async fn load(self: Arc<Self>, tenant: Arc<StoredTenant>) -> Result<T, TenantFailure> {
        let failed_before = self.known().failures.has(&tenant.name);
        let loaded = self.loader.load(Arc::clone(&tenant), Attempt { until: None, failed_before }).await;
        let name = &tenant.name;
        match &loaded {
            Ok(_) => tracing::debug!(tenant = name, "the tenant is loaded"),
            Err(reason) => tracing::error!(tenant = name, "the tenant is not served, and is tried again: {reason}"),
        }
        loaded.map_err(TenantFailure::new)
    }

    /// Notes how a load ended, before anybody is told.
    fn note_outcome(&self, name: &str, entry: &Entry<T>, is_loaded: bool) {
        let failures = &mut self.known().failures;
        if is_loaded {
            failures.forget(name);
        } else {
            entry.fails_for(failures.add(name));
        }
    }

    /// The outcome of loading the tenant; `None` while it is not loaded. Asks for nothing.
    pub(crate) fn known_of(&self, name: &str) -> Option<Result<T, TenantFailure>> {
        self.known().entries.get(name)?.loaded()
    }

    /// The tenants that are loaded now, by name.
    pub(crate) fn loaded(&self) -> Vec<(String, T)> {
        let known = self.known();
        let loaded = known.entries.iter().filter_map(|(name, entry)| Some((name.clone(), entry.loaded()?.ok()?)));
        let mut loaded: Vec<_> = loaded.collect();
        loaded.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        loaded
    }

    /// Those that could not be loaded when somebody asked for them, by name.
    pub(crate) fn failing(&self) -> Vec<(String, TenantFailure)> {
        let known = self.known();
        let failing = known.entries.iter().filter_map(|(name, entry)| Some((name.clone(), entry.loaded()?.err()?)));
        let mut failing: Vec<_> = failing.collect();
        failing.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        failing
    }

    /// Takes notice of a change: whoever asks from now on gets the tenant as it is now.
    pub(crate) fn note(&self, changed: &ChangedTenant) {
        // Also where it is not loaded any more: turns of a tenant that was suspended, or changed, go on.
        if changed.state.is_none() {
            self.loader.stop_turns(&changed.name);
        }
        let mut known = self.known();
        known.unknown.remove(&changed.name);
        if changed.state.is_none() {
            known.failures.forget(&changed.name);
        }
        let entry = known.entries.get(&changed.name).filter(|entry| entry.is_before(changed.rev)).cloned();
        let Some(entry) = entry else { return };
        known.entries.remove(&changed.name);
        drop(known);
        let why = match changed.state {
            Some(TenantState::Active) => Leaving::Changed,
            Some(TenantState::Suspended) => Leaving::Idle,
            None => Leaving::Removed,
        };
        entry.leave(changed.name.clone(), why);
    }

    /// Keeps to other bounds from now on.
    pub(crate) fn set_bounds(&self, bounds: Bounds) {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner) = bounds;
    }

    fn bounds(&self) -> Bounds {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has each of them loaded anew when somebody asks for it, because the loader loads them otherwise now. Those that could not
    /// be loaded are tried at once.
    pub(crate) fn load_anew(&self) {
        let mut known = self.known();
        let entries = std::mem::take(&mut known.entries);
        known.failures = Failures::default();
        drop(known);
        for (name, entry) in entries {
            entry.leave(name, Leaving::Changed);
        }
    }

    /// Looks for what others change, and lets go of what nobody asks for, until it is told to stop.
    pub(crate) async fn keep_house(self: Arc<Self>, stop: CancellationToken) {
        let looking = async {
            // A process that has the store for itself knows of each change.
            if self.store.is_shared() {
                look_until(stop.cancelled(), LOOK, || self.look()).await;
            }
        };
        let clearing = stop.run_until_cancelled(async {
            loop {
                self.let_idle_go();
                self.make_room();
                sleep((self.bounds().idle / 10).clamp(SHORTEST_ROUND, LONGEST_ROUND)).await;
            }
        });
        tokio::join!(looking, clearing);
    }

    async fn look(&self) -> Result<(), StoreError> {
        loop {
            let after = self.known().seen;
            let changed = self.store.tenants().changed_after(after, PAGE).await?;
            let is_whole = changed.len() < PAGE;
            for changed in &changed {
                self.note(changed);
            }
            let mut known = self.known();
            known.seen = changed.last().map_or(known.seen, |last| last.rev);
            let missed = known.looked.elapsed() > MISSED;
            known.looked = Instant::now();
            let left = if missed { std::mem::take(&mut known.entries) } else { HashMap::new() };
            drop(known);
            for (name, entry) in left {
                entry.leave(name, Leaving::Changed);
            }
            if is_whole {
                return Ok(());
            }
        }
    }

    /// Lets go of what nobody has asked for in a while.
    fn let_idle_go(&self) {
        let longest = self.bounds().idle;
        let mut known = self.known();
        known.unknown.retain(|_, since| since.elapsed() < UNKNOWN);
        known.failures.forget_old();
        let idle = known.entries.iter().filter(|(_, entry)| entry.idle() >= longest && entry.can_go());
        let idle: Vec<String> = idle.map(|(name, _)| name.clone()).collect();
        known.let_go(idle);
    }

    /// Unloads tenants while more than the limit are loaded. Tenants that nobody has called since they were loaded go first, so
    /// that reading cards unloads no tenant in use. Among them, and then among the others, the longest idle go first.
    fn make_room(&self) {
        let most = self.bounds().max_loaded;
        let mut known = self.known();
        let loaded = known.entries.iter().filter(|(_, entry)| matches!(entry.loaded(), Some(Ok(_))));
        let rank = |entry: &Entry<T>| (!entry.was_called(), entry.idle());
        let mut loaded: Vec<_> = loaded.map(|(name, entry)| (rank(entry), name.clone(), Arc::clone(entry))).collect();
        let surplus = loaded.len().saturating_sub(most);
        if surplus == 0 {
            return;
        }
        loaded.sort_unstable_by(|(one, ..), (other, ..)| other.cmp(one));
        let going = loaded.into_iter().filter(|(.., entry)| entry.can_go()).take(surplus);
        let going: Vec<String> = going.map(|(_, name, _)| name).collect();
        known.let_go(going);
    }

    fn drop_entry(&self, name: &str, entry: &Arc<Entry<T>>) {
        let mut known = self.known();
        if known.has(name, entry) {
            known.entries.remove(name);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known<T>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes away an entry of which nothing was read.
struct Unread<'a, T: Loaded> {
    all: &'a AddedTenants<T>,
    name: &'a str,
    entry: &'a Arc<Entry<T>>,
}

impl<T: Loaded> Drop for Unread<'_, T> {
    fn drop(&mut self) {
        if self.entry.described.get().is_none() {
            self.all.drop_entry(self.name, self.entry);
        }
    }
}

impl<T: Loaded> Known<T> {
    fn has(&self, name: &str, entry: &Arc<Entry<T>>) -> bool {
        self.entries.get(name).is_some_and(|there| Arc::ptr_eq(there, entry))
    }

    fn let_go(&mut self, names: Vec<String>) {
        for name in names {
            if let Some(entry) = self.entries.remove(&name) {
                entry.leave(name, Leaving::Idle);
            }
        }
    }
}

#[cfg(test)]
mod tests;
