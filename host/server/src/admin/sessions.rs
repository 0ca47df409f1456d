//! The admin API's paths for sessions.

use std::sync::Arc;

use annex_operations::operation::Operation;
use annex_operations::request_handler::RequestHandler;
use annex_operations::service_parameters::ServiceParameters;
use annex_protocol::{CancelTaskRequest, Owner, TaskId};
use axum::body::Body;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;

use super::action::Action;
use super::caller::{AdminCaller, of_tenant};
use super::error::AdminError;
use super::shared::{Admin, OfTenant, read_small, whole};
use crate::admin_api::sessions::{
    DeletedKeys, DeletedSession, DeletedUserState, Events, KeysToDelete, List, Session, SharedState,
};
use crate::audit::record::Subject;
use crate::stores::sessions::tasks::SessionTask;
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
    let filter = SessionFilter { tenant, user, after, limit: limit.unwrap_or(SHOWN) };
    Ok(Json(admin.list_sessions(filter).await?))
}

async fn show(
    State(admin): State<Arc<Admin>>,
    Path(context): Path<String>,
    Query(of): Query<Of>,
) -> Result<Json<Session>, AdminError> {
    Ok(Json(admin.session(&of.name(context)).await?))
}

async fn events(
    State(admin): State<Arc<Admin>>,
    Path(context): Path<String>,
    Query(of): Query<Of>,
) -> Result<Json<Events>, AdminError> {
    let last = of.last.unwrap_or(SHOWN);
    Ok(Json(admin.session_events(&of.name(context), last).await?))
}

async fn delete(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Path(context): Path<String>,
    Query(of): Query<Of>,
) -> Result<Json<DeletedSession>, AdminError> {
    Ok(Json(admin.delete_session(caller, of.name(context)).await?))
}

impl Admin {
    /// Lists sessions without their values.
    pub(crate) async fn list_sessions(&self, filter: SessionFilter) -> Result<List, AdminError> {
        self.know(filter.tenant.as_deref()).await;
        Ok(self.sessions.list(filter).await?)
    }

    /// One session with its state. Values that `sessions.hide` names are hidden.
    pub(crate) async fn session(&self, name: &SessionName) -> Result<Session, AdminError> {
        self.know(name.tenant.as_deref()).await;
        Ok(self.sessions.show(name).await?)
    }

    /// The last events of a session.
    pub(crate) async fn session_events(&self, name: &SessionName, last: usize) -> Result<Events, AdminError> {
        self.know(name.tenant.as_deref()).await;
        Ok(self.sessions.events(name, last).await?)
    }

    /// The newest tasks of a session. `name` must have the user of the session.
    pub(crate) async fn session_tasks(&self, name: &SessionName) -> Result<Vec<SessionTask>, AdminError> {
        self.know(name.tenant.as_deref()).await;
        Ok(self.sessions.tasks(name).await?)
    }

    /// Cancels a task, as its owner does with CancelTask. `handler` serves the tenant of the owner.
    pub(crate) async fn cancel_task(
        &self,
        caller: AdminCaller,
        handler: Arc<RequestHandler>,
        owner: Owner,
        task: TaskId,
    ) -> Result<(), AdminError> {
        let told = format!("task {task} was cancelled");
        let tenant = Some(owner.tenant.clone()).filter(|tenant| !tenant.is_empty());
        let subject =
            Subject { tenant, user: Some(owner.principal.clone()), task: Some(task.to_string()), ..Subject::default() };
        let caller = caller.about(Action::CancelTask, subject);
        let cancelling = async move {
            let call = ServiceParameters { owner, ..ServiceParameters::default() };
            let request = CancelTaskRequest { id: task, ..CancelTaskRequest::default() };
            match handler.perform(&call, Operation::CancelTask(request)).await {
                Ok(_) => Ok(()),
                Err(error) => Err(AdminError::new(StatusCode::CONFLICT, "not_cancelled", error.to_string())),
            }
        };
        whole(caller, cancelling, |()| told).await
    }

    /// The owner of a session and its tasks. `name` must have the user of the session.
    pub(crate) fn session_owner(&self, name: &SessionName) -> Result<Owner, AdminError> {
        Ok(self.sessions.key(name)?.owner().clone())
    }

    /// Deletes a session and its events.
    pub(crate) async fn delete_session(
        self: Arc<Self>,
        caller: AdminCaller,
        name: SessionName,
    ) -> Result<DeletedSession, AdminError> {
        self.know(name.tenant.as_deref()).await;
        let told = format!("session {:?}{} was deleted", name.context, of_tenant(name.tenant.as_deref()));
        let SessionName { tenant, user, context } = name.clone();
        let subject = Subject { tenant, user, context: Some(context), ..Subject::default() };
        let caller = caller.about(Action::DeleteSession, subject);
        whole(caller, async move { self.sessions.delete(&name).await }, |_| told).await
    }
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
    let (tenant, keys_count) = (of.tenant.clone(), Some(keys.len()));
    let subject =
        Subject { tenant, user: user.clone(), context: context.clone(), keys: keys_count, ..Subject::default() };
    let caller = caller.about(Action::DeleteState, subject);
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
    let subject = Subject { tenant: tenant.clone(), user: Some(user.clone()), ..Subject::default() };
    let caller = caller.about(Action::DeleteState, subject);
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
