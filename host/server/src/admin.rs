//! The admin API: what is installed, and changes of it, on a listener of its own.
//!
//! Every request must name a known host, so that no web page can reach the API by a name of its own, and must have the
//! token. Errors are `{"error": {"code", "message"}}`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::admin_api::extensions::{Details, List, Log, Reloaded, Removed};
use crate::admin_api::{Addition, Rollback};
use crate::connections::listener::ConnectionLimits;

mod error;
mod exposition;
mod metrics;
mod recording;
mod sessions;
mod shadow;
mod shared;
mod tenants;
mod token;
mod usage;
mod view;

use error::AdminError;
pub(crate) use shared::Admin;
use shared::{AgreedChange, OfTenant, read, read_optional, whole};
pub use token::TokenError;
pub(crate) use token::check_token;

/// Few clients talk to the API, and a body may be large.
pub(crate) const CONNECTIONS: ConnectionLimits = ConnectionLimits {
    connections: 256,
    per_address: 256,
    head: Duration::from_secs(5),
    write: Duration::from_secs(30),
    streams: 8,
};

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
        .merge(tenants::routes())
        .merge(usage::routes())
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
    let installer = admin.installer(&of).await?;
    let mut list = List::of(&installer);
    if of.tenant.is_none() {
        list.add_tenants(&admin.installers);
    }
    Ok(Json(list))
}

async fn show(
    State(admin): State<Arc<Admin>>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
) -> Result<Json<Details>, AdminError> {
    let installer = admin.installer(&of).await?;
    Ok(Json(Details::of(&installer, &installer.find(&id)?)))
}

async fn log(
    State(admin): State<Arc<Admin>>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
) -> Result<Json<Log>, AdminError> {
    Ok(Json(Log::of(&admin.installer(&of).await?.find(&id)?)))
}

async fn add(
    State(admin): State<Arc<Admin>>,
    Query(change): Query<AgreedChange>,
    body: Body,
) -> Result<(StatusCode, Json<Details>), AdminError> {
    let (of, consent) = change.parts();
    // An unknown tenant is refused before a body is read, which may be large.
    let here = admin.changeable(&of).await?;
    let Addition { name, component, settings } = read(body).await?;
    let component = BASE64.decode(component).map_err(|_| AdminError::invalid("`component` is not base64"))?;
    let installer = Arc::clone(&here);
    let added = whole(async move { installer.add(&name, component, settings.as_deref(), consent).await }).await?;
    Ok((StatusCode::CREATED, Json(Details::of(&here, &added))))
}

async fn remove(
    State(admin): State<Arc<Admin>>,
    Query(change): Query<AgreedChange>,
    Path(id): Path<String>,
) -> Result<Json<Removed>, AdminError> {
    let (of, consent) = change.parts();
    let here = admin.changeable(&of).await?;
    let installer = Arc::clone(&here);
    let uri = here.find(&id)?.uri().clone();
    let removed = whole(async move { installer.remove(&uri, consent).await }).await?;
    Ok(Json(Removed::of(&here, &removed)))
}

async fn roll_back(
    State(admin): State<Arc<Admin>>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Json<Details>, AdminError> {
    let here = admin.changeable(&of).await?;
    let installer = Arc::clone(&here);
    let uri = here.find(&id)?.uri().clone();
    let Rollback { to } = read_optional(body).await?;
    let version = whole(async move { installer.roll_back(&uri, to).await }).await?;
    Ok(Json(Details::of(&here, &version)))
}

/// Without a tenant all configs are read again.
async fn reload(State(admin): State<Arc<Admin>>, Query(of): Query<OfTenant>) -> Result<Json<Reloaded>, AdminError> {
    let all = Arc::clone(&admin.installers);
    let installer = admin.installer(&of).await?;
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
