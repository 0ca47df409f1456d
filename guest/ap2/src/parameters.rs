//! The operator's parameters.

use annex_sdk::{Json, json};
use serde::{Deserialize, Serialize};

use crate::jws::Jwk;
use crate::version::Version;

/// In `nonces`: stands for the hash of the checkout that a mandate is for.
pub const CHECKOUT_HASH: &str = "{checkout_hash}";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// A role of an agent in AP2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Creates carts.
    Merchant,
    /// Acts on behalf of the user.
    Shopper,
    /// Manages the user's payment methods.
    CredentialsProvider,
    /// Processes payments for a merchant.
    PaymentProcessor,
}

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The version of AP2.
    #[serde(default)]
    pub version: Version,
    /// The extension's URI, if it differs from that of the version.
    uri: Option<String>,
    /// The roles of the agent.
    pub roles: Vec<Role>,
    /// The merchants whose signatures on carts are accepted.
    #[serde(default)]
    pub merchants: Vec<Merchant>,
    /// The issuers that the operator trusts to issue the credentials of users.
    #[serde(default)]
    pub issuers: Vec<Issuer>,
    /// The accepted audiences. A token's `aud` must contain one of these; if empty, any audience is accepted.
    #[serde(default)]
    pub audience: Vec<String>,
    /// The accepted nonces of mandates of version 0.2. If empty, any nonce is accepted.
    #[serde(default)]
    pub nonces: Vec<String>,
    /// True to refuse mandates that cannot be verified.
    #[serde(default = "yes")]
    pub require_signatures: bool,
    /// True to refuse a payment without a known cart or checkout in its conversation.
    #[serde(default = "yes")]
    pub require_cart: bool,
    /// True to accept that an agent buys without the user's confirmation of the cart or checkout.
    #[serde(default)]
    pub allow_unattended: bool,
    /// The longest lifetime of a merchant's token, if it differs from that of the version.
    max_token_seconds: Option<u64>,
    /// The age at which a payment is refused.
    #[serde(default = "hour")]
    pub max_payment_seconds: u64,
    /// The largest accepted difference between clocks.
    #[serde(default = "minute")]
    pub clock_skew_seconds: u64,
}

/// A merchant that the operator trusts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Merchant {
    /// The `iss` of the merchant's tokens. In version 0.2 the `id` of the merchant.
    pub iss: String,
    /// The required name of the merchant in its carts and checkouts.
    pub name: Option<String>,
    /// The required `merchant_agent` of payments to the merchant.
    pub agent: Option<String>,
    /// The merchant's public keys.
    pub keys: Vec<Jwk>,
}

/// An issuer of users' credentials.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The `iss` of the issuer's credentials.
    pub iss: String,
    /// The issuer's public keys.
    pub keys: Vec<Jwk>,
}

impl Parameters {
    /// The extension's URI.
    pub fn uri(&self) -> &str {
        self.uri.as_deref().unwrap_or(self.version.uri())
    }

    /// The longest lifetime of a merchant's token.
    pub fn max_token_seconds(&self) -> u64 {
        self.max_token_seconds.unwrap_or(self.version.max_token_seconds())
    }

    /// True if the agent has the role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Checks the roles and the keys.
    ///
    /// # Errors
    /// There is no role, or a key cannot be used. The error fails the load of the extension.
    pub fn check(&self) -> Result<(), String> {
        if self.roles.is_empty() {
            return Err("`roles` must name at least one role".to_owned());
        }
        let merchants = self.merchants.iter().map(|merchant| (&merchant.iss, &merchant.keys));
        let issuers = self.issuers.iter().map(|issuer| (&issuer.iss, &issuer.keys));
        for (iss, keys) in merchants.chain(issuers) {
            for key in keys {
                key.verifying_key().map_err(|error| format!("a key of {iss:?} cannot be used: {error}"))?;
            }
        }
        Ok(())
    }

    /// The `params` of the entry on the card.
    ///
    /// # Errors
    /// The roles cannot be written as JSON.
    pub fn card_params(&self) -> Result<Json, String> {
        Ok(format!(r#"{{"roles":{}}}"#, json::text(&self.roles)?))
    }

    /// True if `nonces` has the nonce of a mandate for the checkout with this hash.
    pub fn is_nonce(&self, nonce: &str, checkout_hash: &str) -> bool {
        let accepted = |name: &str| if name == CHECKOUT_HASH { nonce == checkout_hash } else { nonce == name };
        self.nonces.is_empty() || self.nonces.iter().any(|name| accepted(name))
    }

    /// True if a token is for this agent.
    pub fn is_audience(&self, aud: &[&str]) -> bool {
        !aud.is_empty() && (self.audience.is_empty() || self.audience.iter().any(|name| aud.contains(&name.as_str())))
    }
}

fn yes() -> bool {
    true
}

fn hour() -> u64 {
    3_600
}

fn minute() -> u64 {
    60
}
