//! The JSON of the admin API about tenants.

use serde::{Deserialize, Serialize};

/// A new tenant, or the change of an existing tenant.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The text of the tenant in TOML: `callers`, and `[quota]`, `[card]`, `[agent]` and `[[extension]]`. Absent:
    /// unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// The new state. Absent: unchanged, or active for a new tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ServingState>,
}

/// Whether a tenant is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServingState {
    /// The tenant is served.
    Active,
    /// The tenant is stored but not served.
    Suspended,
}

/// Where a tenant was defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The config of the server names the tenant, so the API cannot change it.
    Config,
    /// The tenant was added over the API.
    Added,
}

/// A tenant in a list.
#[derive(Debug, Deserialize, Serialize)]
pub struct TenantSummary<Text = String> {
    /// The name of the tenant.
    pub name: Text,
    /// Where the tenant was defined: in the server's config or over the admin API.
    pub source: Source,
    /// The revision: the number of the tenant's last change. Absent for a tenant of the config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rev: Option<u64>,
    /// The state of the tenant.
    pub state: ServingState,
    /// True if the answering process has loaded the tenant.
    pub loaded: bool,
    /// Why the answering process does not serve the tenant. Absent if no failure is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Text>,
}

/// A page of a list of tenants.
#[derive(Debug, Deserialize, Serialize)]
pub struct List<Text = String> {
    /// The tenants. The first page begins with all tenants of the config. These tenants do not count towards the length
    /// of the page. The added tenants follow, sorted by name.
    pub tenants: Vec<TenantSummary<Text>>,
    /// The value of `after` for the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One tenant in full.
#[derive(Debug, Deserialize, Serialize)]
pub struct Tenant<Text = String> {
    /// The fields of the tenant's entry in [`List`].
    #[serde(flatten)]
    pub listed: TenantSummary<Text>,
    /// The text of the tenant in TOML. Absent for a tenant of the config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// The answer to the removal of a tenant.
#[derive(Debug, Deserialize, Serialize)]
pub struct RemovedTenant<Text = String> {
    /// The name of the tenant.
    pub removed: Text,
    /// The revision of the removal.
    pub rev: u64,
}
