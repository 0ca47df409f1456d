//! The table `[trust]` of a config.

use std::collections::BTreeMap;
use std::io;

use annex_text::with_causes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::key::PublicKey;
use crate::keyless::{Claim, Identity, TrustRoot};
use crate::policy::{AnyOf, Policy, Proof, Rule, RuleSet, Signer, canonical, check_place};

/// The maximum number of signers in a rule. Each is tried with each signature.
const MAX_SIGNERS: usize = 20;
/// The maximum number of rules.
const MAX_RULES: usize = 100;
/// The issuer of the identities of GitHub's workflows. Companies have issuers of their own below it.
const GITHUB_ISSUER: &str = "https://token.actions.githubusercontent.com";
const GITHUB: &str = "https://github.com/";

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
    /// The file with the authorities and logs that verify keyless identities: the `trusted_root.json` of Sigstore.
    #[serde(default)]
    pub root_file: Option<String>,
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

/// A signer: a key, or a keyless identity. An identity has an issuer, and a subject or a repository.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignerConfig {
    /// The file with the signer's public key in PEM.
    #[serde(default)]
    pub key: Option<String>,
    /// The issuer of a keyless identity, such as `https://token.actions.githubusercontent.com`.
    #[serde(default)]
    pub issuer: Option<String>,
    /// The subject of a keyless identity: the e-mail address of a person, or the URI of a workflow.
    #[serde(default)]
    pub subject: Option<String>,
    /// The repository of the workflow that signs, such as `acme/redact` on GitHub, or a URL.
    #[serde(default)]
    pub repository: Option<String>,
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
    /// Makes the policy. `read` reads a file with a key, and the file with the trust root.
    ///
    /// # Errors
    /// [`TrustError`] names the key of the first mistake.
    pub fn policy(&self, read: impl Fn(&str) -> io::Result<Vec<u8>>) -> Result<Policy, TrustError> {
        let mut reader = RuleReader::new(&read);
        let rules = reader.rules(self);
        reader.mistakes.into_iter().next().map_or_else(|| Ok(Policy::of(rules)), Err)
    }

    /// Finds all mistakes. `read` reads a file with a key, and the file with the trust root.
    pub fn mistakes(&self, read: impl Fn(&str) -> io::Result<Vec<u8>>) -> Vec<TrustError> {
        let mut reader = RuleReader::new(&read);
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
    /// The place of the first keyless identity.
    keyless: Option<String>,
}

impl<'a> RuleReader<'a> {
    fn new(read: &'a dyn Fn(&str) -> io::Result<Vec<u8>>) -> Self {
        Self { read, mistakes: Vec::new(), keyless: None }
    }

    fn rules(&mut self, config: &TrustConfig) -> RuleSet {
        let TrustConfig { default, all_of, any_of, rule: rules, root_file, deny_file: _ } = config;
        let root = root_file.as_ref().and_then(|file| self.root(file));
        let whole = self.rule("trust", *default, all_of, any_of.as_ref());
        let by_prefix = self.by_prefix(rules);
        if let (None, Some(place)) = (root_file, &self.keyless) {
            let reason = format!(
                "is missing, and {place} is a keyless identity; name the file with the authorities and logs that verify it: \
                 the trusted_root.json of Sigstore"
            );
            self.wrong("trust.root_file".to_owned(), reason);
        }
        RuleSet { whole, by_prefix, root }
    }

    fn root(&mut self, file: &str) -> Option<TrustRoot> {
        let root = match (self.read)(file) {
            Ok(json) => TrustRoot::from_json(&json).map_err(|error| format!("{file:?} {}", with_causes(&error))),
            Err(error) => Err(format!("{file:?} cannot be read: {error}")),
        };
        root.map_err(|reason| self.wrong("trust.root_file".to_owned(), reason)).ok()
    }

    fn by_prefix(&mut self, rules: &[RuleConfig]) -> BTreeMap<String, Rule> {
        let mut by_prefix = BTreeMap::new();
        if rules.len() > MAX_RULES {
            self.wrong("trust.rule".to_owned(), format!("has more than {MAX_RULES} rules"));
            return by_prefix;
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
        by_prefix
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
            let Some(signer) = self.signer(&place, config) else { continue };
            // One signature must not count for two signers.
            match signers.iter().find_map(|earlier| signer.proof.shared_with(&earlier.proof, &earlier.name)) {
                Some((end, reason)) => self.wrong(format!("{place}{end}"), reason),
                None => signers.push(signer),
            }
        }
        signers
    }

    fn signer(&mut self, place: &str, config: &SignerConfig) -> Option<Signer> {
        let SignerConfig { key, issuer, subject, repository } = config;
        let is_keyless = issuer.is_some() || subject.is_some() || repository.is_some();
        match key {
            Some(_) if is_keyless => {
                self.wrong(place.to_owned(), "is a key and a keyless identity; name one of them".to_owned());
                None
            }
            Some(file) => self.key(format!("{place}.key"), file),
            None if is_keyless => self.identity(place, config),
            None => {
                let reason =
                    "needs a key, the file of a public key in PEM, or an issuer with a subject or a repository";
                self.wrong(place.to_owned(), reason.to_owned());
                None
            }
        }
    }

    fn key(&mut self, place: String, file: &str) -> Option<Signer> {
        let key = match (self.read)(file) {
            Ok(pem) => PublicKey::from_pem(&pem).map_err(|error| format!("{file:?} {error}")),
            Err(error) => Err(format!("{file:?} cannot be read: {error}")),
        };
        let key = key.map_err(|reason| self.wrong(place, reason)).ok()?;
        Some(Signer { name: file.to_owned(), proof: Proof::Key(key) })
    }

    fn identity(&mut self, place: &str, config: &SignerConfig) -> Option<Signer> {
        self.keyless.get_or_insert_with(|| place.to_owned());
        let SignerConfig { key: _, issuer, subject, repository } = config;
        let issuer = self.issuer(format!("{place}.issuer"), issuer.as_deref());
        let claim = match (subject, repository) {
            (Some(subject), None) if is_plain(subject) => Some(Claim::Subject(subject.clone())),
            (Some(subject), None) => {
                let reason = format!("{subject:?} cannot be a subject; write an e-mail address or a URI");
                self.wrong(format!("{place}.subject"), reason);
                None
            }
            (None, Some(repository)) => self.repository(format!("{place}.repository"), repository, issuer.as_deref()),
            (Some(_), Some(_)) => {
                self.wrong(place.to_owned(), "has a subject and a repository; name one of them".to_owned());
                None
            }
            (None, None) => {
                let reason = "needs a subject or a repository: everyone with an account at the issuer could sign";
                self.wrong(place.to_owned(), reason.to_owned());
                None
            }
        };
        let identity = Identity { issuer: issuer?, claim: claim? };
        Some(Signer { name: identity.to_string(), proof: Proof::Identity(identity) })
    }

    fn issuer(&mut self, place: String, issuer: Option<&str>) -> Option<String> {
        match issuer {
            Some(issuer) if issuer.starts_with("https://") && is_plain(issuer) => return Some(issuer.to_owned()),
            Some(issuer) => {
                self.wrong(place, format!("{issuer:?} is no issuer; write its URL, such as {GITHUB_ISSUER}"))
            }
            None => self.wrong(place, format!("is missing; write the URL of the issuer, such as {GITHUB_ISSUER}")),
        }
        None
    }

    fn repository(&mut self, place: String, repository: &str, issuer: Option<&str>) -> Option<Claim> {
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = |part: &str| !part.is_empty() && part.bytes().all(is_name_byte);
        let is_short = repository.split_once('/').is_some_and(|(owner, name)| is_name(owner) && is_name(name));
        let is_github = issuer.is_none_or(|issuer| issuer.starts_with(GITHUB_ISSUER));
        if repository.starts_with("https://") && is_plain(repository) && !repository.ends_with('/') {
            return Some(Claim::Repository(repository.to_owned()));
        }
        if is_short && is_github {
            return Some(Claim::Repository(format!("{GITHUB}{repository}")));
        }
        let reason = if is_short {
            "needs its URL, such as https://gitlab.com/acme/redact: the issuer is not that of GitHub"
        } else {
            "cannot be a repository; write acme/redact for one on GitHub, or a URL without a final slash"
        };
        self.wrong(place, format!("{repository:?} {reason}"));
        None
    }

    fn wrong(&mut self, key: String, reason: String) {
        self.mistakes.push(TrustError { key, reason });
    }
}

/// True if a certificate can have this text: it is not empty, and has no space and no control character.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.contains(|character: char| character.is_whitespace() || character.is_control())
}
