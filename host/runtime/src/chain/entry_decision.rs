//! The decision of the hook `extended-card`.

use annex_protocol::AgentExtension;
use serde::{Deserialize, Serialize};

/// The decision of an extension about its entry on the extended card.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryDecision {
    /// The reader gets the entry as it is on the card.
    Unchanged,
    /// The reader gets this entry.
    Replaced(AgentExtension),
}
