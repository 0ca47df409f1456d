//! The versions of AP2, and what differs between their parameters.

use serde::Deserialize;

/// A version of AP2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Version {
    /// 0.1, with mandates for intents, carts and payments.
    #[default]
    #[serde(rename = "0.1")]
    V0_1,
    /// 0.2, with mandates for checkouts and payments, which are SD-JWTs.
    #[serde(rename = "0.2")]
    V0_2,
}

impl Version {
    /// The extension's URI. Version 0.2 has no page about A2A, so its URI is that of the published samples.
    pub fn uri(self) -> &'static str {
        match self {
            Self::V0_1 => "https://github.com/google-agentic-commerce/ap2/tree/v0.1",
            Self::V0_2 => "https://github.com/google-agentic-commerce/ap2/v1",
        }
    }

    /// The default for the longest lifetime of a merchant's token. The published samples of 0.2 make checkouts for an hour.
    pub fn max_token_seconds(self) -> u64 {
        match self {
            Self::V0_1 => 900,
            Self::V0_2 => 3_600,
        }
    }
}
