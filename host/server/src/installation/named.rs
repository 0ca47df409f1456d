//! Checks what the extensions of a config name, all of it and before any of it is loaded: component files, limits, and the
//! files and environment variables of secrets.

use std::io::ErrorKind;
use std::path::absolute;

use annex_files::Purpose;

use crate::config::{Config, ConfigError, Document, ExtensionConfig};
use crate::locations::Locations;

/// Notes what is wrong by the ceiling and the callers of the process. `document` is the text that the extensions stand in.
pub(crate) fn check(
    extensions: &[ExtensionConfig],
    locations: &Locations,
    process: &Config,
    document: &mut Document<'_>,
) {
    for (number, extension) in extensions.iter().enumerate() {
        let key = format!("extension[{number}]");
        // One that was uploaded is no file.
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

/// The same for extensions that were just read from a config.
///
/// # Errors
/// With all that is wrong.
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

/// Notes a component whose file cannot be read.
pub(crate) fn check_component(component: &str, locations: &Locations, key: &str, document: &mut Document<'_>) {
    let path = locations.component(component);
    // From the root, so that nobody has to guess where it was looked for.
    let path = absolute(&path).unwrap_or(path);
    let Err(error) = annex_files::open(&path, Purpose::Named) else { return };
    let hint = if error.kind() == ErrorKind::NotFound { locations.instead(component) } else { String::new() };
    document.wrong(key, format!("cannot read {component:?}, which is {}: {error}{hint}", path.display()));
}
