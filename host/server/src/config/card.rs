//! The part of the Agent Card that the server cannot know itself.

use std::path::PathBuf;

use serde::Deserialize;

/// `[card]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardConfig {
    /// The agent's name for people. This and the description can be left out for an upstream agent only, whose own card
    /// says what this one does not.
    pub name: Option<String>,
    /// The agent's description.
    pub description: Option<String>,
    /// The agent's version. Default `1.0.0`.
    pub version: Option<String>,
    /// Documentation for people.
    pub documentation_url: Option<String>,
    /// A picture.
    pub icon_url: Option<String>,
    /// The organisation that offers the agent.
    pub provider: Option<ProviderConfig>,
    /// Media types that messages may have: `type/subtype`, `type/*` or `*/*`. Default `text/plain` and
    /// `application/json`.
    pub input_modes: Option<Vec<String>>,
    /// The bindings on the card, the preferred one first; all are served. Default: all of them in this order. Leave out
    /// `GRPC` for clients that refuse cards with its `host:port`, as google-adk 2.13 does.
    pub bindings: Option<Vec<BindingConfig>>,
    /// The agent's skills. Every card should have at least one.
    #[serde(default, rename = "skill")]
    pub skills: Vec<SkillConfig>,
    /// The additions that authenticated callers get to see. Needs `[auth]`.
    pub extended: Option<ExtendedCardConfig>,
    /// The key that signs the card.
    pub signing: Option<SigningConfig>,
}

impl CardConfig {
    /// The bindings on the card.
    pub(crate) fn bindings(&self) -> Vec<BindingConfig> {
        let all = vec![BindingConfig::JsonRpc, BindingConfig::HttpJson, BindingConfig::Grpc];
        self.bindings.clone().unwrap_or(all)
    }

    /// The keys that every card needs and this one does not have.
    pub(super) fn missing(&self) -> impl Iterator<Item = &'static str> {
        let needed = [("card.name", self.name.is_none()), ("card.description", self.description.is_none())];
        needed.into_iter().filter_map(|(key, is_missing)| is_missing.then_some(key))
    }

    /// # Errors
    /// Why no card can be made with these bindings.
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
    /// The skill's description.
    #[serde(default)]
    pub description: String,
    /// Words to find it by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Things to ask.
    #[serde(default)]
    pub examples: Vec<String>,
}
