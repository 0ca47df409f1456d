//! The admin API's paths for components that are uploaded for tenants.

use std::sync::Arc;

use annex_runtime::{Digest, MAX_COMPONENT_BYTES};
use annex_tenants::{ListedComponent, ListedTenant, TenantStoreError, TenantStores, Upload, UploadBounds};
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::task::spawn_blocking;

use super::action::Action;
use super::caller::AdminCaller;
use super::error::AdminError;
use super::shared::{Admin, read_raw, whole};
use crate::admin_api::components::{Component, List, RemovedComponent};
use crate::audit::record::Subject;

/// The first bytes of every component: the magic number, the version of the format, and the layer of components.
const BEGINNING: [u8; 8] = [0, b'a', b's', b'm', 13, 0, 1, 0];

/// The maximum number of tenants whose texts are searched before a component is removed.
const MAX_LOOKED_AT: usize = 1_000;
/// The maximum number of tenants that a refusal names.
const MAX_NAMED: usize = 5;

pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/v1/components", post(upload).get(list))
        .route("/v1/components/{digest}", get(show).delete(remove))
}

async fn upload(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    body: Body,
) -> Result<(StatusCode, Json<Component>), AdminError> {
    let bounds = admin.upload_bounds()?;
    let too_large = || format!("a component may have {} MiB", MAX_COMPONENT_BYTES >> 20);
    let bytes = read_raw(body, (MAX_COMPONENT_BYTES, too_large)).await?;
    if !bytes.starts_with(&BEGINNING) {
        let message = "the body is no WebAssembly component; send its file as it is";
        return Err(AdminError::new(StatusCode::UNPROCESSABLE_ENTITY, "no_component", message));
    }
    let size = bytes.len() as u64;
    let digested = bytes.clone();
    let digest = spawn_blocking(move || Digest::of(&digested)).await.map_err(|error| AdminError::internal(&error))?;
    let digest = digest.to_string();
    let (components, name) = (Arc::clone(&admin.added()?.stores().components), digest.clone());
    let uploading = async move {
        let uploaded = components.put(&name, &bytes, bounds).await;
        match uploaded.map_err(|error| AdminError::internal(&error))? {
            Upload::Full(there) => Err(full(there, bounds)),
            Upload::Stored => Ok(StatusCode::CREATED),
            Upload::Known => Ok(StatusCode::OK),
        }
    };
    let caller = caller.about(Action::UploadComponent, subject(&digest));
    let told = format!("component {digest} was uploaded");
    let status = whole(caller, uploading, |_| told).await?;
    Ok((status, Json(Component { digest, size, uploaded_at: None })))
}

async fn list(State(admin): State<Arc<Admin>>) -> Result<Json<List>, AdminError> {
    let UploadBounds { count, bytes } = admin.upload_bounds()?;
    let components = admin.uploaded().await?.into_iter().map(shown).collect();
    Ok(Json(List { components, max_uploads: count, max_upload_bytes: bytes }))
}

async fn show(State(admin): State<Arc<Admin>>, Path(digest): Path<String>) -> Result<Json<Component>, AdminError> {
    let found = admin.uploaded().await?.into_iter().find(|component| component.digest == digest);
    found.map(|component| Json(shown(component))).ok_or_else(|| none(&digest))
}

async fn remove(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Path(digest): Path<String>,
) -> Result<Json<RemovedComponent>, AdminError> {
    let (stores, name) = (admin.added()?.stores().clone(), digest.clone());
    let removing = async move {
        let naming = naming(&stores, &name).await.map_err(|error| AdminError::internal(&error))?;
        if !naming.is_empty() {
            return Err(in_use(&name, &naming));
        }
        let removed = stores.components.remove(&name).await.map_err(|error| AdminError::internal(&error))?;
        if removed { Ok(()) } else { Err(none(&name)) }
    };
    let caller = caller.about(Action::RemoveComponent, subject(&digest));
    let told = format!("component {digest} was removed from those that were uploaded");
    whole(caller, removing, |()| told).await?;
    Ok(Json(RemovedComponent { removed: digest }))
}

fn subject(digest: &str) -> Subject {
    Subject { component: Some(digest.to_owned()), ..Subject::default() }
}

/// Finds tenants whose text contains the digest of this component. Returns up to [`MAX_NAMED`] names. Searches at most
/// [`MAX_LOOKED_AT`] texts.
async fn naming(stores: &TenantStores, digest: &str) -> Result<Vec<String>, TenantStoreError> {
    let mut naming = Vec::new();
    // The string may be no digest, and then a match in a tenant's text would mean nothing.
    if !stores.components.has(digest).await? {
        return Ok(naming);
    }
    for ListedTenant { name, .. } in stores.tenants.list("", MAX_LOOKED_AT).await? {
        let tenant = stores.tenants.find(&name).await?;
        if tenant.is_some_and(|tenant| tenant.config.contains(digest)) {
            naming.push(name);
        }
        if naming.len() == MAX_NAMED {
            break;
        }
    }
    Ok(naming)
}

impl Admin {
    fn upload_bounds(&self) -> Result<UploadBounds, AdminError> {
        let config = self.installers.config();
        let stored = config.stored_tenants.as_ref().ok_or_else(AdminError::no_added_tenants)?;
        Ok(UploadBounds { count: stored.max_uploads, bytes: stored.max_upload_bytes })
    }

    async fn uploaded(&self) -> Result<Vec<ListedComponent>, AdminError> {
        let listed = self.added()?.stores().components.list().await;
        listed.map_err(|error| AdminError::internal(&error))
    }
}

fn shown(component: ListedComponent) -> Component {
    let ListedComponent { digest, size, uploaded_at } = component;
    Component { digest, size, uploaded_at: Some(uploaded_at.to_string()) }
}

fn none(digest: &str) -> AdminError {
    let message = format!("no component {digest:?} was uploaded; GET /v1/components lists them");
    AdminError::new(StatusCode::NOT_FOUND, "no_component", message)
}

fn in_use(digest: &str, tenants: &[String]) -> AdminError {
    let more = if tenants.len() < MAX_NAMED { "" } else { ", and perhaps others" };
    let message = format!(
        "component {digest} is named by the texts of these tenants: {}{more}; change them first (`annex tenant change`)",
        tenants.join(", ")
    );
    AdminError::new(StatusCode::CONFLICT, "in_use", message)
}

fn full(there: UploadBounds, bounds: UploadBounds) -> AdminError {
    let UploadBounds { count, bytes } = there;
    let UploadBounds { count: most, bytes: most_bytes } = bounds;
    let message = format!(
        "{count} components with {bytes} bytes were uploaded or pulled for tenants, of at most {most} (tenants.max_uploads) with {most_bytes} \
         (tenants.max_upload_bytes); remove some that no tenant names"
    );
    AdminError::new(StatusCode::INSUFFICIENT_STORAGE, "full", message)
}
