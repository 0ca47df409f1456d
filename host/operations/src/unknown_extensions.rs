//! Extensions that a client asks for and that are not known here. They are ignored (A2A 1.0 section 4.6), and are worth a
//! word where one that is required is missing: the client may have misspelt it.

use annex_protocol::{AgentExtension, ExtensionUri};
use annex_runtime::Installed;

/// Those of the requested extensions that are neither installed nor passed on to an agent that lives elsewhere.
pub(crate) fn unknown_here(
    installed: &Installed,
    passed_on: &[AgentExtension],
    requested: &[ExtensionUri],
) -> Vec<ExtensionUri> {
    let is_known = |uri: &ExtensionUri| installed.get(uri).is_some() || passed_on.iter().any(|other| other.uri == *uri);
    requested.iter().filter(|uri| !is_known(uri)).cloned().collect()
}
