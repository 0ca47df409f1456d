//! The operator's parameters.

use annex_sdk::{Json, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalogue::id_of;
use crate::version::Version;

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The treatment of an answer with A2UI that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Invalid {
    /// The task fails.
    #[default]
    Refuse,
    /// The answer goes out without the message of A2UI.
    Drop,
}

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "ConfigTable")]
pub struct Parameters {
    /// The version of A2UI.
    pub version: Version,
    /// The extension's URI.
    pub uri: String,
    /// Ids of the catalogues that the agent uses.
    pub supported_catalogs: Vec<String>,
    /// Documents of catalogues that are not built in.
    pub catalogs: Vec<Value>,
    /// True if a client may bring catalogues.
    pub accepts_inline_catalogs: bool,
    /// True if a message without capabilities is refused.
    pub require_capabilities: bool,
    /// The treatment of an answer with A2UI that does not fit.
    pub invalid: Invalid,
}

/// The parameters as the config has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigTable {
    #[serde(default)]
    version: Version,
    uri: Option<String>,
    supported_catalogs: Option<Vec<String>>,
    #[serde(default)]
    catalogs: Vec<Value>,
    #[serde(default)]
    accepts_inline_catalogs: bool,
    #[serde(default = "yes")]
    require_capabilities: bool,
    #[serde(default)]
    invalid: Invalid,
}

impl From<ConfigTable> for Parameters {
    fn from(table: ConfigTable) -> Self {
        let ConfigTable { version, catalogs, .. } = table;
        let own = || catalogs.iter().filter_map(id_of).map(str::to_owned).collect::<Vec<_>>();
        let defaults = || if catalogs.is_empty() { vec![version.basic_catalogue().to_owned()] } else { own() };
        Self {
            version,
            uri: table.uri.unwrap_or_else(|| version.uri().to_owned()),
            supported_catalogs: table.supported_catalogs.unwrap_or_else(defaults),
            catalogs,
            accepts_inline_catalogs: table.accepts_inline_catalogs,
            require_capabilities: table.require_capabilities,
            invalid: table.invalid,
        }
    }
}

impl Parameters {
    /// The `params` of the entry on the card.
    ///
    /// # Errors
    /// The params are no JSON, which does not happen.
    pub fn card_params(&self) -> Result<Json, String> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct CardParams<'a> {
            supported_catalog_ids: &'a [String],
            accepts_inline_catalogs: bool,
        }
        json::text(&CardParams {
            supported_catalog_ids: &self.supported_catalogs,
            accepts_inline_catalogs: self.accepts_inline_catalogs,
        })
    }
}

fn yes() -> bool {
    true
}
