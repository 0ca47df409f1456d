//! The operator's parameters.

use annex_sdk::{Json, json};
use serde::{Deserialize, Serialize};

use crate::jws::Jwk;

/// The URI of the public specification, version 0.1.
pub const DEFAULT_URI: &str = "https://github.com/google-agentic-commerce/ap2/tree/v0.1";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = r##"{
  "type": "object",
  "properties": {
    "uri": {"type": "string", "minLength": 1, "description": "The extension's URI."},
    "roles": {"type": "array", "minItems": 1, "uniqueItems": true, "items": {"enum": ["merchant", "shopper", "credentials-provider", "payment-processor"]}, "description": "The roles of the agent, shown on the card."},
    "merchants": {"type": "array", "maxItems": 100, "items": {"$ref": "#/$defs/merchant"}, "description": "Who may sign carts."},
    "issuers": {"type": "array", "maxItems": 100, "items": {"$ref": "#/$defs/issuer"}, "description": "Who issues the credentials by which users authorize payments."},
    "audience": {"type": "array", "items": {"type": "string", "minLength": 1}, "description": "Names of which one must be the `aud` of a token; without it `aud` must be there only."},
    "require_signatures": {"type": "boolean", "description": "Whether what cannot be verified is refused; true."},
    "require_cart": {"type": "boolean", "description": "Whether a payment needs a cart that is known in its conversation; true."},
    "allow_unattended": {"type": "boolean", "description": "Whether an intent may do without the user's confirmation of the cart; false."},
    "max_token_seconds": {"type": "integer", "minimum": 1, "description": "The longest life of a merchant's token; 900."},
    "max_payment_seconds": {"type": "integer", "minimum": 1, "description": "The age at which a payment is taken no more; 3600."},
    "clock_skew_seconds": {"type": "integer", "minimum": 0, "maximum": 300, "description": "How far clocks may differ; 60."}
  },
  "required": ["roles"],
  "additionalProperties": false,
  "$defs": {
    "keys": {"type": "array", "minItems": 1, "maxItems": 10, "description": "Public keys as JWK.", "items": {
      "type": "object",
      "properties": {
        "kty": {"const": "EC"}, "crv": {"const": "P-256"}, "kid": {"type": "string"},
        "x": {"type": "string"}, "y": {"type": "string"}, "alg": {"const": "ES256"}, "use": {"const": "sig"}
      },
      "required": ["kty", "crv", "x", "y"],
      "additionalProperties": false
    }},
    "merchant": {
      "type": "object",
      "properties": {
        "iss": {"type": "string", "minLength": 1, "description": "The `iss` of its tokens."},
        "name": {"type": "string", "description": "What `merchant_name` of its carts must be."},
        "agent": {"type": "string", "description": "What `merchant_agent` of payments to it must be."},
        "keys": {"$ref": "#/$defs/keys"}
      },
      "required": ["iss", "keys"],
      "additionalProperties": false
    },
    "issuer": {
      "type": "object",
      "properties": {
        "iss": {"type": "string", "minLength": 1, "description": "The `iss` of its credentials."},
        "keys": {"$ref": "#/$defs/keys"}
      },
      "required": ["iss", "keys"],
      "additionalProperties": false
    }
  }
}"##;

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
    /// The extension's URI.
    #[serde(default = "default_uri")]
    pub uri: String,
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
    /// True to refuse mandates that cannot be verified.
    #[serde(default = "yes")]
    pub require_signatures: bool,
    /// True to refuse a payment without a known cart in its conversation.
    #[serde(default = "yes")]
    pub require_cart: bool,
    /// True to accept an intent that does not require the user's confirmation of the cart.
    #[serde(default)]
    pub allow_unattended: bool,
    /// The longest lifetime of a merchant's token.
    #[serde(default = "quarter_of_an_hour")]
    pub max_token_seconds: u64,
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
    /// The `iss` of the merchant's tokens.
    pub iss: String,
    /// The required `merchant_name` of the merchant's carts.
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

    /// True if a token is for this agent.
    pub fn is_audience(&self, aud: &[&str]) -> bool {
        !aud.is_empty() && (self.audience.is_empty() || self.audience.iter().any(|name| aud.contains(&name.as_str())))
    }
}

fn default_uri() -> String {
    DEFAULT_URI.to_owned()
}

fn yes() -> bool {
    true
}

fn quarter_of_an_hour() -> u64 {
    900
}

fn hour() -> u64 {
    3_600
}

fn minute() -> u64 {
    60
}
