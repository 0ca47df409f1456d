//! The page of extensions: the installed ones, one extension in full, and the changes.

use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;

use crate::admin::error::AdminError;
use crate::admin::shared::Admin;
use crate::admin_api::extensions::NotInstalled;
use crate::console::agents::{Choice, OfAgent, choices, of, page_of};
use crate::console::confirm::refused;
use crate::console::operator::{ConsoleState, Operator};
use crate::console::page::{fragment, page};
use crate::console::shown::{address, line};

mod changes;
mod difference;
mod meaning;
mod upload;
mod uploads;
mod view;

use view::{Extension, ListRow, LivePart};

const ACTIVE: &str = "extensions";

pub(crate) fn routes() -> Router<ConsoleState> {
    Router::new()
        .route("/extensions", get(list))
        .route("/extension", get(show))
        .route("/extension/live", get(live))
        .merge(changes::routes())
        .merge(upload::routes())
}

/// The query that names an extension.
#[derive(Deserialize)]
struct OfExtension {
    #[serde(default)]
    tenant: String,
    uri: String,
}

#[derive(Template)]
#[template(path = "extensions.html")]
struct ExtensionsTemplate {
    choices: Vec<Choice>,
    edition: u64,
    rows: Vec<ListRow>,
    failures: Vec<String>,
    upload: String,
    reload: String,
}

async fn list(State(console): State<ConsoleState>, operator: Operator, Query(query): Query<OfAgent>) -> Response {
    match list_page(&console.admin, &query.tenant).await {
        Ok(template) => page(&operator, "Extensions", ACTIVE, &template),
        Err(error) => refused(&operator, ACTIVE, &error, "/extensions"),
    }
}

async fn list_page(admin: &Admin, tenant: &str) -> Result<ExtensionsTemplate, AdminError> {
    let named = of(tenant);
    let list = admin.extensions(&named).await?;
    let of_tenant = named.tenant.as_deref();
    let all_cpu = list.extensions.iter().map(view::cpu).sum();
    let failure = |failure: &NotInstalled| line(&format!("{} {}: {}", failure.at, failure.source, failure.reason));
    Ok(ExtensionsTemplate {
        choices: choices("/extensions", &admin.tenant_names(), tenant),
        edition: list.edition,
        rows: list.extensions.iter().map(|summary| ListRow::of(of_tenant, summary, all_cpu)).collect(),
        failures: list.failures.iter().map(failure).collect(),
        upload: page_of("/extensions/upload", tenant),
        reload: page_of("/extensions/reload", tenant),
    })
}

#[derive(Template)]
#[template(path = "extension.html")]
struct ExtensionTemplate {
    extension: Extension,
    live: LivePart,
    refresh: String,
    back: String,
}

async fn show(State(console): State<ConsoleState>, operator: Operator, Query(query): Query<OfExtension>) -> Response {
    let back = page_of("/extensions", &query.tenant);
    match extension_page(&console.admin, &query, &back).await {
        Ok(template) => page(&operator, "Extension", ACTIVE, &template),
        Err(error) => refused(&operator, ACTIVE, &error, &back),
    }
}

async fn extension_page(admin: &Admin, query: &OfExtension, back: &str) -> Result<ExtensionTemplate, AdminError> {
    let tenant = of(&query.tenant);
    let details = admin.extension(&tenant, &query.uri).await?;
    let live = live_part(admin, query).await?;
    let signers = admin.signers(&tenant, &query.uri).await?;
    let of_tenant = tenant.tenant.as_deref();
    Ok(ExtensionTemplate {
        extension: Extension::of(of_tenant, &details, &signers),
        live,
        refresh: address("/extension/live", &[("tenant", of_tenant), ("uri", Some(query.uri.as_str()))]),
        back: back.to_owned(),
    })
}

#[derive(Template)]
#[template(path = "extension_live.html")]
struct LiveTemplate {
    live: LivePart,
}

async fn live(State(console): State<ConsoleState>, _operator: Operator, Query(query): Query<OfExtension>) -> Response {
    match live_part(&console.admin, &query).await {
        Ok(live) => fragment(&LiveTemplate { live }),
        Err(error) => error.status().into_response(),
    }
}

async fn live_part(admin: &Admin, query: &OfExtension) -> Result<LivePart, AdminError> {
    let tenant = of(&query.tenant);
    let details = admin.extension(&tenant, &query.uri).await?;
    let log = admin.extension_log(&tenant, &query.uri).await?;
    Ok(LivePart::of(&details.summary, &log.lines))
}
