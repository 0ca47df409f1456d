//! The admin API's paths for tenants. Every change is conditional: `If-Match` has the revision that the client read, or
//! `If-None-Match: *` adds a new tenant.

use std::sync::Arc;

use annex_runtime::Digest;
use annex_tenants::{
    ChangedTenant, Expectation, ListedTenant, StoredTenant, TenantChange, TenantState, TenantStoreError,
};
use axum::body::Body;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::action::Action;
use super::caller::AdminCaller;
use super::error::AdminError;
use super::shared::{Admin, no_tenant, read_small, whole};
use crate::admin_api::tenants::{self as shown, Change, List, RemovedTenant, Source, Tenant, TenantSummary};
use crate::audit::record::{Effect, Subject};
use crate::config::tenant_name::check_name;
use crate::config::tenant_text::MAX_TEXT_BYTES;
use crate::tenants::{AddedTenants, Serving, TenantFailure};

/// The default and the maximum number of tenants in a list.
const SHOWN: usize = 100;
const MAX_SHOWN: usize = 1_000;
/// The maximum size of a body, in bytes. The body has the text of a tenant as a JSON string, in which a character may
/// take six bytes.
const MAX_BODY_BYTES: usize = 6 * MAX_TEXT_BYTES + 1_024;

pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new().route("/v1/tenants", get(list)).route("/v1/tenants/{name}", get(show).put(put).delete(remove))
}

/// The query of a request for the list of tenants.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    after: Option<String>,
    limit: Option<usize>,
}

impl Admin {
    pub(super) fn added(&self) -> Result<&Arc<AddedTenants<Serving>>, AdminError> {
        self.installers.others().added.as_ref().ok_or_else(AdminError::no_added_tenants)
    }

    /// Returns the added tenants, to change the tenant `name` among them. Fails if the config defines this tenant.
    fn to_change(&self, name: &str) -> Result<&Arc<AddedTenants<Serving>>, AdminError> {
        if self.installers.others().named.has(name) {
            let message = format!("tenant {name:?} stands in the config of the server; change it there, and reload it");
            return Err(AdminError::new(StatusCode::CONFLICT, "tenant_of_config", message));
        }
        self.added()
    }
}

async fn list(State(admin): State<Arc<Admin>>, Query(listing): Query<ListQuery>) -> Result<Json<List>, AdminError> {
    let after = listing.after.unwrap_or_default();
    Ok(Json(admin.list_tenants(&after, listing.limit.unwrap_or(SHOWN)).await?))
}

async fn show(State(admin): State<Arc<Admin>>, Path(name): Path<String>) -> Result<Response, AdminError> {
    Ok(answer(StatusCode::OK, admin.tenant(&name).await?))
}

async fn put(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, AdminError> {
    // The name and the header are checked before the body is read.
    admin.check_changeable(&name)?;
    let expectation = expectation(&headers)?;
    let change = read_small(body, MAX_BODY_BYTES).await?;
    let status = if expectation == Expectation::Absent { StatusCode::CREATED } else { StatusCode::OK };
    Ok(answer(status, admin.put_tenant(caller, name, expectation, change).await?))
}

async fn remove(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<RemovedTenant>, AdminError> {
    admin.to_change(&name)?;
    let Expectation::Rev(rev) = expectation(&headers)? else {
        return Err(AdminError::invalid("`If-None-Match` is for adding a tenant; send its number in `If-Match`"));
    };
    Ok(Json(admin.remove_tenant(caller, name, rev).await?))
}

impl Admin {
    /// A page of the tenants. `after` is the name of the last tenant on the page before, or empty.
    pub(crate) async fn list_tenants(&self, after: &str, limit: usize) -> Result<List, AdminError> {
        let others = self.installers.others();
        let named = others.named.names().into_iter().filter(|_| after.is_empty());
        let mut tenants: Vec<TenantSummary> = named.map(|name| of_config(self, name)).collect();
        let limit = limit.clamp(1, MAX_SHOWN);
        let mut next = None;
        if let Some(added) = &others.added {
            let page = added.stores().tenants.list(after, limit).await.map_err(failed)?;
            next = page.last().filter(|_| page.len() == limit).map(|last| last.name.clone());
            let added = page.into_iter().filter(|tenant| !others.named.has(&tenant.name));
            tenants.extend(added.map(|tenant| of_store(self, tenant)));
        }
        Ok(List { tenants, next })
    }

    /// The names of the tenants of the config and of the loaded tenants that were added.
    pub(crate) fn tenant_names(&self) -> Vec<String> {
        self.installers.names()
    }

    /// True if tenants can be added, because the config has `[tenants]`.
    pub(crate) fn can_add_tenants(&self) -> bool {
        self.added().is_ok()
    }

    /// One tenant, with its text if it was added over the API.
    pub(crate) async fn tenant(&self, name: &str) -> Result<Tenant, AdminError> {
        let others = self.installers.others();
        if others.named.has(name) {
            return Ok(Tenant { listed: of_config(self, name.to_owned()), config: None });
        }
        let found = match &others.added {
            Some(added) => added.stores().tenants.find(name).await.map_err(failed)?,
            None => None,
        };
        Ok(stored(self, found.ok_or_else(|| no_tenant(name))?))
    }

    fn check_changeable(&self, name: &str) -> Result<(), AdminError> {
        self.to_change(name)?;
        check_name(name).map_err(|reason| AdminError::new(StatusCode::BAD_REQUEST, "invalid_name", reason))
    }

    /// Adds a tenant, or changes the text or the state of an added tenant. `expectation` is the condition of the change.
    pub(crate) async fn put_tenant(
        &self,
        caller: AdminCaller,
        name: String,
        expectation: Expectation,
        wanted: Change,
    ) -> Result<Tenant, AdminError> {
        let subject = Subject { tenant: Some(name.clone()), ..Subject::default() };
        let caller = caller.about(Action::PutTenant, subject.clone());
        // The check of the text pulls and loads components, so the roles are checked before it.
        caller.check().await?;
        self.check_changeable(&name)?;
        let added = Arc::clone(self.to_change(&name)?);
        let Change { config, state } = wanted;
        let running = match &config {
            Some(_) => self.tenant_changes.of_text(added.stores(), &name).await,
            None => self.tenant_changes.of_state(added.stores(), &name),
        };
        let state = state.map(TenantState::from);
        let before = match expectation {
            Expectation::Absent => None,
            Expectation::Rev(rev) => {
                let there = added.stores().tenants.find(&name).await.map_err(failed)?;
                let is_it = |there: &StoredTenant| there.rev == rev;
                let now = there.as_ref().map(|there| there.rev);
                Some(there.filter(is_it).ok_or_else(|| other(&name, now))?)
            }
        };
        let state = state.or(before.as_ref().map(|before| before.state)).unwrap_or(TenantState::Active);
        let is_new_text = config.is_some();
        let config = match (config, before) {
            (Some(config), _) => {
                let refused = |reason| AdminError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_config", reason);
                added.loader().check(&name, config.clone()).await.map_err(refused)?;
                config
            }
            (None, Some(before)) => before.config,
            (None, None) => return Err(AdminError::invalid("`config` is missing: the text of the tenant")),
        };
        let store = Arc::clone(&added.stores().tenants);
        let text = Some(Digest::of(config.as_bytes()).to_string());
        let caller = caller.about(Action::PutTenant, Subject { text, ..subject });
        let told = told(&name, expectation, is_new_text, state);
        let effect = Effect { grants: grants_in(&config).filter(|_| is_new_text), ..Effect::from(told) };
        let changed = change((name.clone(), Some(state)), added, (caller, effect), {
            let (name, config) = (name.clone(), config.clone());
            async move {
                let changed = store.put(&name, expectation, state, &config).await;
                drop(running);
                changed
            }
        });
        let rev = changed.await?;
        Ok(stored(self, StoredTenant { name, rev, state, config }))
    }

    /// Removes the tenant `name`, whose last change is `rev`.
    pub(crate) async fn remove_tenant(
        &self,
        caller: AdminCaller,
        name: String,
        rev: u64,
    ) -> Result<RemovedTenant, AdminError> {
        let caller = caller.about(Action::RemoveTenant, Subject { tenant: Some(name.clone()), ..Subject::default() });
        caller.check().await?;
        let added = Arc::clone(self.to_change(&name)?);
        let store = Arc::clone(&added.stores().tenants);
        let running = self.tenant_changes.of_state(added.stores(), &name);
        let told = format!("tenant {name} was removed");
        let removed = change((name.clone(), None), added, (caller, Effect::from(told)), {
            let name = name.clone();
            async move {
                let removed = store.remove(&name, rev).await;
                drop(running);
                removed
            }
        });
        Ok(RemovedTenant { rev: removed.await?, removed: name })
    }
}

/// The log line for a change of a tenant, such as `tenant acme was added, and is active`.
fn told(name: &str, expectation: Expectation, is_new_text: bool, state: TenantState) -> String {
    let state = match state {
        TenantState::Active => "active",
        TenantState::Suspended => "suspended",
    };
    match (expectation, is_new_text) {
        (Expectation::Absent, _) => format!("tenant {name} was added, and is {state}"),
        (Expectation::Rev(_), true) => format!("tenant {name} was given another text, and is {state}"),
        (Expectation::Rev(_), false) => format!("tenant {name} is {state} now, with the text that it had"),
    }
}

/// The grants in the text of a tenant: a list of components with their grants. `None` if the text grants nothing.
fn grants_in(text: &str) -> Option<Value> {
    let table: toml::Table = text.parse().ok()?;
    let extensions = table.get("extension")?.as_array()?.iter();
    let granted = extensions.filter_map(|extension| {
        let component = extension.get("component")?.as_str()?;
        let grants = serde_json::to_value(extension.get("grants")?).ok()?;
        Some(json!({"component": component, "grants": grants}))
    });
    let granted: Vec<Value> = granted.collect();
    (!granted.is_empty()).then_some(Value::Array(granted))
}

/// Stores a change, even if the client hangs up, and applies the change in this process at once. The log line is made
/// of `effect` and the caller.
async fn change(
    (name, state): (String, Option<TenantState>),
    added: Arc<AddedTenants<Serving>>,
    (caller, effect): (AdminCaller, Effect),
    change: impl Future<Output = Result<TenantChange, TenantStoreError>> + Send + 'static,
) -> Result<u64, AdminError> {
    let changing = async move {
        match change.await.map_err(failed)? {
            TenantChange::Stored(rev) => {
                added.note(&ChangedTenant { name, rev, state });
                Ok(rev)
            }
            TenantChange::Other(rev) => Err(other(&name, rev)),
        }
    };
    let told = move |rev: &u64| {
        let text = format!("{} (change {rev})", effect.text);
        Effect { text, ..effect }
    };
    whole(caller, changing, told).await
}

/// Reads the condition of a change from the header. `If-Match` names the expected revision. `If-None-Match: *` requires
/// that no tenant has the name.
fn expectation(headers: &HeaderMap) -> Result<Expectation, AdminError> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default().trim());
    match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
        (None, Some("*")) => Ok(Expectation::Absent),
        (Some(tag), None) => {
            let rev = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).and_then(|rev| rev.parse().ok());
            let invalid = || AdminError::invalid(format!("`If-Match: {tag}` is no `ETag` of a tenant, such as \"7\""));
            rev.map(Expectation::Rev).ok_or_else(invalid)
        }
        (None, None) => {
            let message =
                "send `If-None-Match: *` to add a tenant, or `If-Match` with the `ETag` of the one that is changed";
            Err(AdminError::new(StatusCode::PRECONDITION_REQUIRED, "precondition_required", message))
        }
        _ => Err(AdminError::invalid("send one of `If-Match` with the `ETag` of the tenant, and `If-None-Match: *`")),
    }
}

/// The error 412 for a condition that does not match the stored revision `rev`. `rev` is `None` if no tenant has the
/// name.
fn other(name: &str, rev: Option<u64>) -> AdminError {
    let message = match rev {
        Some(rev) => {
            format!(
                "tenant {name:?} is there, and its last change is {rev}; read it (`annex tenant show`), and change what is there \
                 now (`annex tenant change`)"
            )
        }
        None => format!("there is no tenant {name:?}; add it with `If-None-Match: *`"),
    };
    AdminError::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", message)
}

#[expect(clippy::needless_pass_by_value, reason = "it is a mapping of errors")]
fn failed(error: TenantStoreError) -> AdminError {
    AdminError::internal(&error)
}

fn stored(admin: &Admin, tenant: StoredTenant) -> Tenant {
    let StoredTenant { name, rev, state, config } = tenant;
    Tenant { listed: of_store(admin, ListedTenant { name, rev, state }), config: Some(config) }
}

fn answer(status: StatusCode, tenant: Tenant) -> Response {
    let tag = tenant.listed.rev.and_then(|rev| HeaderValue::try_from(format!("\"{rev}\"")).ok());
    let mut response = (status, Json(tenant)).into_response();
    if let Some(tag) = tag {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn of_config(admin: &Admin, name: String) -> TenantSummary {
    let (loaded, failure) = here(admin.installers.others().named.find(&name, None));
    TenantSummary { name, source: Source::Config, rev: None, state: shown::ServingState::Active, loaded, failure }
}

fn of_store(admin: &Admin, tenant: ListedTenant) -> TenantSummary {
    let ListedTenant { name, rev, state } = tenant;
    let added = admin.installers.others().added.as_ref();
    let (loaded, failure) = here(added.and_then(|added| added.known_of(&name)));
    TenantSummary { name, source: Source::Added, rev: Some(rev), state: state.into(), loaded, failure }
}

/// The values of `loaded` and `failure` for the answer: whether the tenant is loaded, and why a load failed.
fn here(found: Option<Result<Serving, TenantFailure>>) -> (bool, Option<String>) {
    match found {
        Some(Ok(_)) => (true, None),
        Some(Err(failure)) => (false, Some(failure.reason)),
        None => (false, None),
    }
}

impl From<shown::ServingState> for TenantState {
    fn from(state: shown::ServingState) -> Self {
        match state {
            shown::ServingState::Active => Self::Active,
            shown::ServingState::Suspended => Self::Suspended,
        }
    }
}

impl From<TenantState> for shown::ServingState {
    fn from(state: TenantState) -> Self {
        match state {
            TenantState::Active => Self::Active,
            TenantState::Suspended => Self::Suspended,
        }
    }
}
