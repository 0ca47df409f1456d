//! The admin API: shows and changes the installed extensions, tenants, sessions and shadows, on a listener of its own.
//!
//! Every request must carry the token and name an allowed host. The check of the host keeps web pages from reaching the
//! API through DNS rebinding. Errors are `{"error": {"code", "message"}}`.

use std::sync::Arc;

use annex_registry::is_reference;
use axum::body::Body;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::access_log::AccessLog;
use crate::admin_api::extensions::{Details, List, Log, ReloadResult, RemovedExtension};
use crate::admin_api::{Addition, Rollback};
use crate::connections::network::Network;
use crate::installation::installer::AddedComponent;
use crate::process::listeners_tls::ListenersTls;

pub(crate) mod access;
pub(crate) mod action;
pub(crate) mod caller;
mod components;
pub(crate) mod error;
pub(crate) mod exposition;
pub(crate) mod extensions;
pub(crate) mod metrics;
mod recording;
pub(crate) mod replicas;
pub(crate) mod requests;
pub(crate) mod roles;
mod sessions;
pub(crate) mod shadow;
pub(crate) mod shared;
mod strangers;
mod tenant_changes;
mod tenants;
mod token;
mod usage;
mod view;

use action::Action;
use caller::AdminCaller;
use error::{AdminError, RefusalReason};
use extensions::NewComponent;
use roles::{Holder, Permission, tenant_of};
pub(crate) use shared::{Admin, AdminParts};
use shared::{AgreedChange, OfTenant, read, read_optional};
pub use token::TokenError;
pub(crate) use token::wrong_tokens;

/// All routes of the API.
pub(crate) fn router(admin: Arc<Admin>, requests: Arc<AccessLog>, tls: ListenersTls) -> Router {
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
        .merge(replicas::routes())
        .merge(requests::routes().layer(Extension(Arc::clone(&requests.recent))))
        .merge(components::routes())
        .route(METRICS, get(metrics).layer(Extension((requests, tls))))
        .fallback(async || AdminError::new(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            AdminError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "the path does not take this method")
        })
        // The guard also covers the fallbacks, so that no path reveals without the token whether it exists.
        .layer(from_fn_with_state(Arc::clone(&admin), guard))
        .with_state(admin)
}

/// Serves `/metrics` alone, for its own listener.
pub(crate) fn metrics_router(admin: Arc<Admin>, requests: Arc<AccessLog>, tls: ListenersTls) -> Router {
    Router::new()
        .route(METRICS, get(metrics).layer(Extension((requests, tls))))
        .fallback(async || (StatusCode::NOT_FOUND, "there is nothing here but /metrics\n"))
        .layer(from_fn_with_state(Arc::clone(&admin), guard_metrics))
        .with_state(admin)
}

const METRICS: &str = "/metrics";

/// Refuses a request for `/metrics` if its `Host` is foreign, or if it lacks a token that the config requires.
async fn guard_metrics(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let rules = admin.access.rules();
    if rules.checks_metrics_hosts
        && let Err(foreign) = rules.hosts.check(&request)
    {
        return wrong_host(&foreign);
    }
    if !rules.reads_metrics_alone(request.headers()) {
        return AdminError::unauthenticated().into_response();
    }
    next.run(request).await
}

pub(crate) fn wrong_host(foreign: &str) -> Response {
    let message = format!("{foreign:?} is another host; use a loopback name, or add the name to admin.hosts");
    AdminError::new(StatusCode::FORBIDDEN, "wrong_host", message).into_response()
}

/// Refuses a request to the API with a foreign `Host` or without a valid token.
async fn guard(
    State(admin): State<Arc<Admin>>,
    Extension(network): Extension<Network>,
    mut request: Request,
    next: Next,
) -> Response {
    let rules = admin.access.rules();
    // The token does not help a foreign `Host`: DNS rebinding can lead the operator's browser here.
    if let Err(foreign) = rules.hosts.check(&request) {
        admin.strangers.were_refused(&network, &request, StatusCode::FORBIDDEN);
        return wrong_host(&foreign);
    }
    if request.uri().path() == METRICS && rules.reads_metrics(request.headers()) {
        return next.run(request).await;
    }
    let Some(holder) = rules.tokens.holder_of(request.headers()) else {
        admin.strangers.were_refused(&network, &request, StatusCode::UNAUTHORIZED);
        return AdminError::unauthenticated().into_response();
    };
    let refused = check_roles(&holder, &request);
    let caller = AdminCaller::new(holder, network.address(), &request, admin.audit.clone());
    request.extensions_mut().insert(caller.clone());
    let response = match refused {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    // Successful changes are logged where they are made, even if the client has gone away.
    if !response.status().is_success() {
        let reason = response.extensions().get::<RefusalReason>().map(|RefusalReason(reason)| &**reason);
        caller.has_failed(response.status(), reason, None).await;
    }
    response
}

/// Checks that the holder of a token may send this request.
fn check_roles(holder: &Holder, request: &Request) -> Result<(), AdminError> {
    let action = Action::of(request.method(), request.uri().path());
    let tenant = tenant_of(request.uri()).filter(|_| !action.is_some_and(Action::is_of_server));
    Ok(holder.check(action.map_or(Permission::Read, Action::permission), tenant.as_deref())?)
}

async fn list(State(admin): State<Arc<Admin>>, Query(of): Query<OfTenant>) -> Result<Json<List>, AdminError> {
    Ok(Json(admin.extensions(&of).await?))
}

async fn show(
    State(admin): State<Arc<Admin>>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
) -> Result<Json<Details>, AdminError> {
    Ok(Json(admin.extension(&of, &id).await?))
}

async fn log(
    State(admin): State<Arc<Admin>>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
) -> Result<Json<Log>, AdminError> {
    Ok(Json(admin.extension_log(&of, &id).await?))
}

async fn add(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Query(change): Query<AgreedChange>,
    body: Body,
) -> Result<(StatusCode, Json<Details>), AdminError> {
    let (of, consent) = change.parts();
    // The tenant is checked before the body is read, because the body may be large.
    admin.changeable(&of).await?;
    let added = admin.add_extension(caller, of, new_component(read(body).await?)?, consent).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

/// The component that the body of a request brings or names.
fn new_component(addition: Addition) -> Result<NewComponent, AdminError> {
    match addition {
        Addition { name: Some(name), component: Some(component), reference: None, settings } => {
            let bytes = BASE64.decode(component).map_err(|_| AdminError::invalid("`component` is not base64"))?;
            Ok(NewComponent { name, component: AddedComponent::Bytes(bytes), settings })
        }
        Addition { name, component: None, reference: Some(reference), settings } if is_reference(&reference) => {
            let own = AddedComponent::name_of(&reference).map_err(|error| AdminError::invalid(error.to_string()))?;
            let component = AddedComponent::Reference { reference, approved: None };
            Ok(NewComponent { name: name.unwrap_or(own), component, settings })
        }
        _ => Err(AdminError::invalid(
            "send `component` with the file in base64 and `name`, or `reference` with a reference of annex.lock \
             (`oci://…`)",
        )),
    }
}

async fn remove(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Query(change): Query<AgreedChange>,
    Path(id): Path<String>,
) -> Result<Json<RemovedExtension>, AdminError> {
    let (of, consent) = change.parts();
    Ok(Json(admin.remove_extension(caller, of, &id, consent).await?))
}

async fn roll_back(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Json<Details>, AdminError> {
    admin.changeable(&of).await?.find(&id)?;
    let Rollback { to } = read_optional(body).await?;
    Ok(Json(admin.roll_back_extension(caller, of, &id, to).await?))
}

/// Reads all configs again, or only the extensions of the tenant that the query names.
async fn reload(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Query(of): Query<OfTenant>,
) -> Result<Json<ReloadResult>, AdminError> {
    Ok(Json(admin.reload(caller, of).await?))
}

async fn metrics(
    State(admin): State<Arc<Admin>>,
    Extension((log, tls)): Extension<(Arc<AccessLog>, ListenersTls)>,
) -> Response {
    let sources = metrics::Sources {
        process: &admin.process,
        runtime: &admin.runtime,
        numbers: &log.numbers,
        own_agent: &*admin.agent,
        tls: &tls,
    };
    let text = metrics::text(&admin.installers, &sources);
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
