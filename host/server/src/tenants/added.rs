//! The tenants that were added while servers ran. A tenant is loaded by its first request, and unloaded after a time
//! without requests.
//!
//! The cost of a start or a request does not depend on the number of stored tenants. A start reads no tenant. A request
//! reads only its own tenant, and only if the tenant is not in memory. Twice a second the process reads the changes of
//! other processes since the last known revision.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_fairness::of_tenant;
use annex_operations::looks::look_until;
use annex_telemetry::fault;
use annex_tenants::{ChangedTenant, StoredTenant, TenantState, TenantStoreError, TenantStores};
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::directory::TenantFailure;
use super::loading::Attempt;
use super::serving::{ServingParts, UnloadReason};
use crate::config::tenant_name::check_name;

mod entry;
mod failures;

use entry::{Entry, StoreLookup};
use failures::Failures;

/// The interval at which this process reads the changes of other processes. This process stops serving a tenant less
/// than a second after another process has removed the tenant.
const LOOK: Duration = Duration::from_millis(500);
/// The maximum number of changes that one query reads.
const PAGE: usize = 1_000;
/// If no query for changes has succeeded for this time, all tenants in memory are dropped, because the process may have
/// missed a change. The store keeps removals for twice this time.
const MISSED: Duration = Duration::from_secs(12 * 60 * 60);
/// The time for which an unknown name is remembered. At most [`MAX_UNKNOWN`] names are remembered.
const UNKNOWN: Duration = Duration::from_secs(1);
const MAX_UNKNOWN: usize = 10_000;

/// The shortest pause between two searches for idle tenants. The longest pause is [`LONGEST_ROUND`].
const SHORTEST_ROUND: Duration = Duration::from_millis(100);
const LONGEST_ROUND: Duration = Duration::from_secs(30);

/// Loads tenants. `T` is the type of the parts that serve one tenant.
pub(crate) trait TenantLoader<T>: Send + Sync {
    /// Reads from a tenant's text which principals may call the tenant. `None` if all may. The error is the reason, without
    /// secrets.
    fn callers(&self, text: String) -> BoxFuture<'static, Result<Option<HashSet<String>>, String>>;

    /// Checks the text of a tenant: loads the tenant, and discards what was loaded. Does not contact the agent's peers.
    /// The error is the reason.
    fn check(&self, name: &str, text: String) -> BoxFuture<'static, Result<(), String>>;

    /// Cancels the turns of a removed tenant.
    fn stop_turns(&self, name: &str);

    /// Loads the tenant. Fails if its agent is not ready in time. The error is the reason, without secrets.
    fn load(&self, tenant: Arc<StoredTenant>, attempt: Attempt) -> BoxFuture<'static, Result<T, String>>;
}

/// The limits on tenants in memory: the maximum number, and the time after which an idle tenant is unloaded.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) max_loaded: usize,
    pub(crate) idle: Duration,
}

/// The added tenants of a store. `T` is the type of the parts that serve one tenant.
pub(crate) struct AddedTenants<T> {
    stores: TenantStores,
    loader: Box<dyn TenantLoader<T>>,
    /// The limits on loaded tenants. A reload of the config replaces the limits.
    bounds: Mutex<Bounds>,
    known: Mutex<KnownTenants<T>>,
}

/// The tenants in memory.
struct KnownTenants<T> {
    entries: HashMap<String, Arc<Entry<T>>>,
    /// Names that the store did not have, with the time of the query.
    unknown: HashMap<String, Instant>,
    /// The recent failed loads. A change of a tenant's text does not clear the failures of the tenant.
    failures: Failures,
    /// The number of the last change in the store that this process has read. Queries read the changes after this
    /// number. `looked` is the time of the last successful query.
    seen: u64,
    looked: Instant,
}

impl<T: ServingParts> AddedTenants<T> {
    /// Opens the tenants of the store. No tenant is read before its first request.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn open(
        stores: TenantStores,
        loader: Box<dyn TenantLoader<T>>,
        bounds: Bounds,
    ) -> Result<Arc<Self>, TenantStoreError> {
        let seen = stores.tenants.last_change().await?;
        let known = KnownTenants {
            entries: HashMap::new(),
            unknown: HashMap::new(),
            failures: Failures::default(),
            seen,
            looked: Instant::now(),
        };
        Ok(Arc::new(Self { stores, loader, bounds: Mutex::new(bounds), known: Mutex::new(known) }))
    }

    /// The stores of the tenants.
    pub(crate) fn stores(&self) -> &TenantStores {
        &self.stores
    }

    pub(crate) fn loader(&self) -> &dyn TenantLoader<T> {
        self.loader.as_ref()
    }

    /// The serving parts of a tenant, or the reason why the tenant is not served. `None` if no tenant has the name, or
    /// if `caller` may not call the tenant. If `caller` is `None`, no permission is checked. The first request loads
    /// the tenant. Concurrent requests wait for this load.
    pub(crate) async fn find(self: &Arc<Self>, name: &str, caller: Option<&str>) -> Option<Result<T, TenantFailure>> {
        loop {
            let entry = self.entry(name)?;
            if caller.is_some() {
                entry.note_called();
            }
            let lookup = match entry.lookup.get() {
                Some(lookup) => lookup,
                None => match self.read(name, &entry).await {
                    Ok(true) => entry.lookup.get()?,
                    // The tenant was changed during the read.
                    Ok(false) => continue,
                    Err(failure) => return Some(Err(failure)),
                },
            };
            let StoreLookup::Found(found) = lookup else { return None };
            if !caller.is_none_or(|caller| found.admits(caller)) {
                return None;
            }
            if found.tenant.state == TenantState::Suspended {
                return Some(Err(TenantFailure::new("it is suspended")));
            }
            match self.serving(&entry, &found.tenant).await {
                Err(_) if entry.may_be_tried() => self.drop_entry(name, &entry),
                serving => return Some(serving),
            }
        }
    }

    /// The entry of the tenant `name` in memory. If there is none, creates an empty entry. `None` if the name is
    /// invalid, or if the store did not have the name a moment ago.
    fn entry(&self, name: &str) -> Option<Arc<Entry<T>>> {
        let mut known = self.known();
        if let Some(entry) = known.entries.get(name) {
            entry.touch();
            return Some(Arc::clone(entry));
        }
        if known.unknown.get(name).is_some_and(|since| since.elapsed() < UNKNOWN) || check_name(name).is_err() {
            return None;
        }
        // The entry is inserted before the read, so that a concurrent change of another process finds it and removes
        // it.
        let entry = Arc::new(Entry::new());
        known.entries.insert(name.to_owned(), Arc::clone(&entry));
        Some(entry)
    }

    /// Reads the tenant from the store into its entry. Returns false if the tenant was changed during the read.
    async fn read(&self, name: &str, entry: &Arc<Entry<T>>) -> Result<bool, TenantFailure> {
        // The request may be dropped during the read. This guard then removes the entry.
        let _unread = Unread { all: self, name, entry };
        let found = match self.stores.tenants.find(name).await {
            Ok(found) => found,
            Err(error) => {
                fault::log(&error);
                return Err(TenantFailure::new("the tenants cannot be read now"));
            }
        };
        let lookup = match found {
            Some(tenant) => StoreLookup::found(tenant, self.loader.as_ref()).await,
            None => StoreLookup::Absent,
        };
        let is_absent = matches!(lookup, StoreLookup::Absent);
        // A concurrent read sets the same value, so the first one stays.
        let _ = entry.lookup.set(lookup);
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

    /// The serving parts of the tenant. Loads the tenant if it is not loaded.
    async fn serving(self: &Arc<Self>, entry: &Arc<Entry<T>>, tenant: &Arc<StoredTenant>) -> Result<T, TenantFailure> {
        let flight = entry.flight.get_or_init(|| {
            let (sender, receiver) = watch::channel(None);
            let (all, entry, tenant) = (Arc::clone(self), Arc::clone(entry), Arc::clone(tenant));
            // The load is a task of its own: it continues when the first request is dropped, and a panic fails only
            // this tenant.
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
            // The loading task has vanished, for example at shutdown. The pause avoids a loop of retries.
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

    /// Records the outcome of a load. Called before the waiting requests get the outcome.
    fn note_outcome(&self, name: &str, entry: &Entry<T>, is_loaded: bool) {
        let failures = &mut self.known().failures;
        if is_loaded {
            failures.forget(name);
        } else {
            entry.fails_for(failures.add(name));
        }
    }

    /// The outcome of the tenant's load. `None` if the tenant is not in memory, or if no load of it has ended yet. This
    /// function does not load the tenant.
    pub(crate) fn known_of(&self, name: &str) -> Option<Result<T, TenantFailure>> {
        self.known().entries.get(name)?.loaded()
    }

    /// The loaded tenants, by name.
    pub(crate) fn loaded(&self) -> Vec<(String, T)> {
        self.outcomes(Result::ok)
    }

    /// The tenants whose last load failed, by name.
    pub(crate) fn failing(&self) -> Vec<(String, TenantFailure)> {
        self.outcomes(Result::err)
    }

    fn outcomes<O>(&self, part: impl Fn(Result<T, TenantFailure>) -> Option<O>) -> Vec<(String, O)> {
        let known = self.known();
        let outcomes = known.entries.iter().filter_map(|(name, entry)| Some((name.clone(), part(entry.loaded()?)?)));
        let mut outcomes: Vec<_> = outcomes.collect();
        outcomes.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        outcomes
    }

    /// Applies a change: later requests get the changed tenant.
    pub(crate) fn note(&self, changed: &ChangedTenant) {
        // A removed tenant may be unloaded and still have turns, because turns continue after a change or a suspension.
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
            Some(TenantState::Active) => UnloadReason::Changed,
            Some(TenantState::Suspended) => UnloadReason::Idle,
            None => UnloadReason::Removed,
        };
        entry.leave(changed.name.clone(), why);
    }

    /// Replaces the limits on loaded tenants.
    pub(crate) fn set_bounds(&self, bounds: Bounds) {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner) = bounds;
    }

    fn bounds(&self) -> Bounds {
        *self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops all tenants in memory, so that the next request for a tenant loads the tenant again. Needed after a change
    /// of the config that affects added tenants. Failed tenants are retried without a pause.
    pub(crate) fn load_anew(&self) {
        let mut known = self.known();
        let entries = std::mem::take(&mut known.entries);
        known.failures = Failures::default();
        drop(known);
        for (name, entry) in entries {
            entry.leave(name, UnloadReason::Changed);
        }
    }

    /// Follows the changes of other processes and unloads idle tenants, until `stop` is cancelled.
    pub(crate) async fn keep_house(self: Arc<Self>, stop: CancellationToken) {
        let looking = async {
            // With an exclusive store, this process makes all changes itself.
            if self.stores.is_shared() {
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

    async fn look(&self) -> Result<(), TenantStoreError> {
        loop {
            let after = self.known().seen;
            let changed = self.stores.tenants.changed_after(after, PAGE).await?;
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
                entry.leave(name, UnloadReason::Changed);
            }
            if is_whole {
                return Ok(());
            }
        }
    }

    /// Unloads the tenants that were idle for too long.
    fn let_idle_go(&self) {
        let longest = self.bounds().idle;
        let mut known = self.known();
        known.unknown.retain(|_, since| since.elapsed() < UNKNOWN);
        known.failures.forget_old();
        let idle = known.entries.iter().filter(|(_, entry)| entry.idle() >= longest && entry.can_go());
        let idle: Vec<String> = idle.map(|(name, _)| name.clone()).collect();
        known.let_go(idle);
    }

    /// Unloads tenants until at most the allowed number is loaded. Tenants without a call since their load are unloaded
    /// first, so that a mere read of an Agent Card unloads no tenant in use. Within each of the two groups, the tenant
    /// that was idle for the longest time is unloaded first.
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

    fn known(&self) -> MutexGuard<'_, KnownTenants<T>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When this value is dropped, it removes the entry from memory if the tenant was not read into it.
struct Unread<'a, T: ServingParts> {
    all: &'a AddedTenants<T>,
    name: &'a str,
    entry: &'a Arc<Entry<T>>,
}

impl<T: ServingParts> Drop for Unread<'_, T> {
    fn drop(&mut self) {
        if self.entry.lookup.get().is_none() {
            self.all.drop_entry(self.name, self.entry);
        }
    }
}

impl<T: ServingParts> KnownTenants<T> {
    fn has(&self, name: &str, entry: &Arc<Entry<T>>) -> bool {
        self.entries.get(name).is_some_and(|there| Arc::ptr_eq(there, entry))
    }

    fn let_go(&mut self, names: Vec<String>) {
        for name in names {
            if let Some(entry) = self.entries.remove(&name) {
                entry.leave(name, UnloadReason::Idle);
            }
        }
    }
}

#[cfg(test)]
mod tests;
