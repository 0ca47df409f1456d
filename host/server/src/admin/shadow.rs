//! The admin API's paths for shadows.

use std::sync::Arc;

use annex_protocol::ExtensionUri;
use axum::body::Body;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::caller::{AdminCaller, of_tenant};
use super::error::AdminError;
use super::shared::{Admin, OfTenant, read, whole};
use crate::admin_api::ShadowAddition;
use crate::admin_api::extensions::Details;
use crate::admin_api::shadows::Shadow;

pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/v1/extensions/{id}/shadow", post(begin).delete(end))
        .route("/v1/extensions/{id}/shadow/promote", post(promote))
}

async fn begin(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
    body: Body,
) -> Result<(StatusCode, Json<Shadow>), AdminError> {
    let installer = admin.changeable(&of).await?;
    let uri = installer.find(&id)?.uri().clone();
    let ShadowAddition { component, settings, share } = read(body).await?;
    let component = BASE64.decode(component).map_err(|_| AdminError::invalid("`component` is not base64"))?;
    let share = share.unwrap_or(100);
    if !(1..=100).contains(&share) {
        return Err(AdminError::invalid(format!("`share` is {share}; it is 1 to 100 of 100 turns")));
    }
    let redaction = admin.sessions.redaction.clone();
    let told = has("got a shadow", &uri, &of);
    let change = async move { installer.shadow(&uri, component, settings, share, redaction).await };
    let shadow = whole(caller, change, |_| told).await?;
    Ok((StatusCode::CREATED, Json(Shadow::of(&shadow))))
}

async fn promote(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
) -> Result<Json<Details>, AdminError> {
    let here = admin.changeable(&of).await?;
    let installer = Arc::clone(&here);
    let uri = here.find(&id)?.uri().clone();
    let told = has("was replaced by its shadow", &uri, &of);
    let version = whole(caller, async move { installer.promote(&uri).await }, |_| told).await?;
    Ok(Json(Details::of(&here, &version)))
}

async fn end(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
) -> Result<Json<Shadow>, AdminError> {
    let installer = admin.installer(&of).await?;
    let uri = installer.find(&id)?.uri().clone();
    let told = has("lost its shadow", &uri, &of);
    let ended = whole(caller, async move { installer.end_shadow(&uri).await }, |_| told).await?;
    Ok(Json(Shadow::of(&ended)))
}

/// The log line for an event of an extension's shadow. `happened` is the end of the sentence, such as `lost its
/// shadow`.
fn has(happened: &str, uri: &ExtensionUri, of: &OfTenant) -> String {
    format!("extension {uri}{} {happened}", of_tenant(of.tenant.as_deref()))
}
