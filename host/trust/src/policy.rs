//! The policy: which signers a component needs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use annex_text::{line_within, with_causes};

use crate::bundle::{BundleError, MAX_BUNDLES, Signature, hex_of, signature_of, signing_keys};
use crate::config::Unruled;
use crate::key::PublicKey;
use crate::keyless::{Certificate, Identity, TrustRoot};

/// The name of Docker Hub in rules, and its other names.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_ALIASES: [&str; 2] = ["index.docker.io", "registry-1.docker.io"];
/// The maximum size of the text of a refusal, in bytes.
const MAX_TEXT: usize = 2_000;
/// The maximum number of signatures that a refusal explains.
const MAX_REASONS: usize = 8;
/// The maximum size of the explanation of one signature, in bytes.
const MAX_REASON: usize = 150;

/// The signers that components need, by registry and path, made by [`TrustConfig::policy`](crate::TrustConfig::policy).
#[derive(Clone, Debug)]
pub struct Policy {
    /// A component must satisfy each of these sets.
    sets: Vec<RuleSet>,
}

/// The rules of one table `[trust]`.
#[derive(Clone, Debug)]
pub(crate) struct RuleSet {
    /// The rule for components that no prefix matches.
    pub(crate) whole: Rule,
    /// The other rules by their prefixes.
    pub(crate) by_prefix: BTreeMap<String, Rule>,
    /// What verifies keyless identities.
    pub(crate) root: Option<TrustRoot>,
}

#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// The table in the config.
    pub(crate) table: String,
    pub(crate) unruled: Unruled,
    pub(crate) all_of: Vec<Signer>,
    pub(crate) any_of: Option<AnyOf>,
}

#[derive(Clone, Debug)]
pub(crate) struct AnyOf {
    pub(crate) minimum: usize,
    pub(crate) signers: Vec<Signer>,
}

#[derive(Clone, Debug)]
pub(crate) struct Signer {
    pub(crate) name: String,
    pub(crate) proof: Proof,
}

/// What shows that a signature is by the signer.
#[derive(Clone, Debug)]
pub(crate) enum Proof {
    Key(PublicKey),
    Identity(Identity),
}

/// The keys and certificates of the valid signatures of a component.
#[derive(Default)]
struct Signatures<'k> {
    keys: Vec<&'k PublicKey>,
    certificates: Vec<Certificate>,
}

/// A component that satisfies the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The signers of the policy that have signed the component, sorted. Empty if the policy needs none.
    pub signers: Vec<String>,
}

/// The reason why a component does not satisfy the policy. The text names the rule.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

impl Policy {
    pub(crate) fn of(rules: RuleSet) -> Self {
        Self { sets: vec![rules] }
    }

    /// Adds the rules of a tenant. A component must satisfy the rules of both policies, so a tenant cannot weaken the
    /// policy of the process. Refusals call the tenant's rules `the tenant's trust…`.
    #[must_use]
    pub fn strengthened(&self, tenant: &Self) -> Self {
        let of_tenant = tenant.sets.iter().map(RuleSet::of_tenant);
        Self { sets: self.sets.iter().cloned().chain(of_tenant).collect() }
    }

    /// Checks the signatures of a component. `place` is its registry and path, such as `registry.example/acme/redact`.
    /// `bundles` are the signatures in the registry or cache. The caller has checked that the manifest has the digest.
    ///
    /// The work is bounded: 100 signatures, each checked with the keys of one rule per table, at most 40, and with at most one
    /// certificate, four log entries and four timestamps.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn verify(&self, place: &str, manifest_digest: &str, bundles: &[Vec<u8>]) -> Result<Verified, Refusal> {
        let refusal = |reason: String| Refusal(line_within(&format!("{place} is not trusted: {reason}"), MAX_TEXT));
        check_place(place).map_err(|reason| refusal(reason.to_owned()))?;
        if hex_of(manifest_digest).is_none() {
            return Err(refusal(format!("{manifest_digest:?} is not the SHA-256 digest of a manifest")));
        }
        let mut signers = BTreeSet::new();
        for rules in &self.sets {
            let rule = rules.rule(place);
            signers.extend(rule.verify(manifest_digest, bundles, rules.root.as_ref()).map_err(refusal)?);
        }
        Ok(Verified { signers: signers.into_iter().map(str::to_owned).collect() })
    }
}

/// Checks that the key has signed a file that lies in no registry, such as a list of checksums. `name` is the name of the file,
/// for the refusal. The caller has computed the digest from the bytes of the file.
///
/// A component is verified by [`Policy::verify`].
///
/// # Errors
/// [`Refusal`] with the name and the reason.
///
/// # Example
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (key, _pem) = annex_trust::PrivateKey::generate()?;
/// let digest = format!("sha256:{}", "a".repeat(64));
/// let bundle = annex_trust::sign(&key, &digest, "SHA256SUMS")?;
/// annex_trust::verify_file("SHA256SUMS", &digest, &bundle, &key.public())?;
/// # Ok(())
/// # }
/// ```
pub fn verify_file(name: &str, digest: &str, bundle: &[u8], key: &PublicKey) -> Result<(), Refusal> {
    let Err(error) = signing_keys(bundle, digest, &[key]) else { return Ok(()) };
    let reason = match error {
        BundleError::Unknown => format!("the key {} has not signed it", key.id()),
        BundleError::OtherSubject => {
            "it was changed after it was signed, or the signature is of another file".to_owned()
        }
        other => format!("its signature does not count: {}", line_within(&with_causes(&other), MAX_REASON)),
    };
    Err(Refusal(line_within(&format!("{name} is not trusted: {reason}"), MAX_TEXT)))
}

impl RuleSet {
    /// The rule with the longest prefix of `place`.
    fn rule(&self, place: &str) -> &Rule {
        let place = canonical(place);
        let is_prefix =
            |prefix: &str| place.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let matching = self.by_prefix.iter().filter(|(prefix, _)| is_prefix(prefix));
        matching.max_by_key(|(prefix, _)| prefix.len()).map_or(&self.whole, |(_, rule)| rule)
    }

    fn of_tenant(&self) -> Self {
        let mut rules = self.clone();
        for rule in rules.by_prefix.values_mut().chain([&mut rules.whole]) {
            rule.table = format!("the tenant's {}", rule.table);
        }
        rules
    }
}

impl Rule {
    /// Returns the names of the signers, or the reason for the refusal.
    fn verify(
        &self,
        manifest_digest: &str,
        bundles: &[Vec<u8>],
        root: Option<&TrustRoot>,
    ) -> Result<BTreeSet<&str>, String> {
        if self.all_of.is_empty() && self.any_of.is_none() {
            return match self.unruled {
                Unruled::Allow => Ok(BTreeSet::new()),
                Unruled::Require => Err(format!(
                    "{table} requires signatures and names no signer; name keys in {table}.all_of or {table}.any_of, \
                     or set {table}.default to \"allow\"",
                    table = self.table
                )),
            };
        }
        if bundles.len() > MAX_BUNDLES {
            return Err(format!("it has {} signatures; at most {MAX_BUNDLES} are read", bundles.len()));
        }
        let keys: Vec<&PublicKey> = self.signers().filter_map(Signer::key).collect();
        let identities: Vec<&Identity> = self.signers().filter_map(Signer::identity).collect();
        // Certificates are not read for a rule without an identity.
        let root = root.filter(|_| !identities.is_empty());
        let mut signed = Signatures::default();
        let mut reasons = Vec::new();
        for (number, bundle) in (1..).zip(bundles) {
            let reason = match signature_of(bundle, manifest_digest, &keys, root) {
                Ok(Signature::Keys(found)) => {
                    signed.keys.extend(found);
                    continue;
                }
                Ok(Signature::Certificate(certificate)) if identities.iter().any(|of| of.is_in(&certificate)) => {
                    signed.certificates.push(*certificate);
                    continue;
                }
                Ok(Signature::Certificate(certificate)) => {
                    format!("the policy does not name {certificate}")
                }
                Err(error) => with_causes(&error),
            };
            reasons.push(format!("; signature {number} does not count: {}", line_within(&reason, MAX_REASON)));
        }
        match self.missing(&signed) {
            None => Ok(self.signers().filter(|signer| signer.is_among(&signed)).map(|by| by.name.as_str()).collect()),
            Some(missing) if bundles.is_empty() => Err(format!("{missing}; it has no signature")),
            Some(missing) => Err(missing + &explained(&reasons)),
        }
    }

    fn signers(&self) -> impl Iterator<Item = &Signer> {
        self.all_of.iter().chain(self.any_of.iter().flat_map(|any| &any.signers))
    }

    /// Describes a signature that the rule needs and `signed` lacks. `None` if the rule is satisfied.
    fn missing(&self, signed: &Signatures<'_>) -> Option<String> {
        let table = &self.table;
        if let Some((number, signer)) = self.all_of.iter().enumerate().find(|(_, signer)| !signer.is_among(signed)) {
            return Some(format!("{table}.all_of[{number}], {}, has not signed it", signer.name));
        }
        let AnyOf { minimum, signers } = self.any_of.as_ref()?;
        let count = signers.iter().filter(|signer| signer.is_among(signed)).count();
        (count < *minimum)
            .then(|| format!("{table}.any_of needs {minimum} of {} signers, and {count} have signed it", signers.len()))
    }
}

impl Signer {
    fn key(&self) -> Option<&PublicKey> {
        match &self.proof {
            Proof::Key(key) => Some(key),
            Proof::Identity(_) => None,
        }
    }

    fn identity(&self) -> Option<&Identity> {
        match &self.proof {
            Proof::Key(_) => None,
            Proof::Identity(identity) => Some(identity),
        }
    }

    fn is_among(&self, signed: &Signatures<'_>) -> bool {
        match &self.proof {
            Proof::Key(key) => signed.keys.contains(&key),
            Proof::Identity(identity) => signed.certificates.iter().any(|certificate| identity.is_in(certificate)),
        }
    }
}

impl Proof {
    /// Tells why one signature could be by this signer and by an earlier one: the end of the key in the config, and the
    /// reason. `None` if no signature can be by both.
    pub(crate) fn shared_with(&self, earlier: &Self, name: &str) -> Option<(&'static str, String)> {
        match (self, earlier) {
            (Self::Key(key), Self::Key(other)) if key == other => {
                Some((".key", format!("is the key of {name:?} again")))
            }
            (Self::Identity(identity), Self::Identity(other)) if identity == other => {
                Some(("", format!("is the identity {name:?} again")))
            }
            (Self::Identity(identity), Self::Identity(other)) if identity.can_be(other) => {
                let reason =
                    "one signature could count for both; name subjects alone, or repositories alone, of an issuer";
                Some(("", format!("can be the same signer as {name:?}: {reason}")))
            }
            _ => None,
        }
    }
}

/// Joins the first reasons, and counts the others.
fn explained(reasons: &[String]) -> String {
    let mut text = reasons.iter().take(MAX_REASONS).map(String::as_str).collect::<String>();
    let more = reasons.len().saturating_sub(MAX_REASONS);
    if more > 0 {
        text += &format!("; {more} more do not count");
    }
    text
}

/// The spelling of a place under which rules are compared: Docker Hub is one registry with three names.
pub(crate) fn canonical(place: &str) -> Cow<'_, str> {
    let (registry, path) = place.split_once('/').map_or((place, None), |(registry, path)| (registry, Some(path)));
    match path {
        _ if !DOCKER_HUB_ALIASES.contains(&registry) => Cow::Borrowed(place),
        Some(path) => Cow::Owned(format!("{DOCKER_HUB}/{path}")),
        None => Cow::Borrowed(DOCKER_HUB),
    }
}

/// Checks the spelling of a registry with a path, or with the beginning of a path. Each registry has one spelling: under
/// another one, such as `Registry.example` or `registry.example:443`, a component would escape its rule.
pub(crate) fn check_place(place: &str) -> Result<(), &'static str> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-:/[]".contains(&byte);
    if !place.bytes().all(is_plain) {
        return Err("it has other characters than a-z, 0-9 and . _ - : / [ ]");
    }
    let (host, path) = place.split_once('/').map_or((place, None), |(host, path)| (host, Some(path)));
    let (name, port) = match host.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    if name.is_empty() || name.ends_with('.') {
        return Err("its registry is empty or ends with a dot");
    }
    if port.is_some_and(|port| matches!(port, "" | "80" | "443") || port.starts_with('0')) {
        return Err("its port is empty, has a leading 0, or is 80 or 443; leave out the port of http and https");
    }
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains([':', '[', ']']);
    if path.is_some_and(|path| !path.split('/').all(is_part)) {
        return Err("its path has an empty part, a part of dots, or a tag");
    }
    Ok(())
}
