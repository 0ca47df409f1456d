//! `[[tenant]]`: further agents behind the same listener, each with its own file.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use annex_auth::AuthConfig;
use annex_files::Purpose;
use annex_operations::quota::TenantQuota;
use annex_text::nearest;
use annex_trust::{Policy, TrustConfig, TrustError};
use serde::Deserialize;

use super::document::Document;
use super::receipts::ReceiptsConfig;
use super::tenant_name::check_name;
use super::{AgentConfig, CardConfig, ConfigError, ExtensionConfig, Problem, extension, registries};

/// The maximum size of a tenant's file, in bytes.
const MAX_FILE_BYTES: usize = 4 << 20;

/// A table `[[tenant]]`: a further agent behind the same listener.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// The name in requests: lower-case letters, digits, `-` and `_`.
    pub name: String,
    /// A file with `[card]`, `[agent]`, `[[extension]]`, `[receipts]` and `[trust]`. Relative paths in the file start at the
    /// folder of the file.
    pub config: PathBuf,
    /// Ids of the principals that may call the tenant. Default: all authenticated principals.
    pub callers: Option<Vec<String>>,
    /// The tenant's quotas. Default: none. `server.max_running_turns` applies to each tenant separately.
    #[serde(default)]
    pub quota: TenantQuota,
}

/// The components that a tenant's file names, and who has to sign them.
pub struct TenantComponents {
    /// The `[[extension]]` tables.
    pub extensions: Vec<ExtensionConfig>,
    /// The policy of the file's `[trust]`, which adds to that of the process.
    pub policy: Option<Policy>,
}

impl TenantConfig {
    /// Reads the components that the tenant's file names. A relative path of this file starts at `folder`.
    ///
    /// # Errors
    /// The file cannot be read, or a key or value is wrong.
    pub fn read_components(&self, folder: &Path) -> Result<TenantComponents, ConfigError> {
        let path = folder.join(&self.config);
        let text = text(&path)?;
        let mut document = Document::parse(&path, &text);
        let file = decode(&mut document);
        let TenantFile { extensions, trust, .. } = document.into_checked(file)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let policy = trust.map(|trust| registries::policy(&trust, folder)).transpose();
        let policy = policy.map_err(|TrustError { key, reason }| {
            let problem = Problem { path: path.clone(), place: None, key, reason, example: None };
            ConfigError::Problems(vec![problem])
        })?;
        Ok(TenantComponents { extensions, policy })
    }
}

/// The tables of a tenant's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantFile {
    #[serde(default)]
    pub(super) card: CardConfig,
    pub(super) agent: AgentConfig,
    #[serde(default, rename = "extension")]
    pub(super) extensions: Vec<ExtensionConfig>,
    pub(super) receipts: Option<ReceiptsConfig>,
    #[serde(default, deserialize_with = "registries::of_tenant")]
    pub(super) trust: Option<TrustConfig>,
}

/// Reads a tenant's file.
///
/// # Errors
/// The file cannot be read, or other users can write the file.
pub(crate) fn text(path: &Path) -> Result<String, ConfigError> {
    // Unlike the config itself, this file must not be writable by others: the config names it, not the person who
    // starts the server.
    let text = annex_files::read_text(path, Purpose::Named, MAX_FILE_BYTES);
    text.map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// The `[[extension]]` tables of a tenant's file.
pub(super) fn extensions(path: &Path, text: &str) -> Result<Vec<ExtensionConfig>, ConfigError> {
    let mut document = Document::parse(path, text);
    let file = decode(&mut document);
    Ok(document.into_checked(file)?.extensions)
}

/// Decodes a tenant's file and notes all mistakes. Keys, tables and list elements with a mistake are left out. `None`
/// if the rest cannot be decoded.
pub(super) fn decode(document: &mut Document<'_>) -> Option<TenantFile> {
    let mut file: TenantFile = document.decode()?;
    extension::set_places(&mut file.extensions, &document.to_config_text());
    Some(file)
}

/// Checks each tenant by itself, and checks that no two tenants have the same name. Also checks that the principals in
/// `callers` exist in `[auth]`.
pub(super) fn check(tenants: &[TenantConfig], auth: Option<&AuthConfig>, document: &mut Document<'_>) {
    let mut names = HashSet::new();
    for (number, TenantConfig { name, callers, quota, .. }) in tenants.iter().enumerate() {
        if let Some(reason) = auth.and_then(|auth| unknown_caller(callers.as_deref().unwrap_or_default(), auth)) {
            document.wrong(&format!("tenant[{number}].callers"), reason);
        }
        if let Err(reason) = check_name(name) {
            document.wrong(&format!("tenant[{number}].name"), reason);
        }
        if !names.insert(name) {
            let reason = format!("{name:?} is the name of an earlier [[tenant]] too; each has one of its own");
            document.wrong(&format!("tenant[{number}].name"), reason);
        }
        for key in quota.zeros() {
            document.wrong(&format!("tenant[{number}].quota.{key}"), "must be at least 1");
        }
    }
}

/// Checks that each caller is the principal of an API key. Returns the error text for the first caller that is not.
/// Also `None` if `[auth]` accepts tokens, because only the issuer knows the principals of tokens.
pub(crate) fn unknown_caller(callers: &[String], auth: &AuthConfig) -> Option<String> {
    let principals: BTreeSet<&str> = auth.api_key.iter().map(|key| key.principal.as_str()).collect();
    if auth.accepts_tokens() || principals.is_empty() {
        return None;
    }
    let unknown = callers.iter().find(|caller| !principals.contains(caller.as_str()))?;
    let meant = nearest(unknown, principals).map(|meant| format!("; did you mean {:?}?", meant.name));
    Some(format!("{unknown:?} is the principal of no [[auth.api_key]]{}", meant.unwrap_or_default()))
}
