//! The tenants of a server: agents of others behind the same listener, each with extensions, grants and a card of its
//! own. A request names its tenant (A2A 1.0 section 3.2.1); one that names none is for the agent of the config itself.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter;
use std::sync::Arc;

use annex_operations::fault;
use annex_operations::request_handler::RequestHandler;
use annex_operations::service_parameters::ServiceParameters;
use annex_protocol::{A2aError, Json, JsonObject};
use axum::http::HeaderMap;

use crate::installation::installer::{InstallError, Installer, ReloadOutcome};

/// The handlers that serve requests: that of the config itself, and those of the tenants.
pub(crate) struct Tenants {
    own: Arc<RequestHandler>,
    others: HashMap<String, Tenant>,
}

/// One tenant.
pub(crate) struct Tenant {
    pub(crate) handler: Arc<RequestHandler>,
    /// The principals that may call it; `None` for all.
    pub(crate) callers: Option<HashSet<String>>,
}

impl Tenant {
    fn admits(&self, principal: &str) -> bool {
        self.callers.as_ref().is_none_or(|callers| callers.contains(principal))
    }
}

impl Tenants {
    pub(crate) fn new(own: Arc<RequestHandler>, others: HashMap<String, Tenant>) -> Self {
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
        for handler in self.handlers() {
            handler.agent.close().await;
        }
    }

    fn handlers(&self) -> impl Iterator<Item = &RequestHandler> {
        iter::once(&self.own).chain(self.others.values().map(|tenant| &tenant.handler)).map(AsRef::as_ref)
    }
}

/// The tenants as one request asks for them.
pub(crate) struct AskedTenants<'a> {
    tenants: &'a Tenants,
    headers: &'a HeaderMap,
}

impl<'a> AskedTenants<'a> {
    /// The handler of the tenant that the request names, and the call with the tenant set in its owner. A tenant that the
    /// caller may not call looks like one that does not exist.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] for the field `tenant`.
    pub(crate) fn serving(
        &self,
        mut call: ServiceParameters,
        tenant: Option<&str>,
    ) -> Result<(&'a RequestHandler, ServiceParameters), A2aError> {
        // In protobuf an absent string is an empty one, so an empty name is none.
        let handler: &RequestHandler = match tenant.filter(|name| !name.is_empty()) {
            None => &self.tenants.own,
            Some(name) => {
                let found = self.tenants.others.get(name).filter(|tenant| tenant.admits(&call.owner.principal));
                let tenant = found.ok_or_else(|| {
                    A2aError::invalid_field("tenant", format!("{name:?} is not known here; take it from the agent card"))
                })?;
                name.clone_into(&mut call.owner.tenant);
                &tenant.handler
            }
        };
        // The fields are copied only for an agent elsewhere, which may be sent some of them.
        let headers = handler.agent_is_remote.then(|| Arc::new(self.headers.clone()));
        Ok((handler, call.with_headers(headers)))
    }

    /// [`Tenants::tenant_in`]
    pub(crate) fn tenant_in<'p>(&self, params: &'p Json) -> Result<(Option<String>, Cow<'p, Json>), A2aError> {
        self.tenants.tenant_in(params)
    }
}

/// The installers of the config itself and of each tenant.
pub struct Installers {
    own: Arc<Installer>,
    tenants: BTreeMap<String, Arc<Installer>>,
}

impl Installers {
    pub(crate) fn new(own: Arc<Installer>, tenants: BTreeMap<String, Arc<Installer>>) -> Self {
        Self { own, tenants }
    }

    /// The one of the config itself.
    #[must_use]
    pub fn own(&self) -> &Arc<Installer> {
        &self.own
    }

    /// The one of a tenant; without a name that of the config itself.
    #[must_use]
    pub fn of(&self, tenant: Option<&str>) -> Option<&Arc<Installer>> {
        tenant.map_or(Some(&self.own), |name| self.tenants.get(name))
    }

    /// The tenants by name.
    pub fn tenants(&self) -> impl Iterator<Item = (&str, &Arc<Installer>)> {
        self.tenants.iter().map(|(name, installer)| (name.as_str(), installer))
    }

    /// That of the config itself, under an empty name, and those of the tenants.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Arc<Installer>)> {
        std::iter::once(("", &self.own)).chain(self.tenants())
    }

    /// Reads all configs again. One that cannot be used keeps no other from being applied.
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
