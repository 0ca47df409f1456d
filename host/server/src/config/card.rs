//! What the Agent Card says besides what the server knows itself.

use std::path::PathBuf;

use serde::Deserialize;

/// `[card]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardConfig {
    /// The agent's name for people.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The agent's version. Default `1.0.0`.
    #[serde(default = "first_version")]
    pub version: String,
    /// Documentation for people.
    pub documentation_url: Option<String>,
    /// A picture.
    pub icon_url: Option<String>,
    /// Who offers the agent.
    pub provider: Option<ProviderConfig>,
    /// Media types that messages may have: `type/subtype`, `type/*` or `*/*`. Default `text/plain` and
    /// `application/json`.
    #[serde(default = "default_input_modes")]
    pub input_modes: Vec<String>,
    /// The bindings on the card, the preferred one first; all are served. Default: all of them in this order. Leave out
    /// `GRPC` for clients that refuse cards with its `host:port`, as google-adk 2.13 does.
    #[serde(default = "BindingConfig::all")]
    pub bindings: Vec<BindingConfig>,
    /// What it can do; at least one is good manners.
    #[serde(default, rename = "skill")]
    pub skills: Vec<SkillConfig>,
    /// What authenticated callers get to see besides. Needs `[auth]`.
    pub extended: Option<ExtendedCardConfig>,
    /// The key that signs the card.
    pub signing: Option<SigningConfig>,
}

impl CardConfig {
    /// # Errors
    /// Why no card can be made with these bindings.
    pub(super) fn check_bindings(&self) -> Result<(), &'static str> {
        let is_repeated = |(place, binding)| self.bindings.iter().take(place).any(|earlier| earlier == binding);
        match self.bindings.as_slice() {
            [] => Err("names no binding, so no client could call the agent"),
            bindings if bindings.iter().enumerate().any(is_repeated) => Err("names a binding twice"),
            _ => Ok(()),
        }
    }
}

/// A binding of A2A 1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum BindingConfig {
    /// JSON-RPC.
    #[serde(rename = "JSONRPC")]
    JsonRpc,
    /// HTTP+JSON.
    #[serde(rename = "HTTP+JSON")]
    HttpJson,
    /// gRPC.
    #[serde(rename = "GRPC")]
    Grpc,
}

impl BindingConfig {
    fn all() -> Vec<Self> {
        vec![Self::JsonRpc, Self::HttpJson, Self::Grpc]
    }
}

/// `[card.extended]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtendedCardConfig {
    /// Instead of the public description.
    pub description: Option<String>,
    /// Skills after the public ones.
    #[serde(default, rename = "skill")]
    pub skills: Vec<SkillConfig>,
}

/// `[card.signing]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigningConfig {
    /// Names the key in the signature, for those who verify it.
    pub kid: String,
    /// A file with the private key, PEM in PKCS#8: P-256, Ed25519 or RSA. This or `key_env`.
    pub key_file: Option<PathBuf>,
    /// The environment variable with the same. This or `key_file`.
    pub key_env: Option<String>,
}

fn default_input_modes() -> Vec<String> {
    vec!["text/plain".to_owned(), "application/json".to_owned()]
}

fn first_version() -> String {
    "1.0.0".to_owned()
}

/// `[card.provider]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// The organisation's name.
    pub organization: String,
    /// Its web page.
    pub url: String,
}

/// `[[card.skill]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillConfig {
    /// Unique on the card.
    pub id: String,
    /// For people.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// Words to find it by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Things to ask.
    #[serde(default)]
    pub examples: Vec<String>,
}
