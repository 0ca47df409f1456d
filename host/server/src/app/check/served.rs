//! The checks of one agent: its extensions, the settings of its kind, its instruction, and its card.

use std::path::Path;

use annex_agent::unclosed_placeholder;
use annex_runtime::Installed;
use annex_telemetry::fault;

use super::answers;
use crate::app::agents;
use crate::config::served::ServedConfig;
use crate::config::{ConfigError, Document, Problem, registries};
use crate::installation::issuer::Issuer;
use crate::installation::named;
use crate::locations::Locations;

/// A placeholder URL for cards that are issued only for the check.
pub(super) const BASE_URL: &str = "http://localhost";

/// The result of a check.
#[derive(Debug)]
pub struct CheckReport {
    /// Probable mistakes that do not keep a server from starting.
    pub warnings: Vec<Problem>,
    /// The numbers of extensions and tenants in the checked files, or all mistakes that keep a server from starting.
    pub outcome: Result<Counts, ConfigError>,
}

/// The numbers of extensions and tenants in checked files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of extensions of the config and of its tenants.
    pub extensions: usize,
    /// The number of tenants of the config.
    pub tenants: usize,
}

/// Finds probable mistakes in the text. Mistakes that keep the agent from being served are not in the result.
pub(super) fn warnings(path: &Path, text: &str) -> Vec<Problem> {
    // A new document, because entries with mistakes are removed from one that was checked.
    let document = Document::parse(path, text);
    let open = document.value("agent.instruction").and_then(unclosed_placeholder);
    let warning = open.and_then(|name| {
        let reason = format!(
            "the brace before {name} is not closed, so the model gets the text as it is; write {{{name}}} for the value in \
             the session's state"
        );
        document.remark("agent.instruction", reason)
    });
    warning.into_iter().chain(answers::warnings(&document, text)).collect()
}

/// Checks one agent: its extensions, a tenant's `[trust]`, the settings of its kind, and its card. Returns each mistake as a pair of key and
/// reason.
pub(super) async fn wrong_in_served(
    served: &ServedConfig,
    locations: &Locations,
    has_agent: bool,
) -> Vec<(String, String)> {
    let trust = served.trust.as_ref();
    let mut wrong = named::wrong(&served.extensions, locations, &served.process, trust);
    wrong.extend(trust.iter().flat_map(|trust| registries::wrong_trust(trust, &locations.config)));
    if let Ok(agent) = served.agent()
        && has_agent
    {
        wrong.extend(agents::wrong(agent, &locations.config).await);
    }
    match Issuer::new(served, "", BASE_URL, None, locations) {
        Err(error) => wrong.push((format!("card.signing{}", error.key()), fault::text(&error))),
        Ok(issuer) => {
            let cards = issuer.cards(&Installed::default()).err();
            wrong.extend(cards.map(|error| ("card".to_owned(), fault::text(&error))));
        }
    }
    wrong
}
