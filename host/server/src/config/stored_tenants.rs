//! `[tenants]`: tenants that are added while the server runs, and what their texts may name.

use std::collections::BTreeMap;

use annex_egress::AllowedDestination;
use annex_runtime::HostPattern;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::grants::SecretConfig;

/// `[tenants]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoredTenantsConfig {
    /// Components that texts may name by their digests, besides those of `[[extension]]` in this config: paths, or bare names of
    /// components that ship. Default: none.
    pub components: Vec<String>,
    /// Secrets that texts may name. Whoever writes a text that names one can learn it. Default: none.
    pub secrets: BTreeMap<String, SecretConfig>,
    /// Hosts that agents of texts may call, with the secrets that these name. Default: none.
    #[serde(deserialize_with = "hosts")]
    pub hosts: Vec<HostPattern>,
    /// Hosts, addresses and ranges that these agents may connect to although they are not public, besides the addresses that
    /// `hosts` writes out. Default: none.
    #[serde(deserialize_with = "super::allowed")]
    pub allow_private: Vec<AllowedDestination>,
    /// Tenants that are kept loaded; the one that was idle for longest goes first. Default 1,000.
    pub max_loaded: usize,
    /// Components that may be uploaded for texts to name, in all. Default 100; with 0 none may.
    pub max_uploads: u64,
    /// Bytes of all of them together. Default 1 GiB.
    pub max_upload_bytes: u64,
    /// Seconds without a request after which a tenant is no longer kept loaded. Default 600.
    pub idle_seconds: u64,
}

impl Default for StoredTenantsConfig {
    fn default() -> Self {
        Self {
            components: Vec::new(),
            secrets: BTreeMap::new(),
            hosts: Vec::new(),
            allow_private: Vec::new(),
            max_loaded: 1_000,
            max_uploads: 100,
            max_upload_bytes: 1 << 30,
            idle_seconds: 600,
        }
    }
}

impl StoredTenantsConfig {
    /// The keys that must be at least 1 and are not.
    pub(super) fn zero(&self) -> Option<&'static str> {
        let bounds = [("tenants.max_loaded", self.max_loaded == 0), ("tenants.idle_seconds", self.idle_seconds == 0)];
        bounds.into_iter().find_map(|(key, is_zero)| is_zero.then_some(key))
    }
}

fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<HostPattern>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}
