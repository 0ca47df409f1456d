//! The table `[trust]` of a config.

use std::collections::BTreeMap;
use std::io;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::key::PublicKey;
use crate::policy::{AnyOf, Policy, Rule, RuleSet, Signer, canonical, check_place};

/// The maximum number of signers in a rule. Each is tried with each signature.
const MAX_SIGNERS: usize = 20;
/// The maximum number of rules.
const MAX_RULES: usize = 100;

/// The decision about a component whose rule names no signer.
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
    /// The decision about a component whose rule names no signer. Default `require`.
    #[serde(default)]
    pub default: Unruled,
    /// The signers that must all have signed. An empty list is an error.
    #[serde(default, deserialize_with = "some_signers")]
    pub all_of: Vec<SignerConfig>,
    /// Signers of whom some must have signed.
    #[serde(default)]
    pub any_of: Option<AnyOfConfig>,
    /// Rules for some registries and paths. The longest prefix applies.
    #[serde(default)]
    pub rule: Vec<RuleConfig>,
    /// The file with the [`DenyList`](crate::DenyList), which the server reads and watches.
    #[serde(default)]
    pub deny_file: Option<String>,
}

/// A rule for the components below a prefix.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// A registry, or a registry and the beginning of a path, such as `registry.example/acme`. A prefix has whole parts of
    /// a path: `registry.example/ac` is no prefix of `registry.example/acme`. The names `docker.io`, `index.docker.io` and
    /// `registry-1.docker.io` are one registry.
    pub prefix: String,
    /// The same as `default` of [`TrustConfig`].
    #[serde(default)]
    pub default: Unruled,
    /// The same as `all_of` of [`TrustConfig`].
    #[serde(default, deserialize_with = "some_signers")]
    pub all_of: Vec<SignerConfig>,
    /// The same as `any_of` of [`TrustConfig`].
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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
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

/// Reads a list of signers. An empty list would need no signature, which only `default = "allow"` says clearly.
fn some_signers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SignerConfig>, D::Error> {
    let signers: Vec<SignerConfig> = Vec::deserialize(deserializer)?;
    if signers.is_empty() {
        return Err(D::Error::custom("the list of signers is empty; name the file of a key, or leave the list away"));
    }
    Ok(signers)
}

impl TrustConfig {
    /// Makes the policy. `read` reads a file with a key.
    ///
    /// # Errors
    /// [`TrustError`] names the key of the first mistake.
    pub fn policy(&self, read: impl Fn(&str) -> io::Result<Vec<u8>>) -> Result<Policy, TrustError> {
        let mut reader = RuleReader { read: &read, mistakes: Vec::new() };
        let rules = reader.rules(self);
        reader.mistakes.into_iter().next().map_or_else(|| Ok(Policy::of(rules)), Err)
    }

    /// Finds all mistakes. `read` reads a file with a key.
    pub fn mistakes(&self, read: impl Fn(&str) -> io::Result<Vec<u8>>) -> Vec<TrustError> {
        let mut reader = RuleReader { read: &read, mistakes: Vec::new() };
        reader.rules(self);
        reader.mistakes
    }
}

impl SignerConfig {
    /// The signer with the public key in this file.
    #[must_use]
    pub fn of_key(file: &str) -> Self {
        Self { key: Some(file.to_owned()), ..Self::default() }
    }
}

/// Makes rules, and notes each mistake.
struct RuleReader<'a> {
    read: &'a dyn Fn(&str) -> io::Result<Vec<u8>>,
    mistakes: Vec<TrustError>,
}

impl RuleReader<'_> {
    fn rules(&mut self, config: &TrustConfig) -> RuleSet {
        let TrustConfig { default, all_of, any_of, rule: rules, deny_file: _ } = config;
        let whole = self.rule("trust", *default, all_of, any_of.as_ref());
        let mut by_prefix = BTreeMap::new();
        if rules.len() > MAX_RULES {
            self.wrong("trust.rule".to_owned(), format!("has more than {MAX_RULES} rules"));
            return RuleSet { whole, by_prefix };
        }
        for (number, RuleConfig { prefix, default, all_of, any_of }) in rules.iter().enumerate() {
            let table = format!("trust.rule[{number}]");
            let key = format!("{table}.prefix");
            if let Err(reason) = check_place(prefix) {
                let example = "write it like registry.example/acme";
                self.wrong(key.clone(), format!("{prefix:?} cannot be used: {reason}; {example}"));
            }
            let rule = self.rule(&table, *default, all_of, any_of.as_ref());
            if by_prefix.insert(canonical(prefix).into_owned(), rule).is_some() {
                self.wrong(key, format!("{prefix:?} has a rule already"));
            }
        }
        RuleSet { whole, by_prefix }
    }

    fn rule(&mut self, table: &str, unruled: Unruled, all_of: &[SignerConfig], any_of: Option<&AnyOfConfig>) -> Rule {
        let all_of = self.signers(&format!("{table}.all_of"), all_of);
        let any_of = any_of.map(|AnyOfConfig { minimum, signers }| {
            let named = self.signers(&format!("{table}.any_of.signers"), signers);
            if *minimum == 0 || *minimum > signers.len() {
                let reason = format!("must be from 1 to the number of signers, {}", signers.len());
                self.wrong(format!("{table}.any_of.minimum"), reason);
            }
            AnyOf { minimum: *minimum, signers: named }
        });
        Rule { table: table.to_owned(), unruled, all_of, any_of }
    }

    fn signers(&mut self, place: &str, configs: &[SignerConfig]) -> Vec<Signer> {
        if configs.len() > MAX_SIGNERS {
            self.wrong(place.to_owned(), format!("has more than {MAX_SIGNERS} signers"));
            return Vec::new();
        }
        let mut signers: Vec<Signer> = Vec::with_capacity(configs.len());
        for (number, config) in configs.iter().enumerate() {
            let place = format!("{place}[{number}]");
            match self.signer(&place, config) {
                Ok(signer) => match signers.iter().find(|earlier| earlier.key == signer.key) {
                    // One signature would count for two signers.
                    Some(same) => self.wrong(format!("{place}.key"), format!("is the key of {:?} again", same.name)),
                    None => signers.push(signer),
                },
                Err(mistake) => self.mistakes.push(mistake),
            }
        }
        signers
    }

    fn signer(&self, place: &str, config: &SignerConfig) -> Result<Signer, TrustError> {
        let wrong = |key: &str, reason: String| TrustError { key: key.to_owned(), reason };
        let SignerConfig { key, issuer, subject, repository } = config;
        if issuer.is_some() || subject.is_some() || repository.is_some() {
            let reason = "is a keyless identity, which cannot be verified yet; set `key` to the file of a public key in PEM \
                          (ECDSA over P-256, or Ed25519)";
            return Err(wrong(place, reason.to_owned()));
        }
        let Some(file) = key else {
            return Err(wrong(place, "needs a key: the file of a public key in PEM".to_owned()));
        };
        let place = format!("{place}.key");
        let pem = (self.read)(file).map_err(|error| wrong(&place, format!("{file:?} cannot be read: {error}")))?;
        let key = PublicKey::from_pem(&pem).map_err(|error| wrong(&place, format!("{file:?} {error}")))?;
        Ok(Signer { name: file.clone(), key })
    }

    fn wrong(&mut self, key: String, reason: String) {
        self.mistakes.push(TrustError { key, reason });
    }
}
