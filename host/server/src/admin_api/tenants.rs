//! The JSON of the admin API about tenants.

use serde::{Deserialize, Serialize};

/// A tenant to add, or a change of one.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Its text, TOML: `callers`, and `[quota]`, `[card]`, `[agent]` and `[[extension]]`. Absent: as before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The state that it is to have. Absent: as before, or active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
}

/// The state of a tenant: to be served, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is.
    Active,
    /// It is kept and not served.
    Suspended,
}

/// Where a tenant comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The config of the server names it, and the API cannot change it.
    Config,
    /// It was added.
    Added,
}

/// A tenant in a list.
#[derive(Debug, Deserialize, Serialize)]
pub struct Listed<Text = String> {
    /// Its name.
    pub name: Text,
    /// Where it comes from.
    pub source: Source,
    /// The number of its last change; absent for one of the config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rev: Option<u64>,
    /// Its state.
    pub state: State,
    /// True if it is loaded here.
    pub loaded: bool,
    /// Why it is not served here; absent where nothing is known to be wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Text>,
}

/// Tenants.
#[derive(Debug, Deserialize, Serialize)]
pub struct List<Text = String> {
    /// Those of the config, which are not counted and stand in the first list alone, and then those that were added, by name.
    pub tenants: Vec<Listed<Text>>,
    /// The next list comes `after` this; absent in the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A tenant.
#[derive(Debug, Deserialize, Serialize)]
pub struct Tenant<Text = String> {
    /// As in a list.
    #[serde(flatten)]
    pub listed: Listed<Text>,
    /// Its text; absent for one of the config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// A tenant that was removed.
#[derive(Debug, Deserialize, Serialize)]
pub struct Removed<Text = String> {
    /// Its name.
    pub removed: Text,
    /// The number of its removal.
    pub rev: u64,
}
