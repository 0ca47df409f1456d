//! The admin API's paths for sessions.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;

use super::caller::{AdminCaller, of_tenant};
use super::error::AdminError;
use super::shared::{Admin, OfTenant, read_small, whole};
use crate::admin_api::sessions::{
    DeletedKeys, DeletedSession, DeletedUserState, Events, KeysToDelete, List, Session, SharedState,
};
use crate::stores::sessions::{SessionFilter, SessionName, SessionsError};
use crate::stores::state::StateOwner;

/// The number of sessions or events in an answer if the query sets none.
const SHOWN: usize = 100;
/// The maximum size of a list of keys in a request body, in bytes.
const MAX_KEYS_BYTES: usize = 1 << 20;

pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/v1/sessions", get(list))
        .route("/v1/sessions/{context}", get(show).delete(delete))
        .route("/v1/sessions/{context}/events", get(events))
        .route("/v1/state", get(state).delete(delete_user_state))
        .route("/v1/state/delete", post(delete_keys))
}

/// The query of a request for the list of sessions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    tenant: Option<String>,
    user: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

/// The query of a request for a session. Together with the context in the path, it names the session. `last` is the
/// maximum number of events in the answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Of {
    tenant: Option<String>,
    user: Option<String>,
    last: Option<usize>,
}

impl Of {
    fn name(self, context: String) -> SessionName {
        SessionName { tenant: self.tenant, user: self.user, context }
    }
}

async fn list(State(admin): State<Arc<Admin>>, Query(listing): Query<ListQuery>) -> Result<Json<List>, AdminError> {
    let ListQuery { tenant, user, after, limit } = listing;
    admin.know(tenant.as_deref()).await;
    let filter = SessionFilter { tenant, user, after, limit: limit.unwrap_or(SHOWN) };
    Ok(Json(admin.sessions.list(filter).await?))
}

async fn show(
    State(admin): State<Arc<Admin>>,
    Path(context): Path<String>,
    Query(of): Query<Of>,
) -> Result<Json<Session>, AdminError> {
    admin.know(of.tenant.as_deref()).await;
    Ok(Json(admin.sessions.show(&of.name(context)).await?))
}

async fn events(
    State(admin): State<Arc<Admin>>,
    Path(context): Path<String>,
    Query(of): Query<Of>,
) -> Result<Json<Events>, AdminError> {
    admin.know(of.tenant.as_deref()).await;
    let last = of.last.unwrap_or(SHOWN);
    Ok(Json(admin.sessions.events(&of.name(context), last).await?))
}

async fn delete(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Path(context): Path<String>,
    Query(of): Query<Of>,
) -> Result<Json<DeletedSession>, AdminError> {
    admin.know(of.tenant.as_deref()).await;
    let told = format!("session {context:?}{} was deleted", of_tenant(of.tenant.as_deref()));
    let name = of.name(context);
    Ok(Json(whole(caller, async move { admin.sessions.delete(&name).await }, |_| told).await?))
}

/// The query of a request for shared state. It names the tenant, and the user who owns the `user:` keys. Without
/// `user`, this is the anonymous user of `context`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfState {
    tenant: Option<String>,
    user: Option<String>,
    context: Option<String>,
}

/// The query that names a user.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfUser {
    tenant: Option<String>,
    user: Option<String>,
}

async fn state(State(admin): State<Arc<Admin>>, Query(of): Query<OfState>) -> Result<Json<SharedState>, AdminError> {
    let OfState { tenant, user, context } = of;
    admin.know(tenant.as_deref()).await;
    Ok(Json(admin.sessions.shared_state(&StateOwner { tenant, user, context }).await?))
}

async fn delete_keys(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Query(of): Query<OfTenant>,
    body: Body,
) -> Result<Json<DeletedKeys>, AdminError> {
    admin.know(of.tenant.as_deref()).await;
    let KeysToDelete { keys, user, context } = read_small(body, MAX_KEYS_BYTES).await?;
    let told = format!("{} keys of state{} were deleted", keys.len(), of_tenant(of.tenant.as_deref()));
    let owner = StateOwner { tenant: of.tenant, user, context };
    Ok(Json(whole(caller, async move { admin.sessions.delete_keys(&owner, keys).await }, |_| told).await?))
}

async fn delete_user_state(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Query(of): Query<OfUser>,
) -> Result<Json<DeletedUserState>, AdminError> {
    let OfUser { tenant, user } = of;
    let missing = || AdminError::invalid("`user` is missing; name the user as a list of sessions shows it");
    let user = user.ok_or_else(missing)?;
    admin.know(tenant.as_deref()).await;
    let told = format!("all keys of user {user:?}{} were deleted", of_tenant(tenant.as_deref()));
    Ok(Json(whole(caller, async move { admin.sessions.delete_user_state(tenant, user).await }, |_| told).await?))
}

impl From<SessionsError> for AdminError {
    fn from(error: SessionsError) -> Self {
        let (status, code) = match &error {
            SessionsError::NoTenant { .. } => (StatusCode::NOT_FOUND, "no_tenant"),
            SessionsError::NotFound { .. } => (StatusCode::NOT_FOUND, "no_session"),
            SessionsError::SeveralUsers { .. } => (StatusCode::CONFLICT, "several_users"),
            SessionsError::Busy { .. } => (StatusCode::CONFLICT, "busy"),
            SessionsError::NoKeys | SessionsError::NoUserState { .. } => (StatusCode::NOT_FOUND, "no_state"),
            SessionsError::NoPlace { .. } | SessionsError::NoOwner { .. } => {
                (StatusCode::BAD_REQUEST, "invalid_request")
            }
            SessionsError::Store(_)
            | SessionsError::BrokeOff(_)
            | SessionsError::Open(_)
            | SessionsError::Config(_) => {
                return Self::internal(&error);
            }
        };
        Self::new(status, code, error.to_string())
    }
}
