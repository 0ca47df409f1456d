//! The policy: which signers a component needs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::bundle::{MAX_BUNDLES, signers};
use crate::config::Unruled;
use crate::key::PublicKey;

/// The maximum size of the text of a refusal, in bytes.
const MAX_TEXT: usize = 2_000;

/// The signers that components need, by registry and path. [`TrustConfig::policy`](crate::TrustConfig::policy) makes it.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The rule for components that no prefix matches.
    pub(crate) whole: Rule,
    pub(crate) rules: Vec<(String, Rule)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// The table in the config.
    pub(crate) place: String,
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
    pub(crate) key: PublicKey,
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
    /// Checks the signatures of a component. `place` is its registry and path, such as `registry.example/acme/redact`. The
    /// bundles are those that were found for the manifest.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn verify(&self, place: &str, manifest_digest: &str, bundles: &[Vec<u8>]) -> Result<Verified, Refusal> {
        let rule = self.rule(place);
        if rule.all_of.is_empty() && rule.any_of.is_none() {
            return match rule.unruled {
                Unruled::Allow => Ok(Verified { signers: Vec::new() }),
                Unruled::Require => Err(refusal(format!(
                    "{place} is not trusted: {} requires signatures and names no signer",
                    rule.place
                ))),
            };
        }
        if bundles.len() > MAX_BUNDLES {
            return Err(refusal(format!("{place} has {} signatures; at most {MAX_BUNDLES} are read", bundles.len())));
        }
        let (signed, reasons) = rule.signed(manifest_digest, bundles);
        match rule.missing(&signed) {
            None => Ok(Verified { signers: signed.into_iter().map(str::to_owned).collect() }),
            Some(missing) => Err(refusal(format!("{place} is not trusted: {missing}{reasons}"))),
        }
    }

    /// The rule with the longest prefix of `place`.
    fn rule(&self, place: &str) -> &Rule {
        let is_prefix =
            |prefix: &str| place.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let matching = self.rules.iter().filter(|(prefix, _)| is_prefix(prefix));
        matching.max_by_key(|(prefix, _)| prefix.len()).map_or(&self.whole, |(_, rule)| rule)
    }
}

impl Rule {
    /// The names of the signers that have signed the manifest, and a text about the bundles that do not count.
    fn signed(&self, manifest_digest: &str, bundles: &[Vec<u8>]) -> (BTreeSet<&str>, String) {
        let all: Vec<&Signer> = self.all_of.iter().chain(self.any_of.iter().flat_map(|any| &any.signers)).collect();
        let keys: Vec<&PublicKey> = all.iter().map(|signer| &signer.key).collect();
        let mut signed = BTreeSet::new();
        let mut reasons = match bundles.len() {
            0 => "; it has no signature".to_owned(),
            _ => String::new(),
        };
        for (number, bundle) in (1..).zip(bundles) {
            match signers(bundle, manifest_digest, &keys) {
                Ok(found) => signed.extend(found.into_iter().filter_map(|key| Some(all.get(key)?.name.as_str()))),
                Err(error) if reasons.len() < MAX_TEXT => {
                    // Writing to a text cannot fail.
                    let _ = write!(reasons, "; signature {number} does not count: {error}");
                }
                Err(_) => {}
            }
        }
        (signed, reasons)
    }

    /// What is missing of the signatures that the rule needs. `None` if nothing is.
    fn missing(&self, signed: &BTreeSet<&str>) -> Option<String> {
        if let Some((number, signer)) =
            self.all_of.iter().enumerate().find(|(_, signer)| !signed.contains(signer.name.as_str()))
        {
            return Some(format!("{}.all_of[{number}], {}, has not signed it", self.place, signer.name));
        }
        let AnyOf { minimum, signers } = self.any_of.as_ref()?;
        let count = signers.iter().filter(|signer| signed.contains(signer.name.as_str())).count();
        (count < *minimum).then(|| {
            format!("{}.any_of needs {minimum} of {} signers, and {count} have signed it", self.place, signers.len())
        })
    }
}

/// The text may contain text of a stranger.
fn refusal(text: String) -> Refusal {
    Refusal(annex_text::line_within(&text, MAX_TEXT))
}
