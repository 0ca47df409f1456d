//! The tenants of a server: agents of others behind the same listener, each with extensions, grants and a card of its
//! own. A request names its tenant (A2A 1.0 section 3.2.1); one that names none is for the agent of the config itself.

use std::borrow::Cow;
use std::iter;
use std::sync::Arc;

use annex_operations::fault;
use annex_operations::request_handler::RequestHandler;
use annex_operations::service_parameters::ServiceParameters;
use annex_protocol::{A2aError, Json, JsonObject};
use axum::http::HeaderMap;
use tokio_util::sync::CancellationToken;

use crate::installation::installer::{InstallError, Installer, ReloadOutcome};

mod directory;

pub(crate) use directory::Directory;
pub use directory::TenantFailure;

/// The parts that serve one agent: that of the config itself, or a tenant's.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) handler: Arc<RequestHandler>,
    pub(crate) installer: Arc<Installer>,
}

/// The handlers that serve requests: that of the config itself, and those of the tenants.
pub(crate) struct Tenants {
    own: Arc<RequestHandler>,
    others: Arc<Directory<Serving>>,
}

impl Tenants {
    pub(crate) fn new(own: Arc<RequestHandler>, others: Arc<Directory<Serving>>) -> Self {
        Self { own, others }
    }

    /// The handler of the config itself. The parts that all handlers of the process share are found with it.
    pub(crate) fn own(&self) -> &RequestHandler {
        &self.own
    }

    /// The tenants for a request with these header fields.
    pub(crate) fn asked_with<'a>(&'a self, headers: &'a HeaderMap) -> AskedTenants<'a> {
        AskedTenants { tenants: self, headers }
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

    /// Ends what the agents have running.
    pub(crate) async fn close_agents(&self) {
        let others = self.others.serving().map(|(_, serving)| serving.handler);
        for handler in iter::once(Arc::clone(&self.own)).chain(others) {
            handler.agent.close().await;
        }
    }
}

/// The tenants as one request asks for them.
pub(crate) struct AskedTenants<'a> {
    tenants: &'a Tenants,
    headers: &'a HeaderMap,
}

impl AskedTenants<'_> {
    /// The handler of the tenant that the request names, and the call with the tenant set in its owner. A tenant that the
    /// caller may not call looks like one that does not exist.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] for the field `tenant`, [`A2aError::Unavailable`] while nothing serves the tenant,
    /// [`A2aError::QuotaExceeded`] where it has used what it may.
    pub(crate) fn serving(
        &self,
        mut call: ServiceParameters,
        tenant: Option<&str>,
    ) -> Result<(Arc<RequestHandler>, ServiceParameters), A2aError> {
        // In protobuf an absent string is an empty one, so an empty name is none.
        let handler = match tenant.filter(|name| !name.is_empty()) {
            None => Arc::clone(&self.tenants.own),
            Some(name) => {
                let handler = self.handler(name, &call.owner.principal)?;
                name.clone_into(&mut call.owner.tenant);
                handler
            }
        };
        handler.admit()?;
        // The fields are copied only for an agent elsewhere, which may be sent some of them.
        let headers = handler.agent_is_remote.then(|| Arc::new(self.headers.clone()));
        Ok((handler, call.with_headers(headers)))
    }

    fn handler(&self, name: &str, principal: &str) -> Result<Arc<RequestHandler>, A2aError> {
        match self.tenants.others.find_for(name, principal) {
            Some(Ok(serving)) => Ok(serving.handler),
            // The reason is the operator's to know.
            Some(Err(_)) => Err(A2aError::Unavailable { reason: format!("tenant {name:?} is not served now") }),
            None => {
                let unknown = format!("{name:?} is not known here; take it from the agent card");
                Err(A2aError::invalid_field("tenant", unknown))
            }
        }
    }

    /// [`Tenants::tenant_in`]
    pub(crate) fn tenant_in<'p>(&self, params: &'p Json) -> Result<(Option<String>, Cow<'p, Json>), A2aError> {
        self.tenants.tenant_in(params)
    }
}

/// The installers of the config itself and of each tenant that is served, and the tenants that are not.
pub struct Installers {
    own: Arc<Installer>,
    tenants: Arc<Directory<Serving>>,
}

impl Installers {
    pub(crate) fn new(own: Arc<Installer>, tenants: Arc<Directory<Serving>>) -> Self {
        Self { own, tenants }
    }

    /// The one of the config itself.
    #[must_use]
    pub fn own(&self) -> &Arc<Installer> {
        &self.own
    }

    /// The one of a tenant, or why the tenant is not served; `None` where there is no such tenant. Without a name that of the
    /// config itself.
    #[must_use]
    pub fn of(&self, tenant: Option<&str>) -> Option<Result<Arc<Installer>, TenantFailure>> {
        let Some(name) = tenant else { return Some(Ok(Arc::clone(&self.own))) };
        Some(self.tenants.find(name)?.map(|serving| serving.installer))
    }

    /// What answers for a tenant, or why the tenant is not served; `None` where there is no such tenant.
    pub(crate) fn handler(&self, tenant: &str) -> Option<Result<Arc<RequestHandler>, TenantFailure>> {
        Some(self.tenants.find(tenant)?.map(|serving| serving.handler))
    }

    /// The names of all tenants.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tenants.names()
    }

    /// The tenants that are served, by name.
    pub fn tenants(&self) -> impl Iterator<Item = (&str, Arc<Installer>)> {
        self.tenants.serving().map(|(name, serving)| (name, serving.installer))
    }

    /// The tenants that are not, and why.
    pub fn failing(&self) -> impl Iterator<Item = (&str, TenantFailure)> {
        self.tenants.failing()
    }

    /// Has the files of all looked at whenever they change, and tries tenants again that are not served.
    pub(crate) fn keep_house(&self, stop: &CancellationToken) {
        // Changes since a watch began, which was before the load, are looked at when it runs.
        let watch = |installer: &Arc<Installer>, stop: &CancellationToken| {
            if let Some(watch) = installer.take_watch() {
                tokio::spawn(watch.run(Arc::clone(installer), stop.clone()));
            }
        };
        watch(&self.own, stop);
        let stopped = stop.clone();
        self.tenants.tell_of_loaded(Box::new(move |serving| watch(&serving.installer, &stopped)));
        tokio::spawn(Arc::clone(&self.tenants).keep_trying(stop.clone()));
    }

    /// Reads all configs again, and tries tenants again that are not served. One that cannot be used keeps no other from being
    /// applied.
    ///
    /// # Errors
    /// The first one; the others are in the log.
    pub async fn reload(&self) -> Result<ReloadOutcome, InstallError> {
        let mut whole = self.own.reload().await;
        for (name, installer) in self.tenants() {
            let reloaded = installer.reload().await;
            whole = match (whole, reloaded) {
                (Ok(mut whole), Ok(of_tenant)) => {
                    whole.add(name, of_tenant);
                    Ok(whole)
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        // Behind the others, because what is loaded here has read its files just now.
        for (name, tried) in self.tenants.load_missing().await {
            if let Ok(whole) = &mut whole {
                match tried {
                    Ok(_) => whole.changed = true,
                    Err(failure) => whole.failed.push(of_tenant(&name, &failure.reason)),
                }
            }
        }
        whole
    }
}

impl ReloadOutcome {
    fn add(&mut self, tenant: &str, other: Self) {
        let named = |texts: Vec<String>| texts.into_iter().map(move |text| of_tenant(tenant, &text));
        self.changed |= other.changed;
        self.needs_restart.extend(named(other.needs_restart));
        self.failed.extend(named(other.failed));
    }
}

/// Marks a text as the tenant's, where it stands among those of others.
fn of_tenant(tenant: &str, text: &str) -> String {
    format!("tenant {tenant}: {text}")
}
