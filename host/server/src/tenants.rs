//! The tenants of a server: agents of others behind the same listener, each with extensions, grants and a card of its
//! own. A request names its tenant (A2A 1.0 section 3.2.1); one that names none is for the agent of the config itself.

use std::borrow::Cow;
use std::iter;
use std::sync::Arc;

use annex_operations::fault;
use annex_operations::permits::TurnLimiter;
use annex_operations::request_handler::RequestHandler;
use annex_operations::service_parameters::ServiceParameters;
use annex_protocol::{A2aError, Json, JsonObject, Owner};
use axum::http::HeaderMap;
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::access_log;
use crate::config::Config;
use crate::installation::installer::{InstallError, Installer, ReloadOutcome};
use crate::settings::Settings;
use crate::tenants::added::{Leaving, Loaded};

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

/// The tenants of the config and, where it lets some be added, those that were added. Clones are the same.
#[derive(Clone)]
pub(crate) struct OtherTenants {
    pub(crate) named: Arc<Directory<Serving>>,
    /// `None` where the config has no `[tenants]`.
    pub(crate) added: Option<Arc<AddedTenants<Serving>>>,
}

impl OtherTenants {
    fn is_empty(&self) -> bool {
        self.added.is_none() && self.named.is_empty()
    }

    /// The parts that serve the tenant, or why there are none; `None` for a name that no tenant has. The config comes before
    /// what was added.
    async fn find(&self, name: &str) -> Option<Result<Serving, TenantFailure>> {
        if let Some(named) = self.named.find(name) {
            return Some(named);
        }
        self.added.as_ref()?.find(name, None).await
    }

    /// The same for a caller. A tenant that it may not call is none.
    async fn find_for(&self, name: &str, principal: &str) -> Option<Result<Serving, TenantFailure>> {
        let Some(added) = &self.added else { return self.named.find_for(name, principal) };
        if self.named.has(name) {
            return self.named.find_for(name, principal);
        }
        added.find(name, Some(principal)).await
    }

    /// The parts that serve, by name.
    fn serving(&self) -> Vec<(String, Serving)> {
        let added = self.added.iter().flat_map(|added| added.loaded());
        self.named.serving().into_iter().chain(added).collect()
    }
}

/// The handlers that serve requests: that of the config itself, and those of the tenants. Clones are the same.
#[derive(Clone)]
pub(crate) struct Tenants {
    own: Arc<RequestHandler>,
    others: OtherTenants,
}

impl Tenants {
    pub(crate) fn new(own: Arc<RequestHandler>, others: OtherTenants) -> Self {
        Self { own, others }
    }

    /// The handler of the config itself. The parts that all handlers of the process share are found with it.
    pub(crate) fn own(&self) -> &RequestHandler {
        &self.own
    }

    /// The tenants for a request with these header fields.
    pub(crate) fn asked_with<'a>(&'a self, headers: &'a HeaderMap) -> AskedTenants<'a> {
        AskedTenants { tenants: self, headers, of_path: None }
    }

    /// True if the config has tenants, or some can be added.
    pub(crate) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// The tenant that the parameters of an extension's method name, and the parameters without it. Where there are no
    /// tenants all parameters are the extension's.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] for a tenant that is no string.
    pub(crate) fn tenant_in<'a>(&self, params: &'a Json) -> Result<(Option<String>, Cow<'a, Json>), A2aError> {
        if self.others.is_empty() {
            return Ok((None, Cow::Borrowed(params)));
        }
        // What is no object is refused with the reason where the method is called.
        let Ok(mut object) = JsonObject::parse(params.get()) else { return Ok((None, Cow::Borrowed(params))) };
        let Some(tenant) = object.remove("tenant") else { return Ok((None, Cow::Borrowed(params))) };
        let tenant = tenant.to::<String>().map_err(|_| A2aError::invalid_field("tenant", "is not a string"))?;
        Ok((Some(tenant), Cow::Owned(object.to_json().map_err(|error| fault::internal(&error))?)))
    }

    /// The handler that serves the owner of a task; `None` where there is none now.
    pub(crate) async fn serving_owner(&self, owner: &Owner) -> Option<Arc<RequestHandler>> {
        match owner.tenant.as_str() {
            "" => Some(Arc::clone(&self.own)),
            name => Some(self.others.find_for(name, &owner.principal).await?.ok()?.handler),
        }
    }

    /// Ends what the agents have running, of all tenants at the same time: each may have to wait for peers.
    pub(crate) async fn close_agents(&self) {
        let others = self.others.serving().into_iter().map(|(_, serving)| serving.handler);
        let handlers = iter::once(Arc::clone(&self.own)).chain(others);
        join_all(handlers.map(|handler| async move { handler.agent.close().await })).await;
    }
}

/// The tenants as one request asks for them.
pub(crate) struct AskedTenants<'a> {
    tenants: &'a Tenants,
    headers: &'a HeaderMap,
    /// The tenant that the path of the request names, where the request itself has a field for one as well.
    of_path: Option<&'a str>,
}

impl<'a> AskedTenants<'a> {
    /// The same for a request whose path names the tenant. The request itself may repeat that name.
    pub(crate) fn at_path(self, tenant: Option<&'a str>) -> Self {
        Self { of_path: tenant, ..self }
    }

    /// The handler of the tenant that the request names, and the call with the tenant set in its owner. A tenant that the
    /// caller may not call looks like one that does not exist.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] for the field `tenant`, [`A2aError::Unavailable`] while nothing serves the tenant,
    /// [`A2aError::QuotaExceeded`] where it has used what it may.
    pub(crate) async fn serving(
        &self,
        mut call: ServiceParameters,
        tenant: Option<&str>,
    ) -> Result<(Arc<RequestHandler>, ServiceParameters), A2aError> {
        // In protobuf an absent string is an empty one, so an empty name is none.
        let named = tenant.filter(|name| !name.is_empty());
        if let (Some(named), Some(of_path)) = (named, self.of_path)
            && named != of_path
        {
            return Err(other_than_in_path());
        }
        let handler = match named.or(self.of_path) {
            None => Arc::clone(&self.tenants.own),
            Some(name) => {
                access_log::names_tenant(name);
                let handler = self.handler(name, &call.owner.principal).await?;
                name.clone_into(&mut call.owner.tenant);
                handler
            }
        };
        handler.admit()?;
        // The fields are copied only for an agent elsewhere, which may be sent some of them.
        let headers = handler.agent_is_remote.then(|| Arc::new(self.headers.clone()));
        Ok((handler, call.with_headers(headers)))
    }

    async fn handler(&self, name: &str, principal: &str) -> Result<Arc<RequestHandler>, A2aError> {
        match self.tenants.others.find_for(name, principal).await {
            Some(Ok(serving)) => {
                access_log::counts_in(&serving.requests);
                Ok(serving.handler)
            }
            // The reason is the operator's to know.
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

    /// [`Tenants::tenant_in`]. Where the path names the tenant all parameters are the extension's.
    pub(crate) fn tenant_in<'p>(&self, params: &'p Json) -> Result<(Option<String>, Cow<'p, Json>), A2aError> {
        if self.of_path.is_some() { Ok((None, Cow::Borrowed(params))) } else { self.tenants.tenant_in(params) }
    }
}

fn unknown(name: &str) -> String {
    // No tenant has this name, with which paths of 0.3 begin. Where 0.3 is served they do not get here.
    if name == "v1" {
        return "`v1` begins paths of A2A 0.3, which is not served here; those of A2A 1.0 have no `v1`, as in \
                /a2a/rest/message:send"
            .to_owned();
    }
    format!("{name:?} is not known here; take it from the agent card")
}

/// The refusal of a request that names another tenant than its path.
pub(crate) fn other_than_in_path() -> A2aError {
    A2aError::invalid_field("tenant", "is not the tenant of the path")
}

/// The installers of the config itself and of each tenant that is served, and the tenants that are not.
pub struct Installers {
    own: Arc<Installer>,
    /// The turns of the agent of the config itself.
    own_turns: Arc<TurnLimiter>,
    others: OtherTenants,
    settings: Arc<Settings>,
    /// Held while the configs are read again.
    door: tokio::sync::Mutex<()>,
}

impl Installers {
    /// `own` serves the agent of the config itself.
    pub(crate) fn new(own: &Serving, others: OtherTenants, settings: Arc<Settings>) -> Self {
        let own_turns = Arc::clone(&own.handler.turn_limiter);
        Self { own: Arc::clone(&own.installer), own_turns, others, settings, door: tokio::sync::Mutex::default() }
    }

    /// The one of the config itself.
    #[must_use]
    pub fn own(&self) -> &Arc<Installer> {
        &self.own
    }

    /// The config in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.settings.config()
    }

    /// The tenants.
    pub(crate) fn others(&self) -> &OtherTenants {
        &self.others
    }

    /// The one of a tenant, or why the tenant is not served; `None` where there is no such tenant. Without a name that of the
    /// config itself. A tenant that was added is loaded for it.
    pub async fn of(&self, tenant: Option<&str>) -> Option<Result<Arc<Installer>, TenantFailure>> {
        let Some(name) = tenant else { return Some(Ok(Arc::clone(&self.own))) };
        Some(self.others.find(name).await?.map(|serving| serving.installer))
    }

    /// The handler of a tenant, or why the tenant is not served; `None` where there is no such tenant.
    pub(crate) async fn handler(&self, tenant: &str) -> Option<Result<Arc<RequestHandler>, TenantFailure>> {
        Some(self.others.find(tenant).await?.map(|serving| serving.handler))
    }

    /// The names of all tenants of the config, and of those that are loaded.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let added = self.others.added.iter().flat_map(|added| added.loaded());
        self.others.named.names().into_iter().chain(added.map(|(name, _)| name)).collect()
    }

    /// The tenants that are served, by name; of those that were added the ones that are loaded.
    #[must_use]
    pub fn tenants(&self) -> Vec<(String, Arc<Installer>)> {
        self.others.serving().into_iter().map(|(name, serving)| (name, serving.installer)).collect()
    }

    /// The parts that serve the tenants, by name; of those that were added the ones that are loaded.
    pub(crate) fn tenants_served(&self) -> Vec<(String, Serving)> {
        self.others.serving()
    }

    /// All that serve an agent here.
    pub(crate) fn serving(&self) -> Vec<Arc<Installer>> {
        iter::once(Arc::clone(&self.own)).chain(self.tenants().into_iter().map(|(_, installer)| installer)).collect()
    }

    /// The tenants that are not, and why; of those that were added the ones that somebody has asked for.
    #[must_use]
    pub fn failing(&self) -> Vec<(String, TenantFailure)> {
        let added = self.others.added.iter().flat_map(|added| added.failing());
        self.others.named.failing().into_iter().chain(added).collect()
    }

    /// Has the files of all looked at whenever they change, tries tenants again that are not served, and looks for tenants that
    /// others add, change and remove.
    pub(crate) fn keep_house(&self, stop: &CancellationToken) {
        // Changes since a watch began, which was before the load, are looked at when it runs.
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

    /// Reads all configs again, while the door is held.
    async fn reload_all(&self) -> Result<ReloadOutcome, InstallError> {
        let reloaded = self.reload_own().await;
        if reloaded.is_err() {
            tracing::warn!(
                "the config was not put in force; keys and tokens that were removed from it are still accepted"
            );
        }
        let named = &self.others.named;
        let mut again = Vec::new();
        // A config that cannot be used changes no tenants.
        let mut whole = reloaded.map(|(mut whole, config)| {
            let Changes { removed, changed } = named.set(&config.tenants);
            whole.changed |= !removed.is_empty();
            for (name, serving) in removed {
                tracing::info!(tenant = name, "the config has no such tenant any more");
                serving.leave(&name, Leaving::Removed);
            }
            again = changed;
            whole
        });
        let mut serving = named.serving();
        serving.retain(|(name, _)| !again.contains(name));
        for (name, Serving { installer, .. }) in serving {
            let mut reloaded = installer.reload().await;
            // More has changed than its extensions, so that it is loaded as a whole.
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
        // Behind the others, because what is loaded here has read its files just now.
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

    /// Loads tenants that are served, because more of them has changed than their extensions.
    async fn load_again(&self, names: Vec<String>) -> Vec<(String, Result<(), TenantFailure>)> {
        let mut tried = Vec::new();
        for name in names {
            let loaded = self.others.named.load_again(&name).await;
            match &loaded {
                Ok(before) => {
                    if let Some(before) = before.clone() {
                        before.leave(&name, Leaving::Changed);
                    }
                }
                Err(TenantFailure { reason, .. }) => {
                    tracing::error!(tenant = name, "the tenant is served as it was: {reason}");
                }
            }
            tried.push((name, loaded.map(drop)));
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

/// Marks a text as the tenant's, where it stands among those of others.
fn of_tenant(tenant: &str, text: &str) -> String {
    format!("tenant {tenant}: {text}")
}
