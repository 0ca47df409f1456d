//! The page of tenants: a list with the use against the quota, and the changes of tenants that were added.

use annex_tenants::Expectation;
use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use crate::admin::error::AdminError;
use crate::admin::shared::Admin;
use crate::admin_api::tenants::{Change as TenantChange, ServingState, Source, Tenant, TenantSummary};
use crate::admin_api::usage::{Figure, TenantUsage};
use crate::console::confirm::{ConfirmPage, Field, refused};
use crate::console::operator::{Change, ConsoleState, Operator};
use crate::console::page::page;
use crate::console::shown::{Row, address, block, line};

const ACTIVE: &str = "tenants";
const PATH: &str = "/tenants";
/// The number of added tenants on a page.
const SHOWN: usize = 50;

pub(crate) fn routes() -> Router<ConsoleState> {
    Router::new()
        .route(PATH, get(list).post(create))
        .route("/tenant", get(show).post(change_text))
        .route("/tenant/confirm", get(confirm))
        .route("/tenant/change", post(change))
}

/// The query for a page of the list.
#[derive(Deserialize)]
struct ListQuery {
    #[serde(default)]
    after: String,
}

/// The query that names a tenant.
#[derive(Deserialize)]
struct OfTenant {
    name: String,
}

fn link(name: &str) -> String {
    address("/tenant", &[("name", Some(name))])
}

/// A tenant in the list.
struct TenantRow {
    link: String,
    name: String,
    source: &'static str,
    state: &'static str,
    /// The use of a loaded tenant against its quota. Empty for a tenant without a quota.
    usage: Vec<String>,
    failure: Option<String>,
}

#[derive(Template)]
#[template(path = "tenants.html")]
struct TenantsTemplate {
    csrf: String,
    rows: Vec<TenantRow>,
    next: Option<String>,
    can_add: bool,
    new: NewTenant,
    problem: Option<String>,
}

/// The form of a new tenant.
#[derive(Default, Deserialize)]
struct NewTenant {
    name: String,
    config: String,
}

async fn list(State(console): State<ConsoleState>, operator: Operator, Query(query): Query<ListQuery>) -> Response {
    list_page(&console.admin, &operator, &query.after, NewTenant::default(), None).await
}

async fn list_page(
    admin: &Admin,
    operator: &Operator,
    after: &str,
    new: NewTenant,
    problem: Option<&AdminError>,
) -> Response {
    let list = match admin.list_tenants(after, SHOWN).await {
        Ok(list) => list,
        Err(error) => return refused(operator, ACTIVE, &error, PATH),
    };
    let mut rows = Vec::new();
    for tenant in &list.tenants {
        rows.push(row(admin, tenant).await);
    }
    let template = TenantsTemplate {
        csrf: operator.csrf().to_owned(),
        rows,
        next: list.next.as_ref().map(|next| address(PATH, &[("after", Some(next.as_str()))])),
        can_add: admin.can_add_tenants(),
        new,
        problem: problem.map(|error| block(error.message())),
    };
    let mut response = page(operator, "Tenants", ACTIVE, &template);
    if let Some(error) = problem {
        *response.status_mut() = error.status();
    }
    response
}

async fn row(admin: &Admin, tenant: &TenantSummary) -> TenantRow {
    // A list must not load tenants that nobody calls.
    let usage = if tenant.loaded { admin.tenant_usage(tenant.name.clone()).await.ok() } else { None };
    let usage = usage.iter().flat_map(TenantUsage::figures).filter(|(_, figure)| figure.limit.is_some());
    TenantRow {
        link: link(&tenant.name),
        name: line(&tenant.name),
        source: source(tenant),
        state: state(tenant),
        usage: usage.map(|(name, figure)| format!("{name}: {}", amount(figure))).collect(),
        failure: tenant.failure.as_deref().map(line),
    }
}

fn source(tenant: &TenantSummary) -> &'static str {
    match tenant.source {
        Source::Config => "config",
        Source::Added => "added",
    }
}

fn state(tenant: &TenantSummary) -> &'static str {
    match (tenant.state, tenant.loaded) {
        (ServingState::Suspended, _) => "suspended",
        (ServingState::Active, true) => "active",
        (ServingState::Active, false) => "active, not loaded",
    }
}

fn amount(figure: &Figure) -> String {
    match figure.limit {
        Some(limit) => format!("{} of {limit}", figure.used),
        None => format!("{}, without a limit", figure.used),
    }
}

#[derive(Template)]
#[template(path = "tenant.html")]
struct TenantTemplate {
    csrf: String,
    name: String,
    rev: String,
    facts: Vec<Row>,
    usage: Vec<Row>,
    /// The text of an added tenant.
    config: Option<String>,
    problem: Option<String>,
    extensions: String,
    sessions: String,
    /// The label and the address of the page that suspends or activates an added tenant.
    switch: Option<(&'static str, String)>,
    remove: Option<String>,
}

async fn show(State(console): State<ConsoleState>, operator: Operator, Query(of): Query<OfTenant>) -> Response {
    tenant_page(&console.admin, &operator, &of.name, None).await
}

/// The page of a tenant. `edited` has a text that was refused, and the reason.
async fn tenant_page(admin: &Admin, operator: &Operator, name: &str, edited: Option<(String, AdminError)>) -> Response {
    let Tenant { listed, config } = match admin.tenant(name).await {
        Ok(tenant) => tenant,
        Err(error) => return refused(operator, ACTIVE, &error, PATH),
    };
    let usage = if listed.loaded { admin.tenant_usage(name.to_owned()).await.ok() } else { None };
    let status = edited.as_ref().map(|(_, error)| error.status());
    let (text, problem) = edited.map(|(text, error)| (text, block(error.message()))).unzip();
    let rev = listed.rev.map(|rev| rev.to_string());
    let confirm = |action: &str| {
        address("/tenant/confirm", &[("name", Some(name)), ("rev", rev.as_deref()), ("action", Some(action))])
    };
    let is_added = listed.source == Source::Added;
    let switch = match listed.state {
        ServingState::Active => ("Suspend", confirm("suspend")),
        ServingState::Suspended => ("Activate", confirm("activate")),
    };
    let mut facts = vec![Row::new("source", source(&listed)), Row::new("state", state(&listed))];
    facts.extend(listed.failure.as_ref().map(|failure| Row::new("not served", failure)));
    let template = TenantTemplate {
        csrf: operator.csrf().to_owned(),
        facts,
        usage: usage
            .iter()
            .flat_map(TenantUsage::figures)
            .map(|(name, figure)| Row::new(name, &amount(figure)))
            .collect(),
        config: text.or(config),
        problem,
        extensions: address("/extensions", &[("tenant", Some(name))]),
        sessions: address("/sessions", &[("tenant", Some(name))]),
        switch: is_added.then_some(switch),
        remove: is_added.then(|| confirm("remove")),
        name: name.to_owned(),
        rev: rev.clone().unwrap_or_default(),
    };
    let mut response = page(operator, "Tenant", ACTIVE, &template);
    if let Some(status) = status {
        *response.status_mut() = status;
    }
    response
}

async fn create(State(console): State<ConsoleState>, change: Change<NewTenant>) -> Response {
    let Change { operator, caller, form } = change;
    let wanted = TenantChange { config: Some(form.config.clone()), state: None };
    match console.admin.put_tenant(caller, form.name.clone(), Expectation::Absent, wanted).await {
        Ok(_) => Redirect::to(&link(&form.name)).into_response(),
        Err(error) => list_page(&console.admin, &operator, "", form, Some(&error)).await,
    }
}

/// The form with another text of a tenant. `rev` is the number of the change that the operator saw.
#[derive(Deserialize)]
struct TextForm {
    name: String,
    rev: u64,
    config: String,
}

async fn change_text(State(console): State<ConsoleState>, change: Change<TextForm>) -> Response {
    let Change { operator, caller, form } = change;
    let TextForm { name, rev, config } = form;
    let wanted = TenantChange { config: Some(config.clone()), state: None };
    match console.admin.put_tenant(caller, name.clone(), Expectation::Rev(rev), wanted).await {
        Ok(_) => Redirect::to(&link(&name)).into_response(),
        Err(error) => tenant_page(&console.admin, &operator, &name, Some((config, error))).await,
    }
}

/// A change of a tenant that needs a confirmation.
#[derive(Deserialize)]
struct ConfirmedChange {
    name: String,
    rev: u64,
    action: Action,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Suspend,
    Activate,
    Remove,
}

impl Action {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Suspend => ("suspend", "Suspend"),
            Self::Activate => ("activate", "Activate"),
            Self::Remove => ("remove", "Remove"),
        }
    }
}

async fn confirm(operator: Operator, Query(change): Query<ConfirmedChange>) -> Response {
    let (name, title) = change.action.names();
    let tenant = line(&change.name);
    let sentences = match change.action {
        Action::Suspend => vec![
            format!("Requests for tenant {tenant} are refused with 503. Turns that run now go on."),
            "Its text, its sessions and its tasks stay stored.".to_owned(),
        ],
        Action::Activate => vec![format!("Tenant {tenant} is served again, with the text that is stored.")],
        Action::Remove => vec![
            format!("Requests for tenant {tenant} are refused at once, and its turns are cancelled. Its text is lost."),
            "Its tasks and sessions stay for a while, and a new tenant of this name would see them.".to_owned(),
        ],
    };
    let fields =
        vec![Field::new("name", &change.name), Field::new("rev", &change.rev.to_string()), Field::new("action", name)];
    let back = link(&change.name);
    let confirm = ConfirmPage { sentences, action: "/tenant/change", fields, button: title, back };
    confirm.into_page(&operator, title, ACTIVE)
}

async fn change(State(console): State<ConsoleState>, change: Change<ConfirmedChange>) -> Response {
    let Change { operator, caller, form } = change;
    let ConfirmedChange { name, rev, action } = form;
    let admin = &console.admin;
    let put = |state| TenantChange { config: None, state: Some(state) };
    let changed = match action {
        Action::Suspend => {
            admin.put_tenant(caller, name.clone(), Expectation::Rev(rev), put(ServingState::Suspended)).await.map(drop)
        }
        Action::Activate => {
            admin.put_tenant(caller, name.clone(), Expectation::Rev(rev), put(ServingState::Active)).await.map(drop)
        }
        Action::Remove => admin.remove_tenant(caller, name.clone(), rev).await.map(drop),
    };
    let next = if matches!(action, Action::Remove) { PATH.to_owned() } else { link(&name) };
    match changed {
        Ok(()) => Redirect::to(&next).into_response(),
        Err(error) => refused(&operator, ACTIVE, &error, &link(&name)),
    }
}
