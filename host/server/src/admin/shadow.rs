//! The admin API's paths for shadows.

use std::sync::Arc;

use annex_protocol::ExtensionUri;
use annex_runtime::Digest;
use axum::body::Body;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::action::Action;
use super::caller::{AdminCaller, of_tenant};
use super::error::AdminError;
use super::extensions::{effect, subject};
use super::shared::{Admin, OfTenant, digested, read, whole};
use crate::admin_api::ShadowAddition;
use crate::admin_api::extensions::Details;
use crate::admin_api::shadows::Shadow;
use crate::audit::record::Subject;
use crate::installation::installer::Version;

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
    // The extension is looked up before the body is read, because the body may be large.
    admin.changeable(&of).await?.find(&id)?;
    let ShadowAddition { component, settings, share } = read(body).await?;
    let component = BASE64.decode(component).map_err(|_| AdminError::invalid("`component` is not base64"))?;
    let candidate = ShadowCandidate { component, settings, share: share.unwrap_or(100) };
    Ok((StatusCode::CREATED, Json(admin.begin_shadow(caller, &of, &id, candidate).await?)))
}

async fn promote(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
) -> Result<Json<Details>, AdminError> {
    Ok(Json(admin.promote_shadow(caller, &of, &id).await?))
}

async fn end(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<AdminCaller>,
    Query(of): Query<OfTenant>,
    Path(id): Path<String>,
) -> Result<Json<Shadow>, AdminError> {
    Ok(Json(admin.end_shadow(caller, &of, &id).await?))
}

/// A component to run as a shadow of the installed version.
pub(crate) struct ShadowCandidate {
    pub(crate) component: Vec<u8>,
    /// The keys of an `[[extension]]` as TOML. `None`: the settings of the installed version.
    pub(crate) settings: Option<String>,
    /// The percentage of turns that are replayed to the shadow: 1 to 100.
    pub(crate) share: u8,
}

impl Admin {
    /// Runs a component as a shadow of an installed extension. `id` is the URI or the digest of the extension.
    pub(crate) async fn begin_shadow(
        &self,
        caller: AdminCaller,
        of: &OfTenant,
        id: &str,
        candidate: ShadowCandidate,
    ) -> Result<Shadow, AdminError> {
        let installer = self.changeable(of).await?;
        let uri = installer.find(id)?.uri().clone();
        let ShadowCandidate { component, settings, share } = candidate;
        if !(1..=100).contains(&share) {
            return Err(AdminError::invalid(format!("`share` is {share}; it is 1 to 100 of 100 turns")));
        }
        let redaction = self.sessions.redaction.clone();
        let told = has("got a shadow", &uri, of);
        let (component, digest) = digested(component).await?;
        let text = settings.as_deref().map(|text| Digest::of(text.as_bytes()).to_string());
        let subject = Subject { component: Some(digest), text, ..subject(of, &uri) };
        let caller = caller.about(Action::BeginShadow, subject);
        let change = async move { installer.shadow(&uri, component, settings, share, redaction).await };
        let shadow = whole(caller, change, |_| told).await?;
        Ok(Shadow::of(&shadow))
    }

    /// Installs the shadow of an extension in place of the installed version.
    pub(crate) async fn promote_shadow(
        &self,
        caller: AdminCaller,
        of: &OfTenant,
        id: &str,
    ) -> Result<Details, AdminError> {
        let here = self.changeable(of).await?;
        let installer = Arc::clone(&here);
        let uri = here.find(id)?.uri().clone();
        let told = has("was replaced by its shadow", &uri, of);
        let caller = caller.about(Action::PromoteShadow, subject(of, &uri));
        let told = |version: &Version| effect(told, version);
        let version = whole(caller, async move { installer.promote(&uri).await }, told).await?;
        Ok(Details::of(&here, &version))
    }

    /// Ends the shadow of an extension. Returns the results of the shadow.
    pub(crate) async fn end_shadow(&self, caller: AdminCaller, of: &OfTenant, id: &str) -> Result<Shadow, AdminError> {
        let installer = self.installer(of).await?;
        let uri = installer.find(id)?.uri().clone();
        let told = has("lost its shadow", &uri, of);
        let caller = caller.about(Action::EndShadow, subject(of, &uri));
        let ended = whole(caller, async move { installer.end_shadow(&uri).await }, |_| told).await?;
        Ok(Shadow::of(&ended))
    }
}

/// The log line for an event of an extension's shadow. `happened` is the end of the sentence, such as `lost its
/// shadow`.
fn has(happened: &str, uri: &ExtensionUri, of: &OfTenant) -> String {
    format!("extension {uri}{} {happened}", of_tenant(of.tenant.as_deref()))
}
