//! The tenants of a server: several agents behind one listener, each with its own extensions, grants and Agent Card. A
//! request names its tenant (A2A 1.0 section 3.2.1). A request without a tenant is for the agent of the config itself.

use std::iter;
use std::sync::Arc;

use annex_operations::permits::TurnLimiter;
use annex_operations::request_handler::RequestHandler;
use annex_protocol::{A2aError, Owner};
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::access_log;
use crate::config::Config;
use crate::installation::installer::{InstallError, Installer, ReloadOutcome};
use crate::settings::Settings;

mod added;
mod directory;
mod live;
mod loading;
mod reloading;
mod serving;

pub(crate) use added::{AddedTenants, Bounds, TenantLoader};
pub use directory::TenantFailure;
pub(crate) use directory::{Changes, Directory, PATIENCE};
pub(crate) use loading::{Attempt, LoadPlaces};
pub use reloading::ReloadError;
pub(crate) use serving::Serving;

/// The tenants of the config, and the tenants that were added over the API if the config allows them. Clones share one
/// set of tenants.
#[derive(Clone)]
pub(crate) struct OtherTenants {
    pub(crate) named: Arc<Directory<Serving>>,
    /// The tenants that were added over the API. `None` if the config has no `[tenants]`.
    pub(crate) added: Option<Arc<AddedTenants<Serving>>>,
}

impl OtherTenants {
    fn is_empty(&self) -> bool {
        self.added.is_none() && self.named.is_empty()
    }

    /// The serving parts of a tenant, or the reason why the tenant is not served. `None` if no tenant has the name, or
    /// if `caller` may not call the tenant. If `caller` is `None`, no permission is checked. A tenant of the config
    /// takes precedence over an added tenant of the same name.
    async fn find(&self, name: &str, caller: Option<&str>) -> Option<Result<Serving, TenantFailure>> {
        match &self.added {
            Some(added) if !self.named.has(name) => added.find(name, caller).await,
            _ => self.named.find(name, caller),
        }
    }

    /// The serving parts of all loaded tenants, by name.
    fn serving(&self) -> Vec<(String, Serving)> {
        let added = self.added.iter().flat_map(|added| added.loaded());
        self.named.serving().into_iter().chain(added).collect()
    }
}

/// The request handlers: of the agent of the config itself, and of each tenant. Clones share one set of handlers.
#[derive(Clone)]
pub(crate) struct Tenants {
    own: Arc<RequestHandler>,
    others: OtherTenants,
}

impl Tenants {
    pub(crate) fn new(own: Arc<RequestHandler>, others: OtherTenants) -> Self {
        Self { own, others }
    }

    /// The handler of the agent of the config itself.
    pub(crate) fn own(&self) -> &RequestHandler {
        &self.own
    }

    /// True if the config names tenants, or if tenants can be added because the config has `[tenants]`.
    pub(crate) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// The handler of the named tenant, or of the agent of the config itself if `name` is `None`. A tenant that
    /// `principal` may not call is answered as an unknown tenant is.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] for the field `tenant`, [`A2aError::Unavailable`] while the tenant is not served.
    pub(crate) async fn handler(&self, name: Option<&str>, principal: &str) -> Result<Arc<RequestHandler>, A2aError> {
        let Some(name) = name else { return Ok(Arc::clone(&self.own)) };
        access_log::names_tenant(name);
        match self.others.find(name, Some(principal)).await {
            Some(Ok(serving)) => {
                access_log::counts_in(&serving.requests);
                Ok(serving.handler)
            }
            // The reason is for operators and does not reach the client.
            Some(Err(_)) => {
                let reason = format!("tenant {name:?} is not served now");
                Err(A2aError::Unavailable { reason, retry_seconds: None })
            }
            None => {
                access_log::refused(access_log::UNKNOWN_TENANT);
                Err(A2aError::invalid_field("tenant", unknown(name)))
            }
        }
    }

    /// The handler of the tenant that the task's owner belongs to. `None` if this tenant is not served now, or if the
    /// owner may not call this tenant.
    pub(crate) async fn serving_owner(&self, owner: &Owner) -> Option<Arc<RequestHandler>> {
        match owner.tenant.as_str() {
            "" => Some(Arc::clone(&self.own)),
            name => Some(self.others.find(name, Some(&owner.principal)).await?.ok()?.handler),
        }
    }

    /// Closes the agents of all tenants. This happens concurrently, because closing an agent may wait for the agent's
    /// peers.
    pub(crate) async fn close_agents(&self) {
        let others = self.others.serving().into_iter().map(|(_, serving)| serving.handler);
        let handlers = iter::once(Arc::clone(&self.own)).chain(others);
        join_all(handlers.map(|handler| async move { handler.agent.close().await })).await;
    }
}

fn unknown(name: &str) -> String {
    // No tenant can be named `v1`, the first segment of all paths of 0.3. Where 0.3 is served, such paths are routed
    // before this point.
    if name == "v1" {
        return "`v1` begins paths of A2A 0.3, which is not served here; those of A2A 1.0 have no `v1`, as in \
                /a2a/rest/message:send"
            .to_owned();
    }
    format!("{name:?} is not known here; take it from the agent card")
}

/// The installer of the config's own agent, and the installers of all served tenants. For the tenants that are not
/// served, it has the reasons.
pub struct Installers {
    own: Arc<Installer>,
    /// The turn limiter of the agent of the config itself.
    own_turns: Arc<TurnLimiter>,
    others: OtherTenants,
    settings: Arc<Settings>,
    /// Held during a reload of the configs, so that only one reload runs at a time.
    door: tokio::sync::Mutex<()>,
}

impl Installers {
    /// Combines the parts. `own` serves the agent of the config itself.
    pub(crate) fn new(own: &Serving, others: OtherTenants, settings: Arc<Settings>) -> Self {
        let own_turns = Arc::clone(&own.handler.turn_limiter);
        Self { own: Arc::clone(&own.installer), own_turns, others, settings, door: tokio::sync::Mutex::default() }
    }

    /// The installer of the agent of the config itself.
    #[must_use]
    pub fn own(&self) -> &Arc<Installer> {
        &self.own
    }

    /// The config that the server runs with now.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.settings.config()
    }

    pub(crate) fn others(&self) -> &OtherTenants {
        &self.others
    }

    /// Finds the installer of a tenant, or the reason why the tenant is not served. `None` if no tenant has the name.
    /// If `tenant` is `None`, finds the installer of the agent of the config itself. An added tenant is loaded first.
    pub async fn of(&self, tenant: Option<&str>) -> Option<Result<Arc<Installer>, TenantFailure>> {
        let Some(name) = tenant else { return Some(Ok(Arc::clone(&self.own))) };
        Some(self.others.find(name, None).await?.map(|serving| serving.installer))
    }

    /// The handler of a tenant, or the reason why the tenant is not served. `None` if no tenant has the name.
    pub(crate) async fn handler(&self, tenant: &str) -> Option<Result<Arc<RequestHandler>, TenantFailure>> {
        Some(self.others.find(tenant, None).await?.map(|serving| serving.handler))
    }

    /// The names of all tenants of the config and of all loaded added tenants.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let added = self.others.added.iter().flat_map(|added| added.loaded());
        self.others.named.names().into_iter().chain(added.map(|(name, _)| name)).collect()
    }

    /// The installers of all served tenants, by name. Of the added tenants, only loaded ones are included.
    #[must_use]
    pub fn tenants(&self) -> Vec<(String, Arc<Installer>)> {
        self.others.serving().into_iter().map(|(name, serving)| (name, serving.installer)).collect()
    }

    /// The serving parts of all served tenants, by name. Of the added tenants, only loaded ones are included.
    pub(crate) fn tenants_served(&self) -> Vec<(String, Serving)> {
        self.others.serving()
    }

    /// The installers of all served agents. The installer of the config's own agent is the first.
    pub(crate) fn serving(&self) -> Vec<Arc<Installer>> {
        iter::once(Arc::clone(&self.own)).chain(self.tenants().into_iter().map(|(_, installer)| installer)).collect()
    }

    /// The installers of all served agents that may work although no request asks for the work: all but those of tenants
    /// that are in debt for CPU time.
    pub(crate) fn without_debt(&self) -> Vec<Arc<Installer>> {
        let owes = |serving: &Serving| serving.handler.used.as_ref().is_some_and(|used| used.owes_cpu());
        let others = self.others.serving().into_iter().map(|(_, serving)| serving);
        let others = others.filter(|serving| !owes(serving)).map(|serving| serving.installer);
        iter::once(Arc::clone(&self.own)).chain(others).collect()
    }

    /// The tenants that are not served, with the reasons. An added tenant is included only if its last load failed.
    #[must_use]
    pub fn failing(&self) -> Vec<(String, TenantFailure)> {
        let added = self.others.added.iter().flat_map(|added| added.failing());
        self.others.named.failing().into_iter().chain(added).collect()
    }

    /// Starts the background work: watches the files of all agents, retries failed tenants, and follows the changes of
    /// added tenants by other processes.
    pub(crate) fn keep_house(&self, stop: &CancellationToken) {
        // The watch began before the first load, so the files that changed during the load are read when the watch
        // runs.
        if let Some(watch) = self.own.take_watch() {
            tokio::spawn(watch.run(Arc::clone(&self.own), stop.clone()));
        }
        let stopped = stop.clone();
        self.others.named.tell_of_loaded(Box::new(move |serving| serving.watch(&stopped)));
        tokio::spawn(Arc::clone(&self.others.named).keep_trying(stop.clone()));
        if let Some(added) = &self.others.added {
            tokio::spawn(Arc::clone(added).keep_house(stop.clone()));
        }
    }

    /// Reads all configs again. The caller must hold `door`.
    async fn reload_all(&self) -> Result<ReloadOutcome, InstallError> {
        let reloaded = self.reload_own().await;
        if reloaded.is_err() {
            tracing::warn!(
                "the config was not put in force; keys and tokens that were removed from it are still accepted"
            );
        }
        let named = &self.others.named;
        let mut again = Vec::new();
        // A config with an error leaves the tenants as they are.
        let mut whole = reloaded.map(|(mut whole, config)| {
            let Changes { removed, changed } = named.set(&config.tenants);
            whole.changed |= !removed.is_empty();
            for name in removed {
                tracing::info!(tenant = name, "the config has no such tenant any more");
            }
            again = changed;
            whole
        });
        let mut serving = named.serving();
        serving.retain(|(name, _)| !again.contains(name));
        for (name, Serving { installer, .. }) in serving {
            let mut reloaded = installer.reload().await;
            // Keys besides the extensions have changed, so the whole tenant is loaded again.
            if let Ok(of_tenant) = &mut reloaded
                && !of_tenant.needs_restart.is_empty()
            {
                of_tenant.needs_restart.clear();
                again.push(name.clone());
            }
            whole = match (whole, reloaded) {
                (Ok(mut whole), Ok(of_tenant)) => {
                    whole.add(&name, of_tenant);
                    Ok(whole)
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        let mut tried = self.load_again(again).await;
        // New tenants come last, because loading them has just read their files.
        tried.extend(named.load_missing().await.into_iter().map(|(name, tried)| (name, tried.map(drop))));
        for (name, tried) in tried {
            if let Ok(whole) = &mut whole {
                match tried {
                    Ok(()) => whole.changed = true,
                    Err(failure) => whole.failed.push(of_tenant(&name, &failure.reason)),
                }
            }
        }
        whole
    }

    /// Loads the tenants in `names` again, which are served, but whose settings have changed outside of
    /// `[[extension]]`. Returns each name with the outcome.
    async fn load_again(&self, names: Vec<String>) -> Vec<(String, Result<(), TenantFailure>)> {
        let mut tried = Vec::new();
        for name in names {
            let loaded = self.others.named.load_again(&name).await;
            if let Err(TenantFailure { reason, .. }) = &loaded {
                tracing::error!(tenant = name, "the changed tenant cannot be loaded and is served as before: {reason}");
            }
            tried.push((name, loaded));
        }
        tried
    }
}

impl ReloadOutcome {
    fn add(&mut self, tenant: &str, other: Self) {
        let named = |texts: Vec<String>| texts.into_iter().map(move |text| of_tenant(tenant, &text));
        self.changed |= other.changed;
        self.extensions_changed |= other.extensions_changed;
        self.needs_restart.extend(named(other.needs_restart));
        self.failed.extend(named(other.failed));
    }
}

/// Puts the name of the tenant in front of a text about the tenant.
fn of_tenant(tenant: &str, text: &str) -> String {
    format!("tenant {tenant}: {text}")
}
