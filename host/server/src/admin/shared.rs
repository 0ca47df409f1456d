//! The state that all paths of the admin API share, and the reading of request bodies.

use std::sync::Arc;
use std::time::Duration;

use annex_agent::AgentExecutor;
use annex_leases::editions::Consent;
use annex_operations::process_parts::ProcessParts;
use annex_operations::request_handler::RequestHandler;
use annex_protocol::portable;
use annex_runtime::{Digest, MAX_COMPONENT_BYTES, Runtime};
use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::access::Access;
use super::caller::AdminCaller;
use super::error::AdminError;
use super::replicas::ThisProcess;
use super::strangers::Strangers;
use super::tenant_changes::TenantChanges;
use crate::audit::Audit;
use crate::audit::record::Effect;
use crate::installation::installer::{Installer, Peers};
use crate::stores::sessions::Sessions;
use crate::tenants::{Installers, TenantFailure};

/// The longest time that a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of a body, in bytes. The largest body has a component in base64 and its settings.
pub(crate) const MAX_BODY_BYTES: usize = MAX_COMPONENT_BYTES / 3 * 4 + (1 << 20);

/// The state of the admin API: the parts that it shows and changes, and the access rules.
pub(crate) struct Admin {
    pub(crate) installers: Arc<Installers>,
    pub(super) sessions: Sessions,
    /// The parts that all agents of the process share.
    pub(crate) process: Arc<ProcessParts>,
    pub(super) runtime: Arc<Runtime>,
    /// The agent of the config itself.
    pub(crate) agent: Arc<dyn AgentExecutor>,
    pub(crate) access: Access,
    pub(crate) strangers: Strangers,
    /// The other processes on the database. `None` without a shared database.
    pub(super) peers: Option<Peers>,
    pub(super) this_process: ThisProcess,
    pub(super) tenant_changes: TenantChanges,
    /// `None` if the config has no audit file.
    pub(crate) audit: Option<Arc<Audit>>,
}

pub(crate) struct AdminParts {
    pub(crate) access: Access,
    pub(crate) installers: Arc<Installers>,
    pub(crate) sessions: Sessions,
    pub(crate) process: Arc<ProcessParts>,
    pub(crate) runtime: Arc<Runtime>,
    /// The agent of the config itself.
    pub(crate) agent: Arc<dyn AgentExecutor>,
    pub(crate) peers: Option<Peers>,
    pub(crate) this_process: ThisProcess,
    pub(crate) audit: Option<Arc<Audit>>,
}

impl Admin {
    pub(crate) fn new(parts: AdminParts) -> Self {
        let AdminParts { access, installers, sessions, process, runtime, agent, peers, this_process, audit } = parts;
        let strangers = Strangers::new(audit.clone());
        let tenant_changes = TenantChanges::default();
        Self {
            installers,
            sessions,
            process,
            runtime,
            agent,
            access,
            strangers,
            peers,
            this_process,
            tenant_changes,
            audit,
        }
    }

    /// The installer of the tenant that the query names.
    pub(super) async fn installer(&self, of: &OfTenant) -> Result<Arc<Installer>, AdminError> {
        let found = self.installers.of(of.tenant.as_deref()).await;
        served(of.tenant.as_deref().unwrap_or_default(), found)
    }

    /// The handler of a tenant.
    pub(super) async fn handler(&self, tenant: &str) -> Result<Arc<RequestHandler>, AdminError> {
        served(tenant, self.installers.handler(tenant).await)
    }

    /// Loads the tenant if it was added over the API. The name of the tenant's agent, under which sessions are stored,
    /// is known only after the load.
    pub(super) async fn know(&self, tenant: Option<&str>) {
        drop(self.installers.of(tenant).await);
    }

    /// Finds the installer of the query's tenant, for a change of this tenant's extensions. If the tenant was added
    /// over the API, refuses the change with 409: the extensions of such a tenant change only with its text.
    pub(crate) async fn changeable(&self, of: &OfTenant) -> Result<Arc<Installer>, AdminError> {
        let others = self.installers.others();
        if let (Some(name), Some(_)) = (&of.tenant, &others.added)
            && !others.named.has(name)
        {
            // An unknown tenant is refused here, with the error that all paths give.
            self.installer(of).await?;
            let message = format!(
                "the extensions of tenant {name:?} are those of its text; change that (PUT /v1/tenants/{name})"
            );
            return Err(AdminError::new(StatusCode::CONFLICT, "tenant_was_added", message));
        }
        self.installer(of).await
    }
}

/// Returns the value that was found for a tenant. The error says whether the tenant does not exist or cannot be served
/// now.
fn served<T>(tenant: &str, found: Option<Result<T, TenantFailure>>) -> Result<T, AdminError> {
    found.ok_or_else(|| no_tenant(tenant))?.map_err(|failure| {
        let message = format!("tenant {tenant:?} is not served, and is tried again: {}", failure.reason);
        AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "tenant_not_served", message)
    })
}

pub(super) fn no_tenant(name: &str) -> AdminError {
    AdminError::new(StatusCode::NOT_FOUND, "no_tenant", format!("there is no tenant {name:?}"))
}

/// The query that selects a tenant. Without `tenant` the request is for the agent of the config itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfTenant {
    pub(crate) tenant: Option<String>,
}

/// The query of a change that other processes must confirm.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgreedChange {
    pub(super) tenant: Option<String>,
    /// Makes the change even if some processes cannot serve it.
    #[serde(default)]
    pub(super) force: bool,
}

impl AgreedChange {
    pub(super) fn parts(self) -> (OfTenant, Consent) {
        let consent = if self.force { Consent::OfThoseWhoCan } else { Consent::OfAll };
        (OfTenant { tenant: self.tenant }, consent)
    }
}

/// Runs a change to its end even if the client hangs up, logs the outcome, and records it in the audit file. `told` makes
/// the log line of a successful change. The change is refused if the roles of the caller do not allow it, or if the
/// audit file cannot be written.
pub(super) async fn whole<T: Send + 'static, E: Into<AdminError> + Send + 'static, R: Into<Effect>>(
    caller: AdminCaller,
    change: impl Future<Output = Result<T, E>> + Send + 'static,
    told: impl FnOnce(&T) -> R + Send + 'static,
) -> Result<T, AdminError> {
    caller.check().await?;
    // A client that hangs up drops the outer future. A half-made change would leave the folder and the installed set
    // different.
    let changing = tokio::spawn(async move {
        let begun = caller.begins().await?;
        match change.await {
            Ok(done) => {
                let effect = told(&done).into();
                caller.has_changed(effect, begun).await;
                Ok(done)
            }
            Err(error) => {
                let error: AdminError = error.into();
                caller.has_failed(error.status(), Some(&error.reason()), begun).await;
                Err(error)
            }
        }
    });
    match changing.await {
        Ok(done) => done,
        Err(panicked) => Err(AdminError::internal(&panicked)),
    }
}

/// A component with its digest.
pub(super) async fn digested(component: Vec<u8>) -> Result<(Vec<u8>, String), AdminError> {
    let hashing = spawn_blocking(move || {
        let digest = Digest::of(&component).to_string();
        (component, digest)
    });
    hashing.await.map_err(|error| AdminError::internal(&error))
}

/// Reads and decodes a JSON body. Fails if the body has more than `most` bytes.
pub(super) async fn read_small<T: DeserializeOwned>(body: Body, most: usize) -> Result<T, AdminError> {
    decode(&read_raw(body, (most, || format!("a body may have {most} bytes"))).await?)
}

pub(super) async fn read<T: DeserializeOwned>(body: Body) -> Result<T, AdminError> {
    decode(&read_with_component(body).await?)
}

pub(super) async fn read_optional<T: DeserializeOwned + Default>(body: Body) -> Result<T, AdminError> {
    let bytes = read_with_component(body).await?;
    if bytes.is_empty() { Ok(T::default()) } else { decode(&bytes) }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, AdminError> {
    let invalid = |error: &dyn std::fmt::Display| AdminError::invalid(format!("the body: {error}"));
    let decoded = serde_json::from_slice(bytes).map_err(|error| invalid(&error))?;
    // Decoding replaces characters that some readers cannot handle, such as lone surrogates. An error is better than a
    // silent replacement.
    std::str::from_utf8(bytes).map_or(Ok(()), portable::check).map_err(|unportable| invalid(&unportable))?;
    Ok(decoded)
}

async fn read_with_component(body: Body) -> Result<Bytes, AdminError> {
    let too_large = || format!("a component may have {} MiB", MAX_COMPONENT_BYTES >> 20);
    read_raw(body, (MAX_BODY_BYTES, too_large)).await
}

/// Reads the bytes of a body. Fails if the body has more than `most` bytes.
pub(crate) async fn read_raw(
    body: Body,
    (most, too_large): (usize, impl FnOnce() -> String),
) -> Result<Bytes, AdminError> {
    match timeout(BODY_TIMEOUT, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(AdminError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", too_large()))
        }
        Ok(Err(_)) => Err(AdminError::invalid("the body broke off")),
        Err(_) => Err(AdminError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body took too long")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::body::Body;
    use axum::http::Request;
    use futures::FutureExt as _;
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    use super::{AdminCaller, AdminError, Arc, whole};
    use crate::admin::roles::Holder;

    #[tokio::test]
    async fn a_change_that_fails_after_its_client_has_gone_is_logged_all_the_same() {
        let request = Request::post("/v1/reload").body(Body::empty()).expect("a request");
        let holder = Holder { name: "ada".into(), roles: Arc::default() };
        let caller = AdminCaller::new(holder, Ipv4Addr::LOCALHOST.into(), &request, None);
        let (fail, failing) = oneshot::channel::<()>();
        let change = async move {
            failing.await.expect("the end of the change");
            Err::<(), _>(AdminError::invalid("it fails"))
        };
        // The client hangs up while the change runs.
        assert!(whole(caller.clone(), change, |()| String::new()).now_or_never().is_none());
        fail.send(()).expect("the change goes on");
        for _ in 0..100 {
            yield_now().await;
        }
        assert!(caller.is_logged());
    }
}
