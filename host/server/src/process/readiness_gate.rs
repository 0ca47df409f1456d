//! The gate in front of the request handler: it lets no request through while the server starts and drains.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use annex_operations::request_handler::RequestHandler;
use annex_operations::service_parameters::Identity;
use annex_protocol::A2aError;
use annex_runtime::{Compilation, Installed, compilations};
use axum::http::HeaderMap;
use serde::Serialize;

use crate::access_log::{self, AccessLog};
use crate::app::App;
use crate::config::Config;
use crate::connections::limits::ServerLimits;
use crate::installation::encoded_card::EncodedCard;
use crate::process::cross_origin::CrossOrigin;
use crate::process::hosts::Hosts;
use crate::process::store_probe::StoreProbe;
use crate::tenants::Serving;

/// The phase that the server is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Components are being compiled.
    Starting,
    /// Messages are taken.
    Ready,
    /// Running turns finish; no new ones begin.
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

/// The answer of `/readyz`.
#[derive(Serialize)]
pub(crate) struct Readiness {
    phase: String,
    /// The components that are being compiled while the server starts. Later on the log tells of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compiling: Vec<Compiling>,
    /// False when tasks or sessions cannot be read; absent otherwise.
    #[serde(skip_serializing_if = "is_true")]
    stores_answer: bool,
    /// Why the agent of the config itself is not served, although the server is ready otherwise; absent where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    barred: Option<&'static str>,
    /// The edition in force; absent while starting.
    #[serde(skip_serializing_if = "Option::is_none")]
    edition: Option<u64>,
    /// The sources of extensions whose last load failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<String>,
    /// URIs of extensions that are quarantined. The server takes messages all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    quarantined: Vec<String>,
    /// What answers less than it could although messages are taken: `upstream`, when the agent behind this server did not answer
    /// what it was asked last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    degraded: Vec<&'static str>,
    /// The number of tenants that have such sources or extensions, whose upstream does not answer, or that are not served. Their names are not shown, because anybody may read
    /// this.
    #[serde(skip_serializing_if = "is_zero")]
    impaired_tenants: usize,
}

/// A component that is being compiled.
#[derive(Serialize)]
struct Compiling {
    /// The name of its file; absent for that of a tenant, whose names are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    component: Option<String>,
    /// The time that it has taken so far.
    seconds: u64,
}

fn compiling() -> Vec<Compiling> {
    let of = |compilation: &Compilation| Compiling {
        component: compilation.tenant.is_empty().then(|| file_name(&compilation.name)),
        seconds: compilation.since.elapsed().as_secs(),
    };
    compilations().iter().map(|compilation| of(compilation)).collect()
}

/// The last part of the path that a config names a component by. Anybody may read this, and folders are nobody's business.
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

/// The reasons for which there is no card to show.
pub(crate) enum NoCard {
    Starting,
    NoTenant,
    /// Nothing serves the tenant for now.
    NotServed,
    /// The card of the tenant was read too often.
    TooOften(A2aError),
}

/// The app, once it is loaded, and whether it still takes requests.
pub(crate) struct ReadinessGate {
    /// The limits on what clients send and get.
    pub(crate) limits: Arc<ServerLimits>,
    /// The names under which the server may be called; `None` for any.
    pub(crate) hosts: Option<Arc<Hosts>>,
    /// The web pages of other origins that may call.
    pub(crate) cross_origin: Arc<CrossOrigin>,
    /// True if clients of A2A 0.3 are served too.
    pub(crate) speaks_v0_3: bool,
    /// The lines and the numbers of requests.
    pub(crate) access_log: Arc<AccessLog>,
    app: OnceLock<App>,
    draining: AtomicBool,
    stores: StoreProbe,
}

impl ReadinessGate {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            limits: ServerLimits::new(&config.server),
            hosts: Hosts::of(config),
            cross_origin: CrossOrigin::new(config),
            speaks_v0_3: config.server.a2a_0_3,
            access_log: AccessLog::new(config.log.access),
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

    /// Lets requests through to the app. Loading happens once.
    pub(crate) fn open(&self, app: App) -> &App {
        self.app.get_or_init(|| app)
    }

    pub(crate) fn drain(&self) {
        // No other data hangs on the flag. A message that slips past it is refused when its turn is to begin
        // (`serve.rs`, `drain`).
        self.draining.store(true, Ordering::Relaxed);
    }

    /// The app, unless the phase forbids requests.
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

    /// The app and who calls, for every binding, before anything of a body is read.
    pub(crate) async fn admit(&self, headers: &HeaderMap) -> Result<(&App, Identity), A2aError> {
        // The phase comes first, because the authenticator is a part of the app.
        let app = self.app()?;
        let identity = app.identify(headers).await?;
        access_log::is_of(&identity.owner.principal);
        Ok((app, identity))
    }

    /// True if requests are served: the phase allows them, the stores answer, and what is in force can be served.
    pub(crate) async fn readiness(&self) -> (bool, Readiness) {
        let is_ready = self.phase() == Phase::Ready;
        let stores_answer = match self.app.get().filter(|_| is_ready) {
            Some(app) => self.stores.answers(app.tenants().own()).await,
            None => true,
        };
        let readiness = self.shown(stores_answer);
        (is_ready && stores_answer && readiness.barred.is_none(), readiness)
    }

    /// The phase, and what is wrong although requests are taken. Anybody may read it, so it gives no reasons.
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

    /// The card of the tenant; without a name that of the agent of the config itself.
    pub(crate) async fn card(&self, tenant: Option<&str>) -> Result<Arc<EncodedCard>, NoCard> {
        // The card is public and asks for no phase: it can also be read while the server drains.
        let app = self.app.get().ok_or(NoCard::Starting)?;
        let count = || tenant.and_then(|name| app.quotas.admit_card_read(name));
        // Before the tenant is loaded for it, where its quota is known without that.
        let counted = count().transpose().map_err(NoCard::TooOften)?;
        let installer = app.installers().of(tenant).await.ok_or(NoCard::NoTenant)?.map_err(|_| NoCard::NotServed)?;
        if counted.is_none() {
            count().transpose().map_err(NoCard::TooOften)?;
        }
        // It would declare what other processes do not serve any more.
        if installer.bar().is_some() {
            return Err(NoCard::NotServed);
        }
        Ok(Arc::clone(&installer.publisher().current().card))
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
