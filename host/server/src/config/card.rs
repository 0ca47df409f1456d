//! `[card]`: the part of the Agent Card that the server does not generate.

use std::path::PathBuf;

use serde::Deserialize;

/// The table `[card]`: the part of the Agent Card that the server does not generate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardConfig {
    /// The agent's name for people. Required, except for an upstream agent, whose own card has one.
    pub name: Option<String>,
    /// The agent's description for people. Required, except for an upstream agent, whose own card has one.
    pub description: Option<String>,
    /// The agent's version. Default `1.0.0`.
    pub version: Option<String>,
    /// URL of the agent's documentation.
    pub documentation_url: Option<String>,
    /// URL of the agent's icon.
    pub icon_url: Option<String>,
    /// The organisation that offers the agent.
    pub provider: Option<ProviderConfig>,
    /// Media types that messages may have: `type/subtype`, `type/*` or `*/*`. Default `text/plain` and
    /// `application/json`.
    pub input_modes: Option<Vec<String>>,
    /// The bindings that the card lists, the preferred one first. The server also serves the bindings that the card
    /// does not list. Default: `JSONRPC`, `HTTP+JSON`, `GRPC`. Leave out `GRPC` for clients that refuse cards with its
    /// `host:port`, such as google-adk 2.13.
    pub bindings: Option<Vec<BindingConfig>>,
    /// The agent's skills. Every card should have at least one.
    #[serde(default, rename = "skill")]
    pub skills: Vec<SkillConfig>,
    /// Additions for authenticated callers. Needs `[auth]`.
    pub extended: Option<ExtendedCardConfig>,
    /// The key that signs the card.
    pub signing: Option<SigningConfig>,
}

impl CardConfig {
    /// The configured bindings of the card. If none are configured, all bindings in their default order.
    pub(crate) fn bindings(&self) -> Vec<BindingConfig> {
        let all = vec![BindingConfig::JsonRpc, BindingConfig::HttpJson, BindingConfig::Grpc];
        self.bindings.clone().unwrap_or(all)
    }

    /// The required keys that are not set.
    pub(super) fn missing(&self) -> impl Iterator<Item = &'static str> {
        let needed = [("card.name", self.name.is_none()), ("card.description", self.description.is_none())];
        needed.into_iter().filter_map(|(key, is_missing)| is_missing.then_some(key))
    }

    /// Checks that the card has at least one binding and names no binding twice.
    ///
    /// # Errors
    /// The reason why the bindings are refused.
    pub(super) fn check_bindings(&self) -> Result<(), &'static str> {
        let bindings = self.bindings();
        let is_repeated = |(place, binding)| bindings.iter().take(place).any(|earlier| earlier == binding);
        match bindings.as_slice() {
            [] => Err("names no binding, so no client could call the agent"),
            bindings if bindings.iter().enumerate().any(is_repeated) => Err("names a binding twice"),
            _ => Ok(()),
        }
    }
}

/// A binding of A2A 1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum BindingConfig {
    /// JSON-RPC over HTTP.
    #[serde(rename = "JSONRPC")]
    JsonRpc,
    /// HTTP with JSON bodies (REST).
    #[serde(rename = "HTTP+JSON")]
    HttpJson,
    /// gRPC.
    #[serde(rename = "GRPC")]
    Grpc,
}

/// The table `[card.extended]`: what only authenticated callers see on the card.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtendedCardConfig {
    /// The description that authenticated callers see instead of the public description.
    pub description: Option<String>,
    /// Skills in addition to the public ones.
    #[serde(default, rename = "skill")]
    pub skills: Vec<SkillConfig>,
}

/// The table `[card.signing]`: the key that signs the card.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigningConfig {
    /// The id of the key (`kid`) in the signature, by which clients find the public key.
    pub kid: String,
    /// A file with the private key. The type of the key is P-256, Ed25519 or RSA, and its format is PEM in PKCS#8.
    /// Excludes `key_env`.
    pub key_file: Option<PathBuf>,
    /// The environment variable with the private key, in the format that `key_file` needs. Excludes `key_file`.
    pub key_env: Option<String>,
}

/// The table `[card.provider]`: the organisation that offers the agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// The organisation's name.
    pub organization: String,
    /// The URL of the organisation's web page.
    pub url: String,
}

/// A table `[[card.skill]]`: one skill of the agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillConfig {
    /// The id, unique on the card.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// The skill's description.
    #[serde(default)]
    pub description: String,
    /// Keywords for searches, such as `travel`.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Example questions.
    #[serde(default)]
    pub examples: Vec<String>,
}
