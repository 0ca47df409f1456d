//! Checks `[[extension]]` tables before any extension is loaded: the components, the limits, and the files and
//! environment variables of secrets. All mistakes are reported.

use std::cell::OnceCell;
use std::io::ErrorKind;
use std::path::absolute;

use annex_files::Purpose;
use annex_registry::is_reference;
use annex_telemetry::fault;
use annex_trust::TrustConfig;

use crate::config::{Config, ConfigError, ExtensionConfig};
use crate::installation::locked::LockedComponents;
use crate::locations::Locations;

/// Checks `extensions` against the ceilings, callers and trusted signers of `process`. `trust` is the table `[trust]` of a
/// tenant's file. Returns each mistake as a pair of key and reason.
pub(crate) fn wrong(
    extensions: &[ExtensionConfig],
    locations: &Locations,
    process: &Config,
    trust: Option<&TrustConfig>,
) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    let components = NamedComponents { locations, process, trust, locked: OnceCell::new() };
    for (number, extension) in extensions.iter().enumerate() {
        let mut add = |inner: &str, reason| wrong.push((format!("extension[{number}].{inner}"), reason));
        // An uploaded or pulled component is neither a file nor locked.
        if extension.uploaded().is_none()
            && !extension.is_pulled
            && let Some(reason) = components.unusable(&extension.component)
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

/// Checks components that the config of the process names. Returns the number and the reason of each that cannot be used.
pub(crate) fn unusable(components: &[String], locations: &Locations, process: &Config) -> Vec<(usize, String)> {
    let named = NamedComponents { locations, process, trust: None, locked: OnceCell::new() };
    let numbered = components.iter().enumerate();
    numbered.filter_map(|(number, component)| Some((number, named.unusable(component)?))).collect()
}

/// The files, the lock and the policy of the components that a config names.
struct NamedComponents<'a> {
    locations: &'a Locations,
    process: &'a Config,
    /// The table `[trust]` of a tenant's file.
    trust: Option<&'a TrustConfig>,
    /// Opened for the first reference.
    locked: OnceCell<LockedComponents>,
}

impl NamedComponents<'_> {
    /// The reason why a component cannot be used. `None` if it can.
    fn unusable(&self, component: &str) -> Option<String> {
        let Self { locations, process, trust, locked } = self;
        if !is_reference(component) {
            return unreadable(component, locations);
        }
        let locked = locked.get_or_init(|| LockedComponents::open(locations, process, *trust));
        locked.read(component).err().map(|error| fault::text(&error))
    }
}

/// Checks extensions that were just read from a config.
///
/// # Errors
/// All mistakes in the extensions.
pub(crate) fn check_read(
    extensions: &[ExtensionConfig],
    locations: &Locations,
    process: &Config,
    trust: Option<&TrustConfig>,
) -> Result<(), ConfigError> {
    let Some(text) = extensions.first().and_then(|extension| extension.place.text()) else { return Ok(()) };
    let mut document = text.document();
    for (key, reason) in wrong(extensions, locations, process, trust) {
        document.wrong(&key, reason);
    }
    document.into_checked(Some(()))
}

/// The reason why the file of a component cannot be read. `None` if it can.
fn unreadable(component: &str, locations: &Locations) -> Option<String> {
    let path = locations.component(component);
    // The error names the absolute path, so that operators see which file was tried.
    let path = absolute(&path).unwrap_or(path);
    let error = annex_files::open(&path, Purpose::Named).err()?;
    let hint = if error.kind() == ErrorKind::NotFound { locations.instead(component) } else { String::new() };
    Some(format!("cannot read {component:?}, which is {}: {error}{hint}", path.display()))
}
