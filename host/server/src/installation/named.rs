//! Checks the names in the extensions of a config before any extension is loaded: component files, limits, and the
//! files and environment variables of secrets. All mistakes are reported.

use std::io::ErrorKind;
use std::path::absolute;

use annex_files::Purpose;

use crate::config::{Config, ConfigError, Document, ExtensionConfig};
use crate::locations::Locations;

/// Reports the mistakes in `extensions`, given the ceilings and callers of the process. `document` is the text of the
/// config.
pub(crate) fn check(
    extensions: &[ExtensionConfig],
    locations: &Locations,
    process: &Config,
    document: &mut Document<'_>,
) {
    for (number, extension) in extensions.iter().enumerate() {
        let key = format!("extension[{number}]");
        // An uploaded component is not a file.
        if extension.uploaded().is_none() {
            check_component(&extension.component, locations, &format!("{key}.component"), document);
        }
        let callers = extension.check_callers(process.auth.as_ref());
        let installation = extension.installation(&locations.config, &process.runtime.ceiling).map(drop);
        for (inner, reason) in [callers, installation].into_iter().filter_map(Result::err) {
            document.wrong(&format!("{key}.{inner}"), reason);
        }
    }
}

/// Like [`check`], for extensions that were just read from a config.
///
/// # Errors
/// All mistakes together.
pub(crate) fn check_read(
    extensions: &[ExtensionConfig],
    locations: &Locations,
    process: &Config,
) -> Result<(), ConfigError> {
    let Some(text) = extensions.first().and_then(|extension| extension.place.text()) else { return Ok(()) };
    let mut document = text.document();
    check(extensions, locations, process, &mut document);
    document.into_checked(Some(()))
}

/// Reports a component whose file cannot be read.
pub(crate) fn check_component(component: &str, locations: &Locations, key: &str, document: &mut Document<'_>) {
    let path = locations.component(component);
    // The error names the absolute path, so that operators see which file was tried.
    let path = absolute(&path).unwrap_or(path);
    let Err(error) = annex_files::open(&path, Purpose::Named) else { return };
    let hint = if error.kind() == ErrorKind::NotFound { locations.instead(component) } else { String::new() };
    document.wrong(key, format!("cannot read {component:?}, which is {}: {error}{hint}", path.display()));
}
