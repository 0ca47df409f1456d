//! The grant for the hook `live-card`.

/// How often an extension may change its entry on the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveCardGrant {
    /// The least number of seconds between two declarations. An entry that holds for a shorter time is declared again
    /// after this time.
    pub at_least_seconds: u32,
}

impl LiveCardGrant {
    /// Default for [`at_least_seconds`](Self::at_least_seconds). Clients keep a card for as long.
    pub const AT_LEAST_SECONDS: u32 = 60;
}

impl Default for LiveCardGrant {
    fn default() -> Self {
        Self { at_least_seconds: Self::AT_LEAST_SECONDS }
    }
}
