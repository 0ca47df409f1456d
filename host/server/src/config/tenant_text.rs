//! The text of a tenant that comes through the admin API: TOML with the tables of a tenant's file.
//!
//! The author of the text is not the operator, so a text cannot name files, environment variables, programs or paths.
//! The types here list the allowed keys. A new key of the config is refused in texts until it is added here.

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
use lent::{LentResources, Wrong};

/// The most bytes of a text.
pub(crate) const MAX_TEXT_BYTES: usize = 256 << 10;

/// The most extensions of a text. Loading the tenant compiles each one or reads it from the cache, and tries it out.
const MAX_EXTENSIONS: usize = 64;

/// The most entries of `allow` in all extensions of a text. Each request is compared with every entry.
const MAX_ALLOWED: usize = 1_000;

/// A mistake in a text, with its place.
#[derive(Debug, thiserror::Error)]
#[error("{place}:{}{reason}", gap(.reason))]
pub struct TenantTextError {
    /// The key or the line. For several mistakes, their number.
    place: String,
    /// The reason. Several reasons stand on a line each, after a leading line break.
    reason: String,
}

/// The separator between place and reason.
fn gap(reason: &str) -> &'static str {
    if reason.starts_with('\n') { "" } else { " " }
}

impl TenantTextError {
    pub(crate) fn new(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { place: place.into(), reason: reason.into() }
    }

    /// The same mistakes with file, line and column.
    pub(crate) fn in_file(self, file: &Path, text: &str) -> ConfigError {
        let mut problems = mistakes::in_file::<TenantText>(file, text);
        if problems.is_empty() {
            let document = Document::parse(file, text);
            problems.extend(document.remark(&self.place, self.reason));
        }
        ConfigError::Problems(problems)
    }
}

/// A text before its check.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantText {
    /// The same as in `[[tenant]]`.
    pub(crate) callers: Option<Vec<String>>,
    /// The same as in `[[tenant]]`.
    #[serde(default)]
    quota: TenantQuota,
    #[serde(default)]
    card: TextCard,
    agent: TextAgent,
    #[serde(default, rename = "extension")]
    extensions: Vec<TextExtension>,
}

/// A text whose names of secrets are replaced by the secrets' locations. Components still have their names.
pub(crate) struct AdmittedTenant {
    pub(crate) quota: TenantQuota,
    pub(crate) card: CardConfig,
    pub(crate) agent: AgentConfig,
    pub(crate) extensions: Vec<ExtensionConfig>,
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
    /// The number of extensions.
    pub(crate) fn extensions(&self) -> usize {
        self.extensions.len()
    }

    /// Parses a text.
    ///
    /// # Errors All mistakes, with their lines.
    pub(crate) fn parse(text: &str) -> Result<Self, TenantTextError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(TenantTextError::new("the text", format!("has more than {MAX_TEXT_BYTES} bytes")));
        }
        toml::from_str(text).map_err(|first| {
            let (place, reason) = mistakes::of::<Self>(text, &first);
            TenantTextError::new(place, reason)
        })
    }

    /// Replaces names of lent secrets by their locations, and checks the limits on texts.
    ///
    /// # Errors The first key that names something the operator does not lend, or exceeds a limit.
    pub(crate) fn admit(self, allowed: &StoredTenantsConfig) -> Result<AdmittedTenant, TenantTextError> {
        let Self { quota, card, agent, extensions, .. } = self;
        if let Some(key) = quota.of_nothing() {
            return Err(TenantTextError::new(format!("quota.{key}"), "must be at least 1"));
        }
        let lent = LentResources(allowed);
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
    fn admit(self, lent: &LentResources<'_>) -> Result<CardConfig, Wrong> {
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
