//! `[tenants]`: tenants that are added while the server runs, and the resources that their texts may name.

use std::collections::BTreeMap;

use annex_egress::AllowedDestination;
use annex_registry::Reference;
use annex_runtime::{HostPattern, LiveCardGrant};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::grants::SecretConfig;

/// The table `[tenants]`: tenants that are added while the server runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoredTenantsConfig {
    /// Components that texts may name: paths and bare names of components that ship with Annex, which texts name by
    /// digest, and references of registries, which texts name as they are here. Files of `[[extension]]` in this config
    /// are always allowed. Default: none.
    pub components: Vec<String>,
    /// Registries, or the beginnings of paths in them, such as `registry.example/acme`. A text may name the components
    /// there by digest. The server pulls such a component when it gets the text. Default: none.
    #[serde(deserialize_with = "places")]
    pub registries: Vec<String>,
    /// Secrets that texts may name. The author of such a text can learn the secret. Default: none.
    pub secrets: BTreeMap<String, SecretConfig>,
    /// Hosts that the agents of added tenants may call. These agents may send the secrets in `secrets` to these hosts.
    /// Default: none.
    #[serde(deserialize_with = "hosts")]
    pub hosts: Vec<HostPattern>,
    /// Private hosts, addresses and ranges that the agents of added tenants may connect to. An address that `hosts`
    /// contains is always allowed. Default: none.
    #[serde(deserialize_with = "super::allowed")]
    pub allow_private: Vec<AllowedDestination>,
    /// Claims of callers' tokens that extensions of added tenants may see. Default: none.
    pub claims: Vec<String>,
    /// Header fields of requests that extensions of added tenants may see. Default: none.
    pub headers: Vec<String>,
    /// The least number of seconds between two declarations of an entry on the card that the grant `live-card` of a text
    /// may name. Default 60.
    pub live_card_at_least_seconds: u32,
    /// The maximum number of tenants that are loaded at the same time. The tenants that were idle for longest are
    /// unloaded first. Default 1,000.
    pub max_loaded: usize,
    /// The maximum number of uploaded components. 0 disables uploads. Default 100.
    pub max_uploads: u64,
    /// The maximum size of all uploaded components together, in bytes. Default 1 GiB.
    pub max_upload_bytes: u64,
    /// Seconds without a request after which a tenant is unloaded. Default 600.
    pub idle_seconds: u64,
}

impl Default for StoredTenantsConfig {
    fn default() -> Self {
        Self {
            components: Vec::new(),
            registries: Vec::new(),
            secrets: BTreeMap::new(),
            hosts: Vec::new(),
            allow_private: Vec::new(),
            claims: Vec::new(),
            headers: Vec::new(),
            live_card_at_least_seconds: LiveCardGrant::AT_LEAST_SECONDS,
            max_loaded: 1_000,
            max_uploads: 100,
            max_upload_bytes: 1 << 30,
            idle_seconds: 600,
        }
    }
}

impl StoredTenantsConfig {
    /// True if texts may name components of this place, such as `registry.example/acme/redact`.
    pub(super) fn has_registry(&self, place: &str) -> bool {
        let is_within = |registry: &String| {
            place.strip_prefix(registry.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.registries.iter().any(is_within)
    }

    /// The keys that are 0 although their values must be at least 1.
    pub(super) fn zeros(&self) -> Vec<&'static str> {
        let bounds = [
            ("tenants.live_card_at_least_seconds", self.live_card_at_least_seconds == 0),
            ("tenants.max_loaded", self.max_loaded == 0),
            ("tenants.idle_seconds", self.idle_seconds == 0),
        ];
        bounds.into_iter().filter_map(|(key, is_zero)| is_zero.then_some(key)).collect()
    }
}

/// Reads registries with or without the beginning of a path.
fn places<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    for text in &texts {
        let within = format!("{text}/x");
        if !within.parse::<Reference>().is_ok_and(|reference| reference.place() == within) {
            let reason = format!(
                "{text:?} is no registry and no beginning of a path in one; write it as in references, such as \
                 registry.example/acme"
            );
            return Err(D::Error::custom(reason));
        }
    }
    Ok(texts)
}

fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<HostPattern>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::StoredTenantsConfig;

    #[test]
    fn registries_of_tenants_are_compared_by_whole_parts_of_a_path() {
        let config: StoredTenantsConfig =
            toml::from_str("registries = [\"registry.example/acme\", \"localhost:5000\"]").expect("a table");
        for place in ["registry.example/acme/redact", "registry.example/acme", "localhost:5000/a/b"] {
            assert!(config.has_registry(place), "{place}");
        }
        for place in ["registry.example/acmex/redact", "registry.example/other", "localhost:50001/a"] {
            assert!(!config.has_registry(place), "{place}");
        }
        for wrong in ["oci://registry.example/acme", "registry.example/acme/", "registry.example/Acme", "", "a/b:1"] {
            let text = format!("registries = [{wrong:?}]");
            let refused = toml::from_str::<StoredTenantsConfig>(&text).expect_err(wrong).to_string();
            assert!(refused.contains("registry.example/acme"), "{refused}");
        }
    }
}
