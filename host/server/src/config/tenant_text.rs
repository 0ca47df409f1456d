//! The text of a tenant that comes by the admin API: TOML with the tables of a tenant's file.
//!
//! Whoever writes it is not who runs the server, so it names no files, environment variables, programs or paths. Its types
//! are its own and list what may stand there: a key that the config gets is refused here until somebody adds it.

use std::path::Path;

use annex_operations::quota::TenantQuota;
use serde::Deserialize;

use super::{AgentConfig, BindingConfig, ConfigError, Document, ExtendedCardConfig};
use super::{CardConfig, ExtensionConfig, ProviderConfig, SigningConfig, SkillConfig, StoredTenantsConfig};

mod agent;
mod extension;
mod lent;
mod mistakes;

use agent::TextAgent;
use extension::TextExtension;
use lent::{Lent, Wrong};

/// The most bytes of a text.
pub(crate) const MAX_TEXT_BYTES: usize = 256 << 10;

/// The most extensions of a text, each of which is compiled or read, and tried out, when the tenant is loaded.
const MAX_EXTENSIONS: usize = 64;

/// The most entries of `allow` in all extensions of a text: each request looks at them.
const MAX_ALLOWED: usize = 1_000;

/// What is wrong in a text, and its place.
#[derive(Debug, thiserror::Error)]
#[error("{place}:{}{reason}", gap(.reason))]
pub struct TenantTextError {
    /// The key, or the line; the number of the mistakes where they are several.
    place: String,
    /// Several reasons are a line each, behind a line break.
    reason: String,
}

/// What stands between the place and the reasons.
fn gap(reason: &str) -> &'static str {
    if reason.starts_with('\n') { "" } else { " " }
}

impl TenantTextError {
    pub(crate) fn new(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { place: place.into(), reason: reason.into() }
    }

    /// The same with the places in the file of the text.
    pub(crate) fn in_file(self, file: &Path, text: &str) -> ConfigError {
        let mut problems = mistakes::in_file::<TenantText>(file, text);
        if problems.is_empty() {
            let document = Document::parse(file, text);
            problems.extend(document.remark(&self.place, self.reason));
        }
        ConfigError::Problems(problems)
    }
}

/// The text as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantText {
    /// As in `[[tenant]]`.
    pub(crate) callers: Option<Vec<String>>,
    /// As in `[[tenant]]`.
    #[serde(default)]
    quota: TenantQuota,
    #[serde(default)]
    card: TextCard,
    agent: TextAgent,
    #[serde(default, rename = "extension")]
    extensions: Vec<TextExtension>,
}

/// The content of a text, with what it names in the place of the names. Components still stand there by their names.
pub(crate) struct AdmittedTenant {
    pub(crate) quota: TenantQuota,
    pub(crate) card: CardConfig,
    pub(crate) agent: AgentConfig,
    pub(crate) extensions: Vec<ExtensionConfig>,
}

/// `[card]`
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

/// `[card.signing]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextSigning {
    kid: String,
    /// The name of the lent secret that has the key.
    secret: String,
}

impl TenantText {
    /// The number of its extensions.
    pub(crate) fn extensions(&self) -> usize {
        self.extensions.len()
    }

    /// # Errors
    /// The lines, and what is wrong there.
    pub(crate) fn parse(text: &str) -> Result<Self, TenantTextError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(TenantTextError::new("the text", format!("has more than {MAX_TEXT_BYTES} bytes")));
        }
        toml::from_str(text).map_err(|first| {
            let (place, reason) = mistakes::of::<Self>(text, &first);
            TenantTextError::new(place, reason)
        })
    }

    /// Puts what the operator lends in the place of its names, and refuses what is not lent.
    ///
    /// # Errors
    /// The key, what is wrong with it, and what to do.
    pub(crate) fn admit(self, allowed: &StoredTenantsConfig) -> Result<AdmittedTenant, TenantTextError> {
        let Self { quota, card, agent, extensions, .. } = self;
        if let Some(key) = quota.of_nothing() {
            return Err(TenantTextError::new(format!("quota.{key}"), "must be at least 1"));
        }
        let lent = Lent(allowed);
        let wrong = |(key, reason): Wrong| TenantTextError::new(key, reason);
        lent.check_most("extension", (Some(extensions.len()), MAX_EXTENSIONS)).map_err(wrong)?;
        let allowed = extensions.iter().map(TextExtension::allowed).sum();
        lent.check_most("extension.allow", (Some(allowed), MAX_ALLOWED)).map_err(wrong)?;
        Ok(AdmittedTenant {
            quota,
            card: card.admit(&lent).map_err(wrong)?,
            agent: agent.admit(&lent).map_err(wrong)?,
            extensions: extensions.into_iter().map(|one| one.admit(&lent)).collect::<Result<_, _>>().map_err(wrong)?,
        })
    }
}

impl TextCard {
    fn admit(self, lent: &Lent<'_>) -> Result<CardConfig, Wrong> {
        let signing = self.signing.map(|TextSigning { kid, secret }| {
            let (key_env, key_file) = lent.secret("card.signing.secret", &secret)?.places();
            Ok(SigningConfig { kid, key_file, key_env })
        });
        Ok(CardConfig {
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
            signing: signing.transpose()?,
        })
    }
}

#[cfg(test)]
mod tests;
