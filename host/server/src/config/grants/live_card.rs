//! The grant `live-card`: how often an extension may change its entry on the card.

use annex_runtime::LiveCardGrant;
use serde::{Deserialize, Serialize};

/// The key `live-card = { at_least_seconds = … }`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "a table such as {}")]
pub struct LiveCardGrantConfig {
    /// The least number of seconds between two declarations of the entry. Default 60, the time for which clients keep
    /// the card.
    pub at_least_seconds: u32,
}

impl Default for LiveCardGrantConfig {
    fn default() -> Self {
        Self { at_least_seconds: LiveCardGrant::AT_LEAST_SECONDS }
    }
}

impl LiveCardGrantConfig {
    pub(super) fn to_grant(self) -> Result<LiveCardGrant, (&'static str, String)> {
        if self.at_least_seconds == 0 {
            return Err(("grants.live-card.at_least_seconds", "must be at least 1".to_owned()));
        }
        Ok(LiveCardGrant { at_least_seconds: self.at_least_seconds })
    }
}
