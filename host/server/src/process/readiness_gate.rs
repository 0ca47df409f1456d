//! The gate in front of the request handler. It refuses requests while the server starts and drains.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use annex_operations::request_handler::RequestHandler;
use annex_operations::service_parameters::Identity;
use annex_protocol::A2aError;
use annex_runtime::{Compilation, Installed, compilations};
use annex_telemetry::timeline::Work;
use axum::http::HeaderMap;
use serde::Serialize;

use crate::access_log::{self, AccessLog};
use crate::app::App;
use crate::config::Config;
use crate::connections::limits::ServerLimits;
use crate::connections::peer::Peer;
use crate::installation::published::PublishedSet;
use crate::process::cross_origin::CrossOrigin;
use crate::process::hosts::Hosts;
use crate::process::listeners_tls::ListenersTls;
use crate::process::store_probe::StoreProbe;
use crate::tenants::Serving;

/// The phase of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Components are being loaded and compiled.
    Starting,
    /// The server accepts messages.
    Ready,
    /// Running turns finish. New messages are refused.
    Draining,
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        })
    }
}

/// The JSON body of `/readyz`.
#[derive(Serialize)]
pub(crate) struct Readiness {
    phase: String,
    /// The components that are being compiled. Empty after the start of the server: later compilations are only in the
    /// log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compiling: Vec<RunningCompilation>,
    /// False if tasks or sessions cannot be read. The JSON has this field only if the value is false.
    #[serde(skip_serializing_if = "is_true")]
    pub(crate) stores_answer: bool,
    /// The reason why the config's own agent is not served although the server is ready. Absent if the agent is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    barred: Option<&'static str>,
    /// The number of the current edition. Absent while the server starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    edition: Option<u64>,
    /// The sources of extensions whose last load failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<String>,
    /// URIs of quarantined extensions. The server accepts messages nevertheless.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    quarantined: Vec<String>,
    /// What does not work, although the server accepts messages. `upstream` means that the upstream agent did not
    /// answer the last request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    degraded: Vec<&'static str>,
    /// The number of tenants that are not served, and of served tenants with a failed source, a quarantined extension
    /// or a silent upstream agent. `/readyz` is public, so the names of these tenants are not shown.
    #[serde(skip_serializing_if = "is_zero")]
    impaired_tenants: usize,
}

/// A component that is being compiled.
#[derive(Serialize)]
struct RunningCompilation {
    /// The name of the component's file. Absent for a component of a tenant, because `/readyz` is public.
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<String>,
    /// The seconds since the compilation began.
    seconds: u64,
}

fn compiling() -> Vec<RunningCompilation> {
    let of = |compilation: &Compilation| RunningCompilation {
        component: compilation.tenant.is_empty().then(|| file_name(&compilation.name)),
        seconds: compilation.since.elapsed().as_secs(),
    };
    compilations().iter().map(|compilation| of(compilation)).collect()
}

/// The file name of a component's path. `/readyz` is public, so it shows no folders.
fn file_name(component: &str) -> String {
    let name = Path::new(component).file_name();
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_true(flag: &bool) -> bool {
    *flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The reasons why a card cannot be shown.
pub(crate) enum NoCard {
    Starting,
    NoTenant,
    /// The tenant exists, but is not served now.
    NotServed,
    /// The card of the tenant was read too often.
    TooOften(A2aError),
}

/// The app, once it is loaded, and the phase of the server.
pub(crate) struct ReadinessGate {
    /// The limits on requests, answers and connections.
    pub(crate) limits: Arc<ServerLimits>,
    /// The host names and web pages that the server accepts. `None` if it accepts all.
    pub(crate) hosts: Option<Arc<Hosts>>,
    /// The web pages of other origins that may call the server.
    pub(crate) cross_origin: Arc<CrossOrigin>,
    /// True if clients of A2A 0.3 are served too.
    pub(crate) speaks_v0_3: bool,
    /// The access log and the metrics of requests.
    pub(crate) access_log: Arc<AccessLog>,
    /// The TLS of the listeners.
    pub(crate) tls: ListenersTls,
    app: OnceLock<App>,
    draining: AtomicBool,
    stores: StoreProbe,
}

impl ReadinessGate {
    pub(crate) fn new(config: &Config, tls: ListenersTls) -> Self {
        Self {
            limits: ServerLimits::new(&config.server),
            hosts: Hosts::of(config),
            cross_origin: CrossOrigin::new(config),
            speaks_v0_3: config.server.a2a_0_3,
            access_log: AccessLog::new(config.log.access, config.admin.as_ref().map_or(0, |admin| admin.requests)),
            tls,
            app: OnceLock::new(),
            draining: AtomicBool::new(false),
            stores: StoreProbe::default(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        if self.draining.load(Ordering::Relaxed) {
            Phase::Draining
        } else if self.app.get().is_some() {
            Phase::Ready
        } else {
            Phase::Starting
        }
    }

    /// Sets the app and opens the gate. Only the first call has an effect.
    pub(crate) fn open(&self, app: App) -> &App {
        self.app.get_or_init(|| app)
    }

    /// The app in any phase. `None` until it is loaded.
    pub(crate) fn loaded(&self) -> Option<&App> {
        self.app.get()
    }

    pub(crate) fn drain(&self) {
        // No other data depends on the flag, so relaxed ordering is enough. A message that passes the gate at this
        // moment is refused before its turn begins (`serve.rs`, `drain`).
        self.draining.store(true, Ordering::Relaxed);
    }

    /// The app, if the phase allows requests.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] while the server starts or drains.
    pub(crate) fn app(&self) -> Result<&App, A2aError> {
        match (self.phase(), self.app.get()) {
            (Phase::Ready, Some(app)) => Ok(app),
            (phase, _) => {
                access_log::refused(if phase == Phase::Draining { "draining" } else { "starting" });
                Err(A2aError::Overloaded { reason: format!("the server is {phase}") })
            }
        }
    }

    /// Authenticates a caller, and returns the app and the caller's identity. Every binding calls this
    /// function before it reads the body.
    ///
    /// # Errors
    /// When the phase refuses requests, or when authentication fails.
    pub(crate) async fn admit(&self, headers: &HeaderMap, peer: &Peer) -> Result<(&App, Identity), A2aError> {
        // The phase is checked first, because the authenticator is a part of the app.
        let app = self.app()?;
        let mut measured = annex_telemetry::measure(Work::Authentication, "");
        let identified = app.identify(headers, peer).await;
        measured.ends_as(if identified.is_ok() { "ok" } else { "refused" });
        drop(measured);
        let identity = identified?;
        access_log::is_of(&identity.owner.principal);
        Ok((app, identity))
    }

    /// Makes the answer for `/readyz`. The first value is true if requests are served. This is the case if the phase
    /// allows requests, the stores answer, and the config's own agent is not barred.
    pub(crate) async fn readiness(&self) -> (bool, Readiness) {
        let is_ready = self.phase() == Phase::Ready;
        let stores_answer = match self.app.get().filter(|_| is_ready) {
            Some(app) => self.stores.answers(&app.process.tasks).await,
            None => true,
        };
        let readiness = self.shown(stores_answer);
        (is_ready && stores_answer && readiness.barred.is_none(), readiness)
    }

    /// The body for `/readyz`: the phase, and everything that does not work. `/readyz` is public, so the reasons are
    /// only in the log.
    fn shown(&self, stores_answer: bool) -> Readiness {
        let app = self.app.get();
        let failures = app.map(|app| app.installer().failures()).unwrap_or_default();
        let installed = app.map(App::installed);
        let quarantined = installed.iter().flat_map(Installed::quarantined);
        let is_silent = |handler: &RequestHandler| handler.agent.is_reached() == Some(false);
        let is_impaired = |Serving { handler, installer, .. }: &Serving| {
            is_silent(handler)
                || installer.bar().is_some()
                || !installer.failures().is_empty()
                || installer.installed().quarantined().next().is_some()
        };
        let served = app.iter().flat_map(|app| app.installers().tenants_served());
        let degraded = app.filter(|app| is_silent(app.tenants().own())).map(|_| "upstream");
        let failing = app.iter().flat_map(|app| app.installers().failing());
        Readiness {
            phase: self.phase().to_string(),
            compiling: if app.is_none() { compiling() } else { Vec::new() },
            stores_answer,
            barred: app.and_then(|app| app.installer().bar()),
            edition: app.map(|app| app.installer().publisher().current().extensions.number),
            failed: failures.into_iter().map(|failure| failure.source).collect(),
            quarantined: quarantined.map(ToString::to_string).collect(),
            degraded: degraded.into_iter().collect(),
            impaired_tenants: served.filter(|(_, serving)| is_impaired(serving)).count() + failing.count(),
        }
    }

    /// The set whose card a tenant has. Without a name, the set of the config's own agent.
    pub(crate) async fn card(&self, tenant: Option<&str>) -> Result<Arc<PublishedSet>, NoCard> {
        // The card is public and does not depend on the phase. It can be read while the server drains.
        let app = self.app.get().ok_or(NoCard::Starting)?;
        let count = || tenant.and_then(|name| app.process.quotas.admit_card_read(name));
        // A tenant with a known quota is counted before it is loaded, so that excess reads do not load it.
        let counted = count().transpose().map_err(NoCard::TooOften)?;
        let installer = app.installers().of(tenant).await.ok_or(NoCard::NoTenant)?.map_err(|_| NoCard::NotServed)?;
        if counted.is_none() {
            count().transpose().map_err(NoCard::TooOften)?;
        }
        // A card of a barred agent could declare extensions that other processes no longer serve.
        if installer.bar().is_some() {
            return Err(NoCard::NotServed);
        }
        Ok(installer.publisher().current())
    }
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn a_component_is_shown_without_the_folders_that_it_lies_in() {
        for (component, shown) in [
            ("/srv/secret-project/badge.wasm", "badge.wasm"),
            ("../badge.wasm", "badge.wasm"),
            ("timestamp", "timestamp"),
            ("..", ""),
            ("", ""),
        ] {
            assert_eq!(file_name(component), shown, "{component:?}");
        }
    }
}
