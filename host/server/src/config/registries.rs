//! `[trust]` and `[registries]`: whose components are installed by reference, and how their registries are called.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use annex_files::Purpose;
use annex_registry::Reference;
use annex_trust::{MAX_KEY_BYTES, Policy, TrustConfig, TrustError};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The maximum size of a file with certificates in bytes.
const MAX_CA_BYTES: usize = 1 << 20;

/// The table `[registries."HOST"]`: how a registry is called. Commands such as `annex lock` call
/// registries. A server does so only for the texts of tenants that `tenants.registries` allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegistryConfig {
    /// Uses http in place of https. A registry on loopback is called by http anyway, unless it has a `ca_file`.
    pub plain_http: bool,
    /// A file with certificates in PEM, which are trusted beside the public ones.
    pub ca_file: Option<PathBuf>,
    /// Lets the registry be on a private network. Default: no.
    pub allow_private: bool,
}

/// The host of a registry with its port, spelled as in references.
#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct RegistryHost(String);

impl TryFrom<String> for RegistryHost {
    type Error = String;

    fn try_from(host: String) -> Result<Self, String> {
        match format!("{host}/x").parse::<Reference>() {
            Ok(reference) if reference.registry() == host => Ok(Self(host)),
            _ => Err(format!(
                "{host:?} is not a registry; write its host as in references, such as registry.example or \
                 registry.example:5000"
            )),
        }
    }
}

pub(super) fn by_host<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, RegistryConfig>, D::Error> {
    let registries = BTreeMap::<RegistryHost, RegistryConfig>::deserialize(deserializer)?;
    Ok(registries.into_iter().map(|(RegistryHost(host), registry)| (host, registry)).collect())
}

/// Reads the table `[trust]` of a tenant's file. The list of denied digests is one for the whole process.
pub(super) fn of_tenant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TrustConfig>, D::Error> {
    let trust = TrustConfig::deserialize(deserializer)?;
    if trust.deny_file.is_some() {
        return Err(D::Error::custom("deny_file is for the config of the server, which denies for all; leave it out"));
    }
    Ok(Some(trust))
}

impl RegistryConfig {
    /// The settings for a client. The relative path of a `ca_file` starts at `folder`.
    pub(super) fn for_client(&self, folder: &Path) -> annex_registry::RegistryConfig {
        annex_registry::RegistryConfig {
            plain_http: self.plain_http,
            ca_file: self.ca_file.as_ref().map(|file| folder.join(file)),
            allow_private: self.allow_private,
        }
    }

    /// The reason why the `ca_file` cannot be read. `None` if it can.
    pub(crate) fn unreadable(&self, folder: &Path) -> Option<String> {
        let path = folder.join(self.ca_file.as_ref()?);
        let error = annex_files::read(&path, Purpose::Named, MAX_CA_BYTES).err()?;
        Some(format!("cannot read {}: {error}", path.display()))
    }
}

/// The policy of a table. Relative paths of keys start at `folder`.
pub(crate) fn policy(trust: &TrustConfig, folder: &Path) -> Result<Policy, TrustError> {
    trust.policy(|file| read_key(file, folder))
}

/// Checks a table `[trust]` and its files. Returns each mistake as a pair of key and reason.
pub(crate) fn wrong_trust(trust: &TrustConfig, folder: &Path) -> Vec<(String, String)> {
    let mistakes = trust.mistakes(|file| read_key(file, folder)).into_iter();
    mistakes.map(|TrustError { key, reason }| (key, reason)).collect()
}

fn read_key(file: &str, folder: &Path) -> io::Result<Vec<u8>> {
    annex_files::read(&folder.join(file), Purpose::Named, MAX_KEY_BYTES)
}
