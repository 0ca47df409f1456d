//! Requested extensions that are unknown here. They are ignored (A2A 1.0 section 4.6). The error for a missing required
//! extension names them, because the client may have misspelt the URI.

use annex_protocol::{AgentExtension, ExtensionUri};
use annex_runtime::Installed;

/// The requested extensions that are neither installed nor passed on to a remote agent.
pub(crate) fn unknown_here(
    installed: &Installed,
    passed_on: &[AgentExtension],
    requested: &[ExtensionUri],
) -> Vec<ExtensionUri> {
    let is_known = |uri: &ExtensionUri| installed.get(uri).is_some() || passed_on.iter().any(|other| other.uri == *uri);
    requested.iter().filter(|uri| !is_known(uri)).cloned().collect()
}
