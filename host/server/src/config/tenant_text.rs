//! The text of a tenant that comes through the admin API: TOML with the tables of a tenant's file.
//!
//! The author of the text is not the operator, so a text cannot name files, environment variables, programs or paths.
//! The types here list the allowed keys. A new key of the config is refused in texts until it is added here.

use annex_operations::quota::TenantQuota;
use serde::Deserialize;

use super::{AgentConfig, BindingConfig, ExtendedCardConfig, ReceiptsConfig};
use super::{CardConfig, ExtensionConfig, ProviderConfig, SigningConfig, SkillConfig, StoredTenantsConfig};

mod agent;
mod extension;
mod lent;
mod mistakes;

use agent::TextAgent;
use extension::TextExtension;
use lent::{Admission, Wrong};
pub(crate) use mistakes::with_hint;

/// The maximum size of a tenant's text in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 256 << 10;

/// The maximum number of extensions in a text. Loading the tenant compiles each extension or reads its code from the
/// cache, and tries the extension out.
const MAX_EXTENSIONS: usize = 64;

/// The maximum number of callers that the keys `allow` of a text may list, over all extensions. Each request is
/// compared with all of them.
const MAX_ALLOWED: usize = 1_000;

/// The error for a text with mistakes. If there is one mistake, the error says where it is in the text.
#[derive(Debug, thiserror::Error)]
#[error("{place}:{}{reason}", gap(.reason))]
pub struct TenantTextError {
    /// If there is one mistake, its key or its line. If there are several, a phrase with their number.
    place: String,
    /// If there is one mistake, the reason why it is refused. If there are several, a line break and then a line for
    /// each mistake.
    reason: String,
}

/// The separator between the two fields of the error. `reason` is the second field.
fn gap(reason: &str) -> &'static str {
    if reason.starts_with('\n') { "" } else { " " }
}

impl TenantTextError {
    pub(crate) fn new(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { place: place.into(), reason: reason.into() }
    }

    /// Makes one error from several mistakes. Each mistake is a pair of key and reason.
    pub(crate) fn of(wrong: Vec<Wrong>) -> Self {
        let (place, reason) = mistakes::listed(wrong);
        Self { place, reason }
    }
}

/// The text of a tenant before its check.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantText {
    /// The principals that may call the tenant, as in `[[tenant]]`.
    pub(crate) callers: Option<Vec<String>>,
    /// The quotas of the tenant, as in `[[tenant]]`.
    #[serde(default)]
    quota: TenantQuota,
    #[serde(default)]
    card: TextCard,
    agent: TextAgent,
    #[serde(default, rename = "extension")]
    extensions: Vec<TextExtension>,
    receipts: Option<ReceiptsConfig>,
}

/// The tables of a text in which each name of a secret is replaced by the secret's environment variable or file. The
/// names of components are not replaced yet.
pub(crate) struct AdmittedTenant {
    pub(crate) quota: TenantQuota,
    pub(crate) card: CardConfig,
    pub(crate) agent: AgentConfig,
    pub(crate) extensions: Vec<ExtensionConfig>,
    pub(crate) receipts: Option<ReceiptsConfig>,
}

/// The usable tables of a text after its check. The mistakes that the check found are returned separately.
pub(crate) struct CheckedText {
    quota: TenantQuota,
    card: CardConfig,
    /// The agent. `None` if the table `[agent]` cannot be used.
    agent: Option<AgentConfig>,
    pub(crate) extensions: Vec<ExtensionConfig>,
    receipts: Option<ReceiptsConfig>,
}

impl CheckedText {
    /// Returns the tenant of the checked text.
    ///
    /// # Errors
    /// When the text has no usable agent. The error has the extensions of the text, which the caller can still check.
    pub(crate) fn complete(self) -> Result<AdmittedTenant, Vec<ExtensionConfig>> {
        let Self { quota, card, agent, extensions, receipts } = self;
        match agent {
            Some(agent) => Ok(AdmittedTenant { quota, card, agent, extensions, receipts }),
            None => Err(extensions),
        }
    }
}

/// The table `[card]` of a tenant's text.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextCard {
    name: Option<String>,
    description: Option<String>,
    version: Option<String>,
    documentation_url: Option<String>,
    icon_url: Option<String>,
    provider: Option<ProviderConfig>,
    input_modes: Option<Vec<String>>,
    bindings: Option<Vec<BindingConfig>>,
    #[serde(default, rename = "skill")]
    skills: Vec<SkillConfig>,
    extended: Option<ExtendedCardConfig>,
    signing: Option<TextSigning>,
}

/// The table `[card.signing]` of a tenant's text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextSigning {
    kid: String,
    /// The name of the lent secret with the key.
    secret: String,
}

impl TenantText {
    /// Parses a text.
    ///
    /// # Errors
    /// All mistakes, each with its line.
    pub(crate) fn parse(text: &str) -> Result<Self, TenantTextError> {
        check_length(text).map_err(|reason| TenantTextError::new("the text", reason))?;
        toml::from_str(text).map_err(|first| {
            let (place, reason) = mistakes::of::<Self>(text, &first);
            TenantTextError::new(place, reason)
        })
    }

    /// Replaces the names of lent secrets by their environment variables or files, and checks the limits on texts.
    ///
    /// # Errors
    /// All keys that exceed a limit, or name a secret or host that the operator does not lend.
    pub(crate) fn admit(self, allowed: &StoredTenantsConfig) -> Result<AdmittedTenant, TenantTextError> {
        let (checked, wrong) = self.check(Some(allowed));
        match checked.complete() {
            Ok(admitted) if wrong.is_empty() => Ok(admitted),
            _ => Err(TenantTextError::of(wrong)),
        }
    }

    /// Like [`admit`](Self::admit), but returns the mistakes as pairs of key and reason. Without `allowed` every name
    /// of a secret or host is accepted, and no secret is looked up.
    pub(crate) fn check(self, allowed: Option<&StoredTenantsConfig>) -> (CheckedText, Vec<Wrong>) {
        let Self { quota, card, agent, extensions, receipts, .. } = self;
        let mut admission = Admission::new(allowed);
        for key in quota.zeros() {
            admission.refuse(format!("quota.{key}"), "must be at least 1");
        }
        admission.check_most("extension", (Some(extensions.len()), MAX_EXTENSIONS));
        let entries = extensions.iter().map(TextExtension::allowed).sum();
        admission.check_most("extension.allow", (Some(entries), MAX_ALLOWED));
        let card = card.admit(&mut admission);
        let agent = agent.admit(&mut admission);
        let extensions = extensions.into_iter().enumerate();
        let extensions =
            extensions.map(|(number, extension)| extension.admit(&format!("extension[{number}]"), &mut admission));
        let extensions = extensions.collect();
        (CheckedText { quota, card, agent, extensions, receipts }, admission.into_wrong())
    }
}

/// Checks that a text has at most [`MAX_TEXT_BYTES`] bytes. The error is the reason.
pub(crate) fn check_length(text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT_BYTES { Err(format!("has more than {MAX_TEXT_BYTES} bytes")) } else { Ok(()) }
}

/// Translates a key of the config into the key of a text. A config names the environment variable or file of a secret,
/// but a text names the secret. For example, `card.signing.key_env` becomes `card.signing.secret`.
pub(crate) fn key_in_text(key: &str) -> String {
    let Some((table, last)) = key.rsplit_once('.') else { return key.to_owned() };
    match last {
        "env" | "file" if table.contains(".grants.secrets.") => table.to_owned(),
        "key_env" | "key_file" | "api_key_env" | "token_env" => format!("{table}.secret"),
        "client_secret_env" | "client_secret_file" if table == "agent.oauth" => format!("{table}.secret"),
        "env" if table == "agent.credentials" => format!("{table}.secret"),
        _ => key.to_owned(),
    }
}

impl TextCard {
    fn admit(self, admission: &mut Admission<'_>) -> CardConfig {
        let signing = self.signing.and_then(|TextSigning { kid, secret }| {
            let (key_env, key_file) = admission.secret("card.signing.secret", &secret)?.places();
            Some(SigningConfig { kid, key_file, key_env })
        });
        CardConfig {
            name: self.name,
            description: self.description,
            version: self.version,
            documentation_url: self.documentation_url,
            icon_url: self.icon_url,
            provider: self.provider,
            input_modes: self.input_modes,
            bindings: self.bindings,
            skills: self.skills,
            extended: self.extended,
            signing,
        }
    }
}

#[cfg(test)]
mod tests;
