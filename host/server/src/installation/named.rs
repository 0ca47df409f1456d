//! Checks `[[extension]]` tables before any extension is loaded: the component files, the limits, and the files and
//! environment variables of secrets. All mistakes are reported.

use std::io::ErrorKind;
use std::path::absolute;

use annex_files::Purpose;

use crate::config::{Config, ConfigError, ExtensionConfig};
use crate::locations::Locations;

/// The mistakes in `extensions`, as pairs of key and reason. The extensions are checked against the ceilings and
/// callers of `process`.
pub(crate) fn wrong(extensions: &[ExtensionConfig], locations: &Locations, process: &Config) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    for (number, extension) in extensions.iter().enumerate() {
        let mut add = |inner: &str, reason| wrong.push((format!("extension[{number}].{inner}"), reason));
        // An uploaded component is not a file.
        if extension.uploaded().is_none()
            && let Some(reason) = unreadable(&extension.component, locations)
        {
            add("component", reason);
        }
        if let Err((inner, reason)) = extension.check_callers(process.auth.as_ref()) {
            add(inner, reason);
        }
        for (inner, reason) in extension.wrong(&locations.config, &process.runtime.ceiling) {
            add(&inner, reason);
        }
    }
    wrong
}

/// Checks extensions that were just read from a config.
///
/// # Errors
/// All mistakes in the extensions.
pub(crate) fn check_read(
    extensions: &[ExtensionConfig],
    locations: &Locations,
    process: &Config,
) -> Result<(), ConfigError> {
    let Some(text) = extensions.first().and_then(|extension| extension.place.text()) else { return Ok(()) };
    let mut document = text.document();
    for (key, reason) in wrong(extensions, locations, process) {
        document.wrong(&key, reason);
    }
    document.into_checked(Some(()))
}

/// The reason why the file of a component cannot be read. `None` if it can.
pub(crate) fn unreadable(component: &str, locations: &Locations) -> Option<String> {
    let path = locations.component(component);
    // The error names the absolute path, so that operators see which file was tried.
    let path = absolute(&path).unwrap_or(path);
    let error = annex_files::open(&path, Purpose::Named).err()?;
    let hint = if error.kind() == ErrorKind::NotFound { locations.instead(component) } else { String::new() };
    Some(format!("cannot read {component:?}, which is {}: {error}{hint}", path.display()))
}
