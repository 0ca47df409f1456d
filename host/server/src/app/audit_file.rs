//! The audit file of the config.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::error::AppError;
use crate::audit::{Audit, AuditError};
use crate::config::Config;
use crate::locations::Locations;

/// Opens the audit file. `None` if the config names none.
pub(super) async fn open_audit(config: &Config, locations: &Locations) -> Result<Option<Arc<Audit>>, AppError> {
    let Some(path) = audit_path(config, locations) else { return Ok(None) };
    let file = path.clone();
    let opened = spawn_blocking(move || Audit::open(file)).await;
    let audit = opened.map_err(|panicked| AuditError::Write { path, source: io::Error::other(panicked) })?;
    Ok(Some(Arc::new(audit?)))
}

/// The path of `admin.audit_file`. `None` if the config has none.
pub(super) fn audit_path(config: &Config, locations: &Locations) -> Option<PathBuf> {
    Some(locations.config.join(config.admin.as_ref()?.audit_file.as_ref()?))
}
