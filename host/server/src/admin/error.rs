//! The errors that the admin API returns.

use std::error::Error;
use std::sync::Arc;

use annex_telemetry::fault;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::roles::MissingRole;
use crate::admin_api::{Reason, Refusal};
use crate::installation::installer::InstallError;
use crate::tenants::ReloadError;

/// A refusal with its HTTP status and a code for programs.
#[derive(Debug)]
pub(crate) struct AdminError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

/// The reason of a refusal in one line. It is stored in the HTTP extensions of a response, from which the log reads it.
#[derive(Clone)]
pub(super) struct RefusalReason(pub(super) Arc<str>);

/// The maximum size of a logged reason, in bytes.
const MAX_REASON_BYTES: usize = 2 << 10;

impl AdminError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    /// The reason in one line, for the log.
    pub(crate) fn reason(&self) -> String {
        annex_text::line_within(&self.message, MAX_REASON_BYTES)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The reason as the client reads it. It may have several lines.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    pub(crate) fn unauthenticated() -> Self {
        let message = "the admin token is missing or wrong; send it as `Authorization: Bearer …`";
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", message)
    }

    /// The error for a config without `[tenants]`. Without this table tenants cannot be added and components cannot be
    /// uploaded.
    pub(super) fn no_added_tenants() -> Self {
        let message = "the config of the server lets no tenants be added; add the table [tenants] and start it again";
        Self::new(StatusCode::CONFLICT, "no_added_tenants", message)
    }

    pub(crate) fn internal(error: &(dyn Error + 'static)) -> Self {
        let message = format!("the server's log has the details under {}", fault::log_for_client(error));
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }
}

impl From<MissingRole> for AdminError {
    fn from(MissingRole(message): MissingRole) -> Self {
        Self::new(StatusCode::FORBIDDEN, "missing_role", message)
    }
}

impl From<InstallError> for AdminError {
    fn from(error: InstallError) -> Self {
        let (status, code) = match &error {
            InstallError::Name { .. } => (StatusCode::BAD_REQUEST, "invalid_name"),
            InstallError::NotInstalled { .. } => (StatusCode::NOT_FOUND, "not_installed"),
            InstallError::Ambiguous { .. } => (StatusCode::CONFLICT, "ambiguous"),
            InstallError::NoVersion { .. } => (StatusCode::CONFLICT, "no_version"),
            InstallError::NoShadow { .. } => (StatusCode::CONFLICT, "no_shadow"),
            InstallError::Observed { .. } => (StatusCode::CONFLICT, "observed"),
            InstallError::OtherExtension { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "other_extension"),
            InstallError::AsksForMore { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "asks_for_more"),
            InstallError::NoFile => (StatusCode::CONFLICT, "no_config_file"),
            InstallError::Set { .. } => (StatusCode::CONFLICT, "does_not_fit"),
            InstallError::Config(_) | InstallError::Table { .. } => {
                (StatusCode::UNPROCESSABLE_ENTITY, "invalid_config")
            }
            InstallError::Setting { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "invalid_settings"),
            InstallError::Read { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "unreadable"),
            InstallError::Load { .. } | InstallError::Several(_) => (StatusCode::UNPROCESSABLE_ENTITY, "refused"),
            InstallError::Denied { .. } | InstallError::OutOfService(_) => (StatusCode::UNPROCESSABLE_ENTITY, "denied"),
            InstallError::Folder { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "extensions_dir"),
            InstallError::Cards(_) => (StatusCode::INTERNAL_SERVER_ERROR, "cards"),
            InstallError::Busy => (StatusCode::CONFLICT, "busy"),
            InstallError::Unable { .. } => (StatusCode::CONFLICT, "replica_unable"),
            InstallError::NotKept { .. } => (StatusCode::CONFLICT, "not_kept"),
            InstallError::Silent { .. } => (StatusCode::GATEWAY_TIMEOUT, "replica_silent"),
            InstallError::Behind { .. } => (StatusCode::GATEWAY_TIMEOUT, "replica_behind"),
            InstallError::LeaseOver => (StatusCode::SERVICE_UNAVAILABLE, "lease_over"),
            InstallError::Editions(_) => (StatusCode::SERVICE_UNAVAILABLE, "database"),
            InstallError::Unreadable { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "unreadable_edition"),
        };
        let message = match &error {
            // A config file may have several mistakes. Each one gets a line of the message.
            InstallError::Config(config) => match config.lines().as_slice() {
                [_] => error.public_text(),
                lines => format!("{error}:\n{}", lines.join("\n")),
            },
            _ => error.public_text(),
        };
        Self::new(status, code, message)
    }
}

impl From<ReloadError> for AdminError {
    fn from(ReloadError { error, needs_restart }: ReloadError) -> Self {
        let mut refused = Self::from(*error);
        for key in needs_restart {
            refused.message.push_str(&format!("\nNeeds a restart: {key}"));
        }
        refused
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let reason = self.reason();
        let body = Refusal { error: Reason { code: self.code, message: self.message } };
        let mut response = (self.status, Json(body)).into_response();
        response.extensions_mut().insert(RefusalReason(reason.into()));
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
