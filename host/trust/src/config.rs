//! The table `[trust]` of a config.

use std::io;

use serde::Deserialize;

use crate::key::PublicKey;
use crate::policy::{AnyOf, Policy, Rule, Signer};

/// The maximum number of signers in a rule. Each is tried with each signature.
const MAX_SIGNERS: usize = 20;
/// The maximum number of rules.
const MAX_RULES: usize = 100;

/// What happens to a component for which no signer is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unruled {
    /// The component is refused.
    #[default]
    Require,
    /// The component is accepted without a signature.
    Allow,
}

/// The table `[trust]`. Its own keys apply to each component that no rule applies to.
///
/// ```toml
/// [trust]
/// default = "require"
/// all_of = [{ key = "keys/acme.pub" }]
///
/// [[trust.rule]]
/// prefix = "registry.example/experiments"
/// default = "allow"
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustConfig {
    /// What happens to a component for which no signer is named. Default `require`.
    #[serde(default)]
    pub default: Unruled,
    /// The signers that must all have signed.
    #[serde(default)]
    pub all_of: Vec<SignerConfig>,
    /// Signers of whom some must have signed.
    #[serde(default)]
    pub any_of: Option<AnyOfConfig>,
    /// Rules for some registries and paths. The longest prefix applies.
    #[serde(default)]
    pub rule: Vec<RuleConfig>,
}

/// A rule for the components below a prefix.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// A registry, or a registry and the beginning of a path, such as `registry.example/acme`. A prefix ends where a part of
    /// the path ends: `registry.example/ac` is no prefix of `registry.example/acme`.
    pub prefix: String,
    /// As in [`TrustConfig`].
    #[serde(default)]
    pub default: Unruled,
    /// As in [`TrustConfig`].
    #[serde(default)]
    pub all_of: Vec<SignerConfig>,
    /// As in [`TrustConfig`].
    #[serde(default)]
    pub any_of: Option<AnyOfConfig>,
}

/// Signers of whom some must have signed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnyOfConfig {
    /// The number of signers that must have signed.
    pub minimum: usize,
    /// The signers.
    pub signers: Vec<SignerConfig>,
}

/// A signer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignerConfig {
    /// The file with the signer's public key in PEM.
    #[serde(default)]
    pub key: Option<String>,
    /// The issuer of a keyless identity. Not supported yet.
    #[serde(default)]
    issuer: Option<String>,
    /// The subject of a keyless identity. Not supported yet.
    #[serde(default)]
    subject: Option<String>,
    /// The repository of a keyless identity. Not supported yet.
    #[serde(default)]
    repository: Option<String>,
}

/// A key of `[trust]` has a value that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} {reason}")]
pub struct TrustError {
    /// The key, such as `trust.all_of[0].key`.
    pub key: String,
    /// The reason.
    pub reason: String,
}

fn wrong(key: String, reason: impl Into<String>) -> TrustError {
    TrustError { key, reason: reason.into() }
}

impl TrustConfig {
    /// Makes the policy. `read` reads a file with a key.
    ///
    /// # Errors
    /// [`TrustError`] names the key.
    pub fn policy(&self, read: impl Fn(&str) -> io::Result<Vec<u8>>) -> Result<Policy, TrustError> {
        if self.rule.len() > MAX_RULES {
            return Err(wrong("trust.rule".to_owned(), format!("has more than {MAX_RULES} rules")));
        }
        let whole = rule("trust", (self.default, &self.all_of, self.any_of.as_ref()), &read)?;
        let mut rules: Vec<(String, Rule)> = Vec::with_capacity(self.rule.len());
        for (number, of_prefix) in self.rule.iter().enumerate() {
            let RuleConfig { prefix, default, all_of, any_of } = of_prefix;
            let place = format!("trust.rule[{number}]");
            check_prefix(prefix).map_err(|reason| wrong(format!("{place}.prefix"), reason))?;
            if rules.iter().any(|(earlier, _)| earlier == prefix) {
                return Err(wrong(format!("{place}.prefix"), format!("{prefix:?} has a rule already")));
            }
            rules.push((prefix.clone(), rule(&place, (*default, all_of, any_of.as_ref()), &read)?));
        }
        Ok(Policy { whole, rules })
    }
}

fn rule(
    place: &str,
    (unruled, all_of, any_of): (Unruled, &[SignerConfig], Option<&AnyOfConfig>),
    read: &impl Fn(&str) -> io::Result<Vec<u8>>,
) -> Result<Rule, TrustError> {
    let all_of = signers(&format!("{place}.all_of"), all_of, read)?;
    let any_of = match any_of {
        Some(AnyOfConfig { minimum, signers: named }) => {
            let named = signers(&format!("{place}.any_of.signers"), named, read)?;
            if *minimum == 0 || *minimum > named.len() {
                let reason = format!("must be from 1 to the number of signers, {}", named.len());
                return Err(wrong(format!("{place}.any_of.minimum"), reason));
            }
            Some(AnyOf { minimum: *minimum, signers: named })
        }
        None => None,
    };
    Ok(Rule { place: place.to_owned(), unruled, all_of, any_of })
}

fn signers(
    place: &str,
    configs: &[SignerConfig],
    read: &impl Fn(&str) -> io::Result<Vec<u8>>,
) -> Result<Vec<Signer>, TrustError> {
    if configs.len() > MAX_SIGNERS {
        return Err(wrong(place.to_owned(), format!("has more than {MAX_SIGNERS} signers")));
    }
    let mut signers: Vec<Signer> = Vec::with_capacity(configs.len());
    for (number, config) in configs.iter().enumerate() {
        let place = format!("{place}[{number}]");
        let SignerConfig { key, issuer, subject, repository } = config;
        if issuer.is_some() || subject.is_some() || repository.is_some() {
            return Err(wrong(
                place,
                "is a keyless identity, which this version cannot verify; name the file of a key",
            ));
        }
        let Some(file) = key else { return Err(wrong(place, "needs a key: the file of a public key in PEM")) };
        let place = format!("{place}.key");
        let pem = read(file).map_err(|error| wrong(place.clone(), format!("{file:?} cannot be read: {error}")))?;
        let key = PublicKey::from_pem(&pem).map_err(|error| wrong(place.clone(), format!("{file:?} {error}")))?;
        // One signature would count for two signers.
        if let Some(same) = signers.iter().find(|signer| signer.key == key) {
            return Err(wrong(place, format!("is the key of {:?} again", same.name)));
        }
        signers.push(Signer { name: file.clone(), key });
    }
    Ok(signers)
}

fn check_prefix(prefix: &str) -> Result<(), String> {
    if prefix.is_empty() || prefix.contains("://") || prefix.starts_with('/') || prefix.ends_with('/') {
        return Err(format!("{prefix:?} is no registry with a path; write it like registry.example/acme"));
    }
    Ok(())
}
