//! The admin API: what is installed, and changes of it, on a listener of its own.
//!
//! Every request must name a known host, so that no web page can reach the API by a name of its own, and must have the
//! token. Errors are `{"error": {"code", "message"}}`.

use std::sync::Arc;
use std::time::Duration;

use annex_operations::counters::Counters;
use annex_operations::request_handler::RequestHandler;
use annex_runtime::MAX_COMPONENT_BYTES;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin_api::extensions::{Details, List, Log, Reloaded, Removed};
use crate::admin_api::{Addition, Rollback};
use crate::config::AdminConfig;
use crate::connections::listener::ConnectionLimits;
use crate::installation::installer::{InstallError, Installer};
use crate::process::hosts::Hosts;
use crate::stores::sessions::Sessions;
use crate::tenants::Installers;

mod error;
mod exposition;
mod metrics;
mod recording;
mod sessions;
mod shadow;
mod token;
mod view;

use error::AdminError;
use token::Token;
pub use token::TokenError;

/// The longest time that a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest body: a component in base64 with its settings.
const MAX_BODY_BYTES: usize = MAX_COMPONENT_BYTES / 3 * 4 + (1 << 20);
/// Few clients talk to the API, and a body may be large.
pub(crate) const CONNECTIONS: ConnectionLimits = ConnectionLimits {
    connections: 256,
    per_address: 256,
    head: Duration::from_secs(5),
    write: Duration::from_secs(30),
    streams: 8,
};

/// The parts that the API shows and changes, and the token and the host names that it asks for.
pub(crate) struct Admin {
    installers: Arc<Installers>,
    sessions: Sessions,
    running: TaskTracker,
    counters: Arc<Counters>,
    token: Token,
    hosts: Hosts,
    /// `admin.allow_recording`
    allow_recording: bool,
    /// Ends recordings when the server does.
    closing: CancellationToken,
}

impl Admin {
    /// Reads the token. `folder` is where a relative `token_file` starts.
    pub(crate) fn new(
        config: &AdminConfig,
        folder: &std::path::Path,
        installers: Arc<Installers>,
        sessions: Sessions,
        handler: &RequestHandler,
    ) -> Result<Self, TokenError> {
        let running = handler.running.clone();
        let counters = Arc::clone(&handler.counters);
        Ok(Self {
            installers,
            sessions,
            running,
            counters,
            token: Token::read(config, folder)?,
            hosts: Hosts::of_admin(config),
            allow_recording: config.allow_recording,
            closing: handler.closing.clone(),
        })
    }

    /// The installer of the tenant that the query names.
    fn installer(&self, of: &OfTenant) -> Result<&Arc<Installer>, AdminError> {
        let unknown = || {
            let message = format!("there is no tenant {:?}", of.tenant.as_deref().unwrap_or_default());
            AdminError::new(StatusCode::NOT_FOUND, "no_tenant", message)
        };
        self.installers.of(of.tenant.as_deref()).ok_or_else(unknown)
    }
}

/// The query of a request: whose extensions it is about. Without a tenant those of the config itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfTenant {
    tenant: Option<String>,
}

/// All routes of the API.
pub(crate) fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/v1/extensions", get(list).post(add))
        .route("/v1/extensions/{id}", get(show).delete(remove))
        .route("/v1/extensions/{id}/rollback", post(roll_back))
        .route("/v1/extensions/{id}/log", get(log))
        .route("/v1/extensions/{id}/record", post(recording::record))
        .merge(shadow::routes())
        .route("/v1/reload", post(reload))
        .merge(sessions::routes())
        .route("/metrics", get(metrics))
        .fallback(async || AdminError::new(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            AdminError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "the path does not take this method")
        })
        // Around the fallbacks too: without the token no path tells whether it exists.
        .layer(from_fn_with_state(Arc::clone(&admin), guard))
        .with_state(admin)
}

/// Refuses a request that reached the API by a foreign name, or has no token.
async fn guard(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    // A foreign name is refused even with the token: DNS rebinding can lead the operator's browser here.
    if let Err(foreign) = admin.hosts.check(&request) {
        let message = format!("{foreign:?} is another host; use a loopback name, or add the name to admin.hosts");
        return AdminError::new(StatusCode::FORBIDDEN, "wrong_host", message).into_response();
    }
    if !admin.token.is_on(request.headers()) {
        return AdminError::unauthenticated().into_response();
    }
    next.run(request).await
}

async fn list(State(admin): State<Arc<Admin>>, Query(of): Query<OfTenant>) -> Result<Json<List>, AdminError> {
    let tenants = admin.installers.tenants().filter(|_| of.tenant.is_none());
    let tenants = tenants.map(|(name, _)| name.to_owned()).collect();
    Ok(Json(List::of(admin.installer(&of)?, tenants)))
}

async fn show(
    State(admin): State<Arc<Admin>>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
) -> Result<Json<Details>, AdminError> {
    let installer = admin.installer(&of)?;
    Ok(Json(Details::of(installer, &installer.find(&id)?)))
}

async fn log(
    State(admin): State<Arc<Admin>>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
) -> Result<Json<Log>, AdminError> {
    Ok(Json(Log::of(&admin.installer(&of)?.find(&id)?)))
}

async fn add(
    State(admin): State<Arc<Admin>>,
    Query(of): Query<OfTenant>,
    body: Body,
) -> Result<(StatusCode, Json<Details>), AdminError> {
    // An unknown tenant is refused before a body is read, which may be large.
    let here = Arc::clone(admin.installer(&of)?);
    let Addition { name, component, settings } = read(body).await?;
    let component = BASE64.decode(component).map_err(|_| AdminError::invalid("`component` is not base64"))?;
    let installer = Arc::clone(&here);
    let added = whole(async move { installer.add(&name, component, settings.as_deref()).await }).await?;
    Ok((StatusCode::CREATED, Json(Details::of(&here, &added))))
}

async fn remove(
    State(admin): State<Arc<Admin>>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
) -> Result<Json<Removed>, AdminError> {
    let here = Arc::clone(admin.installer(&of)?);
    let installer = Arc::clone(&here);
    let uri = here.find(&id)?.uri().clone();
    let removed = whole(async move { installer.remove(&uri).await }).await?;
    Ok(Json(Removed::of(&here, &removed)))
}

async fn roll_back(
    State(admin): State<Arc<Admin>>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Json<Details>, AdminError> {
    let here = Arc::clone(admin.installer(&of)?);
    let installer = Arc::clone(&here);
    let uri = here.find(&id)?.uri().clone();
    let Rollback { to } = read_optional(body).await?;
    let version = whole(async move { installer.roll_back(&uri, to).await }).await?;
    Ok(Json(Details::of(&here, &version)))
}

/// Without a tenant all configs are read again.
async fn reload(State(admin): State<Arc<Admin>>, Query(of): Query<OfTenant>) -> Result<Json<Reloaded>, AdminError> {
    let all = Arc::clone(&admin.installers);
    let installer = Arc::clone(admin.installer(&of)?);
    let reloaded = match of.tenant {
        Some(_) => whole(async move { installer.reload().await }).await?,
        None => whole(async move { all.reload().await }).await?,
    };
    Ok(Json(Reloaded::from(reloaded)))
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let text = metrics::text(&admin.installers, &admin.counters, admin.running.len());
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// Runs a change to its end, also if the client goes away meanwhile.
async fn whole<T: Send + 'static>(
    change: impl Future<Output = Result<T, InstallError>> + Send + 'static,
) -> Result<T, AdminError> {
    // A client that hangs up drops this future. A change that ended with it could leave the folder and the set apart.
    match tokio::spawn(change).await {
        Ok(done) => Ok(done?),
        Err(panicked) => Err(AdminError::internal(&panicked)),
    }
}

async fn read<T: DeserializeOwned>(body: Body) -> Result<T, AdminError> {
    decode(&read_bytes(body).await?)
}

async fn read_optional<T: DeserializeOwned + Default>(body: Body) -> Result<T, AdminError> {
    let bytes = read_bytes(body).await?;
    if bytes.is_empty() { Ok(T::default()) } else { decode(&bytes) }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, AdminError> {
    serde_json::from_slice(bytes).map_err(|error| AdminError::invalid(format!("the body: {error}")))
}

async fn read_bytes(body: Body) -> Result<Bytes, AdminError> {
    match timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("a component may have {} MiB", MAX_COMPONENT_BYTES >> 20);
            Err(AdminError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message))
        }
        Ok(Err(_)) => Err(AdminError::invalid("the body broke off")),
        Err(_) => Err(AdminError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body took too long")),
    }
}
