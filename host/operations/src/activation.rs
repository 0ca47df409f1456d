//! Which extensions take part in a request (A2A 1.0 section 4.6, topic "Extensions").
//!
//! Decided before any task, session or guest exists. A URI is a version: it matches to the letter or not at all.

use std::sync::Arc;

use annex_protocol::{A2aError, AgentExtension, ExtensionUri};
use annex_runtime::{Extension, Installed};

use crate::unknown_extensions::unknown_here;

/// The installed extensions that the client asked for, in the order of the config.
///
/// One whose dependencies were not asked for stays inactive. Unknown URIs are ignored. Those that are `passed_on` are
/// activated by an agent that lives elsewhere.
///
/// # Errors
/// [`A2aError::ExtensionSupportRequired`] when a required extension, or one that it depends on, was not asked for.
pub(crate) fn negotiate(
    installed: &Installed,
    passed_on: &[AgentExtension],
    requested: &[ExtensionUri],
) -> Result<Vec<Arc<Extension>>, A2aError> {
    let asked = |uri: &ExtensionUri| requested.contains(uri);
    let mut active: Vec<Arc<Extension>> = Vec::new();
    let mut missing = Vec::new();
    // Each extension with the URI that the client has to ask for before it can be active; `None` for one that is.
    let mut lacking: Vec<(&ExtensionUri, Option<&ExtensionUri>)> = Vec::new();
    // Dependencies stand before what depends on them, so that one pass is enough.
    for extension in installed.iter() {
        let lack_of = |uri| lacking.iter().find(|(other, _)| *other == uri).map_or(Some(uri), |(_, lack)| *lack);
        let lack = if asked(extension.uri()) {
            extension.descriptor().depends_on.iter().find_map(lack_of)
        } else {
            Some(extension.uri())
        };
        match lack {
            None => active.push(Arc::clone(extension)),
            Some(uri) if extension.is_required() && !missing.contains(&uri) => missing.push(uri),
            Some(_) => {}
        }
        lacking.push((extension.uri(), lack));
    }
    // The requirements of an upstream are enforced here as well, before anything is sent to it.
    missing.extend(passed_on.iter().filter(|other| other.required && !asked(&other.uri)).map(|other| &other.uri));
    if missing.is_empty() {
        tell(&active);
        return Ok(active);
    }
    let missing = missing.into_iter().cloned().collect();
    Err(A2aError::ExtensionSupportRequired { missing, unknown: unknown_here(installed, passed_on, requested) })
}

/// For the line of the request in the log.
fn tell(active: &[Arc<Extension>]) {
    annex_telemetry::with(|request| {
        if request.is_logged() && !active.is_empty() {
            let uris: Vec<&str> = active.iter().map(|extension| extension.uri().as_str()).collect();
            let _ = request.extensions.set(uris.join(",").into());
        }
    });
}
