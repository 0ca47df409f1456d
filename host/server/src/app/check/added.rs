//! Checks the text of a tenant that is to be added, without the server that it is for.

use std::path::Path;
use std::sync::Arc;

use super::{Checked, check_served, warnings};
use crate::app::tenants::{ComponentsOf, admit};
use crate::config::served::ServedConfig;
use crate::config::tenant_text::{TenantText, TenantTextError};
use crate::config::{Config, ConfigError, Document, tenant};
use crate::locations::Locations;

/// Said of a component that is no file.
const NOT_HERE: &str = "is no component that the config names; the server takes the text only if this component was uploaded \
                        (`annex component push`)";

/// Checks the text of a tenant as the admin API does before it loads components. Without a config only the keys of the text
/// are checked: the config says which secrets, hosts and components a text may name.
///
/// # Errors
/// With all that is wrong in the text; or what is wrong in the config.
pub async fn check_tenant_text(
    file: &Path,
    config: Option<&Path>,
    locations: &Locations,
) -> Result<Checked, ConfigError> {
    let text = tenant::text(file)?;
    let parsed = TenantText::parse(&text).map_err(|error| error.in_file(file, &text))?;
    let Some(config) = config.map(Config::read).transpose()? else {
        return Ok(Checked { extensions: parsed.extensions(), ..Checked::default() });
    };
    let config = Arc::new(config);
    let stored = config.stored_tenants.clone().ok_or_else(|| no_tenants().in_file(file, &text))?;
    let components = ComponentsOf::new(Arc::clone(&config), locations).allowed;
    let admitted = admit(parsed, &stored, &components).map_err(|error| error.in_file(file, &text))?;
    let served = ServedConfig::of_added(admitted, &config);
    let served = served.map_err(|(key, reason)| TenantTextError::new(key, reason).in_file(file, &text))?;
    let mut document = Document::parse(file, &text);
    check_served(&served, locations, true, &mut document).await;
    let mut warnings = warnings(&served, &document);
    for (number, extension) in served.extensions.iter().enumerate() {
        if let Some(digest) = extension.uploaded() {
            let key = format!("extension[{number}].component");
            warnings.extend(document.remark(&key, format!("{digest} {NOT_HERE}")));
        }
    }
    document.into_checked(Some(Checked { extensions: served.extensions.len(), tenants: 0, warnings }))
}

fn no_tenants() -> TenantTextError {
    TenantTextError::new("", "the config has no [tenants], so that its server takes no tenants; add that table")
}
