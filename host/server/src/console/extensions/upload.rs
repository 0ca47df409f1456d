//! The way from a component to an installed extension: a file or a reference, the inspection, the approval, and the
//! installation or the shadow.

use std::sync::Arc;

use annex_leases::editions::Consent;
use annex_protocol::AgentExtension;
use annex_runtime::{GrantNeeded, Hook, Inspection, MAX_COMPONENT_BYTES, ManifestGrants};
use askama::Template;
use axum::Router;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::Deserialize;
use tokio::time::Instant;

use super::difference::{DiffLine, change_of_card};
use super::meaning;
use super::uploads::{LockedReference, Upload, Uploads};
use crate::admin::error::AdminError;
use crate::admin::extensions::NewComponent;
use crate::admin::shadow::ShadowCandidate;
use crate::admin::shared::Admin;
use crate::console::agents::{of, page_of};
use crate::console::confirm::refused;
use crate::console::operator::{Change, ConsoleState, LargeChange, Operator};
use crate::console::page::page;
use crate::console::shown::{Row, address, block, line};
use crate::installation::installer::AddedComponent;

const ACTIVE: &str = "extensions";

pub(super) fn routes() -> Router<ConsoleState> {
    Router::new()
        .route("/extensions/upload", get(form).post(upload))
        .route("/extensions/reference", post(choose))
        .route("/extensions/approve", get(approve))
        .route("/extensions/install", post(install))
        .layer(Extension(Arc::<Uploads>::default()))
}

/// The maximum size of the name of an upload, in bytes.
const MAX_NAME: usize = 100;

/// The query of the page with the form.
#[derive(Deserialize)]
struct FormQuery {
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    name: String,
}

#[derive(Template)]
#[template(path = "upload.html")]
struct UploadTemplate {
    csrf: String,
    tenant: String,
    name: String,
    mebibytes: usize,
    back: String,
}

async fn form(operator: Operator, Query(query): Query<FormQuery>) -> Response {
    let back = list_of(&query.tenant);
    let FormQuery { tenant, name } = query;
    let csrf = operator.csrf().to_owned();
    let form = UploadTemplate { csrf, tenant, name, mebibytes: MAX_COMPONENT_BYTES >> 20, back };
    page(&operator, "Upload a component", ACTIVE, &form)
}

/// A component in the form of the page.
#[derive(Deserialize)]
struct UploadForm {
    #[serde(default)]
    tenant: String,
    name: String,
    /// The bytes in base64 with the alphabet of URLs and without padding, because a form sends each `+`, `/` and `=` as
    /// three bytes.
    component: String,
}

async fn upload(
    State(console): State<ConsoleState>,
    Extension(uploads): Extension<Arc<Uploads>>,
    change: LargeChange<UploadForm>,
) -> Response {
    let LargeChange { operator, form } = change;
    let UploadForm { tenant, name, component } = form;
    let read = read(&console.admin, &tenant, component).await;
    let upload = read.map(|(component, inspection)| Upload {
        by: operator.name().into(),
        component,
        inspection,
        locked: None,
        at: Instant::now(),
    });
    wait_for_approval(&operator, &uploads, upload, (tenant, name))
}

/// The reference of a component in the form of the page.
#[derive(Deserialize)]
struct ReferenceForm {
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    name: String,
    reference: String,
}

async fn choose(
    State(console): State<ConsoleState>,
    Extension(uploads): Extension<Arc<Uploads>>,
    change: Change<ReferenceForm>,
) -> Response {
    let Change { operator, caller, form } = change;
    let ReferenceForm { tenant, name, reference } = form;
    if let Err(error) = caller.check_install(of(&tenant).tenant).await {
        return refused(&operator, ACTIVE, &error, &list_of(&tenant));
    }
    let own = AddedComponent::name_of(&reference);
    let name = if name.is_empty() { own.as_ref().cloned().unwrap_or_default() } else { name };
    let upload = match own {
        Ok(_) => read_locked(&console.admin, &tenant, reference, operator.name()).await,
        Err(error) => Err(AdminError::invalid(error.to_string())),
    };
    wait_for_approval(&operator, &uploads, upload, (tenant, name))
}

/// Keeps a component until the operator approves it, and leads to the page with the approval.
fn wait_for_approval(
    operator: &Operator,
    uploads: &Uploads,
    upload: Result<Upload, AdminError>,
    (tenant, name): (String, String),
) -> Response {
    if name.len() > MAX_NAME {
        let error =
            AdminError::invalid(format!("the name has {} bytes, and at most {MAX_NAME} are allowed", name.len()));
        return refused(operator, ACTIVE, &error, &list_of(&tenant));
    }
    let tenant = of(&tenant).tenant;
    match upload {
        Ok(upload) => {
            let digest = upload.inspection.digest.to_string();
            uploads.add(upload);
            let parameters =
                [("tenant", tenant.as_deref()), ("digest", Some(digest.as_str())), ("name", Some(name.as_str()))];
            Redirect::to(&address("/extensions/approve", &parameters)).into_response()
        }
        Err(error) => {
            let back = address("/extensions/upload", &[("tenant", tenant.as_deref()), ("name", Some(name.as_str()))]);
            refused(operator, ACTIVE, &error, &back)
        }
    }
}

async fn read(admin: &Admin, tenant: &str, component: String) -> Result<(Vec<u8>, Inspection), AdminError> {
    // A tenant whose extensions cannot change is refused before the component is read.
    admin.changeable(&of(tenant)).await?;
    let component = BASE64.decode(component).map_err(|_| AdminError::invalid("the component is not base64"))?;
    let inspection = admin.inspect_component(component.clone()).await?;
    Ok((component, inspection))
}

/// Reads the component of a reference from `annex.lock` and the cache.
async fn read_locked(admin: &Admin, tenant: &str, reference: String, by: &str) -> Result<Upload, AdminError> {
    let (component, signers) = admin.locked_component(&of(tenant), &reference).await?;
    let inspection = admin.inspect_component(component.clone()).await?;
    let locked = Some(LockedReference { reference, signers });
    Ok(Upload { by: by.into(), component, inspection, locked, at: Instant::now() })
}

/// The query of the page with the approval.
#[derive(Deserialize)]
struct ApproveQuery {
    #[serde(default)]
    tenant: String,
    digest: String,
    #[serde(default)]
    name: String,
}

async fn approve(
    State(console): State<ConsoleState>,
    Extension(uploads): Extension<Arc<Uploads>>,
    operator: Operator,
    Query(query): Query<ApproveQuery>,
) -> Response {
    let ApproveQuery { tenant, digest, name } = query;
    let Some(upload) = uploads.find(operator.name(), &digest) else { return no_upload(&operator, &tenant) };
    let settings = suggested(&console.admin, &tenant, &name, &upload.inspection).await;
    let request = InstallForm { tenant, digest, name, settings, share: 100, action: Action::Preview };
    approval(&console, &operator, &upload, request, Outcome::Nothing).await
}

fn no_upload(operator: &Operator, tenant: &str) -> Response {
    let message =
        "the server no longer has the upload, because uploads are dropped after 15 minutes; upload the component again";
    refused(operator, ACTIVE, &AdminError::new(StatusCode::NOT_FOUND, "no_upload", message), &list_of(tenant))
}

fn list_of(tenant: &str) -> String {
    page_of("/extensions", tenant)
}

/// The settings to begin with: those of the extension that the component replaces, or the grants that a new component
/// needs.
async fn suggested(admin: &Admin, tenant: &str, name: &str, inspection: &Inspection) -> String {
    if let Some(present) = present(admin, tenant, name, inspection).await
        && let Ok(settings) = admin.extension_settings(&of(tenant), &present.uri).await
    {
        return settings;
    }
    let lines = meaning::lines_of(&wanted(inspection));
    if lines.is_empty() { String::new() } else { format!("[grants]\n{}\n", lines.join("\n")) }
}

/// The grants that the imports and hooks need, and the grants that the manifest names.
fn wanted(inspection: &Inspection) -> Vec<GrantNeeded> {
    let mut wanted = inspection.needs();
    if let Some(ManifestGrants::Reasons(reasons)) = inspection.manifest.as_ref().map(|manifest| &manifest.grants) {
        let named = reasons.keys().filter_map(|name| GrantNeeded::from_name(name));
        wanted.extend(named.filter(|grant| !inspection.needs().contains(grant)));
    }
    wanted
}

/// The installed extension that the component replaces.
struct ReplacedExtension {
    uri: String,
    version: u64,
    has_name: bool,
}

async fn present(admin: &Admin, tenant: &str, name: &str, inspection: &Inspection) -> Option<ReplacedExtension> {
    let list = admin.extensions(&of(tenant)).await.ok()?;
    let uri = inspection.manifest.as_ref().and_then(|manifest| manifest.uri.as_deref());
    let extensions = list.extensions.into_iter().map(|summary| {
        let has_name = summary.source.kind != "config" && summary.source.name == name;
        ReplacedExtension { uri: summary.uri, version: summary.version, has_name }
    });
    let (of_name, others): (Vec<ReplacedExtension>, Vec<ReplacedExtension>) =
        extensions.partition(|present| present.has_name);
    let of_uri = |present: &ReplacedExtension| uri == Some(present.uri.as_str());
    of_name.into_iter().next().or_else(|| others.into_iter().find(of_uri))
}

/// The outcome of the operator's last click.
enum Outcome {
    Nothing,
    Refused(String),
    Preview(Box<AgentExtension>),
}

/// The form of the page with the approval.
#[derive(Deserialize)]
struct InstallForm {
    #[serde(default)]
    tenant: String,
    digest: String,
    name: String,
    settings: String,
    share: u8,
    action: Action,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Preview,
    Install,
    Shadow,
}

/// A wanted grant on the page.
struct GrantView {
    name: &'static str,
    meaning: &'static str,
    reason: Option<String>,
}

#[derive(Template)]
#[template(path = "approve.html")]
struct ApproveTemplate {
    csrf: String,
    tenant: String,
    digest: String,
    name: String,
    settings: String,
    share: u8,
    facts: Vec<Row>,
    grants: Vec<GrantView>,
    imports: Vec<Row>,
    problem: Option<String>,
    change: String,
    difference: Vec<DiffLine>,
    install: String,
    can_shadow: bool,
    back: String,
}

async fn approval(
    console: &ConsoleState,
    operator: &Operator,
    upload: &Upload,
    form: InstallForm,
    outcome: Outcome,
) -> Response {
    let inspection = &upload.inspection;
    let InstallForm { tenant, digest, name, settings, share, .. } = form;
    let present = present(&console.admin, &tenant, &name, inspection).await;
    let install = match &present {
        Some(present) if present.has_name => format!("Install in place of version {}", present.version),
        _ => "Install".to_owned(),
    };
    let named = inspection.manifest.as_ref().and_then(|manifest| manifest.uri.as_deref());
    let uri = match &outcome {
        Outcome::Preview(entry) => Some(entry.uri.as_str()),
        _ => named.or(present.as_ref().map(|present| present.uri.as_str())),
    };
    let before = match uri {
        Some(uri) => {
            let entries = console.admin.card_entries(&of(&tenant)).await.unwrap_or_default();
            entries.into_iter().find(|entry| entry.uri.as_str() == uri)
        }
        None => None,
    };
    let preview = match &outcome {
        Outcome::Preview(entry) => Some(&**entry),
        Outcome::Nothing | Outcome::Refused(_) => None,
    };
    let (change, difference) = change_of_card(uri, before.as_ref(), preview);
    let template = ApproveTemplate {
        csrf: operator.csrf().to_owned(),
        back: list_of(&tenant),
        facts: facts(upload),
        grants: wanted(inspection).into_iter().map(|grant| view(grant, inspection)).collect(),
        imports: inspection.imports.iter().map(|import| Row::new(&import.name, meaning::of_import(import))).collect(),
        problem: match outcome {
            Outcome::Refused(reason) => Some(block(&reason)),
            Outcome::Nothing | Outcome::Preview(_) => None,
        },
        can_shadow: present.is_some() && upload.locked.is_none(),
        tenant,
        digest,
        name,
        settings,
        share,
        change,
        difference,
        install,
    };
    page(operator, "Approve a component", ACTIVE, &template)
}

fn view(grant: GrantNeeded, inspection: &Inspection) -> GrantView {
    let reason = inspection.manifest.as_ref().and_then(|manifest| manifest.reason(grant.name())).map(line);
    GrantView { name: grant.name(), meaning: meaning::of_grant(grant), reason }
}

fn facts(upload: &Upload) -> Vec<Row> {
    let inspection = &upload.inspection;
    let hooks: Vec<&str> = inspection.hooks.iter().copied().map(Hook::name).collect();
    let mut facts = vec![
        Row::new("digest", &inspection.digest.to_string()),
        Row::new("size", &format!("{} bytes", inspection.size)),
        Row::new("contract", &inspection.contract),
        Row::new("hooks", &hooks.join(", ")),
    ];
    if let Some(LockedReference { reference, signers }) = &upload.locked {
        let signers = if signers.is_empty() { "none".to_owned() } else { signers.join(", ") };
        facts.extend([Row::new("reference", reference), Row::new("signers", &signers)]);
    }
    match &inspection.manifest {
        Some(manifest) => {
            facts.push(Row::new("project", &format!("{} {}", manifest.name, manifest.version)));
            let texts = [("URI", &manifest.uri), ("licence", &manifest.licence), ("source", &manifest.source)];
            facts.extend(texts.into_iter().filter_map(|(name, text)| Some(Row::new(name, text.as_ref()?))));
        }
        None => facts.push(Row::new("project", "the component has no manifest")),
    }
    facts
}

async fn install(
    State(console): State<ConsoleState>,
    Extension(uploads): Extension<Arc<Uploads>>,
    change: Change<InstallForm>,
) -> Response {
    let Change { operator, caller, form } = change;
    // Also a preview loads the component with the grants of the form.
    if let Err(error) = caller.check_install(of(&form.tenant).tenant).await {
        return refused(&operator, ACTIVE, &error, &list_of(&form.tenant));
    }
    let Some(upload) = uploads.find(operator.name(), &form.digest) else {
        return no_upload(&operator, &form.tenant);
    };
    let (admin, tenant) = (&console.admin, of(&form.tenant));
    let (name, settings, component) = (form.name.clone(), Some(form.settings.clone()), upload.component.clone());
    let installed = match form.action {
        Action::Preview => {
            let previewed = admin.preview_extension(&tenant, (&name, component), &form.settings).await;
            let outcome = match previewed {
                Ok(entry) => Outcome::Preview(Box::new(entry)),
                Err(error) => Outcome::Refused(error.message().to_owned()),
            };
            return approval(&console, &operator, &upload, form, outcome).await;
        }
        Action::Install => {
            let component = match &upload.locked {
                Some(LockedReference { reference, .. }) => {
                    let approved = Some(upload.inspection.digest);
                    AddedComponent::Reference { reference: reference.clone(), approved }
                }
                None => AddedComponent::Bytes(component),
            };
            let component = NewComponent { name, component, settings };
            admin
                .add_extension(caller, of(&form.tenant), component, Consent::OfAll)
                .await
                .map(|added| added.summary.uri)
        }
        Action::Shadow => match present(admin, &form.tenant, &form.name, &upload.inspection).await {
            Some(ReplacedExtension { uri, .. }) => {
                let candidate = ShadowCandidate { component, settings, share: form.share };
                admin.begin_shadow(caller, &tenant, &uri, candidate).await.map(|_| uri)
            }
            None => Err(AdminError::invalid("no installed extension has this name or URI, so nothing can be shadowed")),
        },
    };
    match installed {
        Ok(uri) => {
            uploads.remove(operator.name(), &form.digest);
            let parameters = [("tenant", tenant.tenant.as_deref()), ("uri", Some(uri.as_str()))];
            Redirect::to(&address("/extension", &parameters)).into_response()
        }
        Err(error) => {
            let (status, outcome) = (error.status(), Outcome::Refused(error.message().to_owned()));
            let mut response = approval(&console, &operator, &upload, form, outcome).await;
            *response.status_mut() = status;
            response
        }
    }
}
