//! Public keys for verification (RFC 7517).

use jsonwebtoken::DecodingKey;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Algorithm, KeyError, pem, provider};

/// A set of trusted public keys.
#[derive(Clone, Debug)]
pub struct Jwks {
    keys: Vec<PublicKey>,
}

/// A public key. It verifies signatures of a single algorithm, so that a token's header cannot choose another one.
#[derive(Clone, Debug)]
pub(crate) struct PublicKey {
    pub(crate) kid: Option<String>,
    pub(crate) algorithm: Algorithm,
    pub(crate) key: DecodingKey,
}

impl Jwks {
    /// Parses a JSON Web Key Set. RFC 7517 section 5 requires that unusable keys are skipped: keys of other types, keys
    /// for other uses, and incomplete keys. The set may therefore be empty.
    ///
    /// # Errors
    /// When `json` is not a JSON object with an array `keys`.
    pub fn parse(json: &str) -> Result<Self, KeyError> {
        provider::install();
        let set: KeySet<'_> = serde_json::from_str(json).map_err(KeyError::NotAKeySet)?;
        let read = |raw: &&RawValue| serde_json::from_str::<Jwk>(raw.get()).ok()?.public_key();
        Ok(Self { keys: set.keys.iter().filter_map(read).collect() })
    }

    /// Parses a public key, a PEM block `PUBLIC KEY`. The key has no id, and so verifies signatures with any id.
    ///
    /// # Errors
    /// When `pem` is not such a block, or its key has an unsupported type.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        provider::install();
        let (algorithm, key) = pem::public_key(pem)?;
        Ok(Self { keys: vec![PublicKey { kid: None, algorithm, key }] })
    }

    /// Tells whether the set has no usable key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key with exactly this id for this algorithm. A key without an id never matches.
    pub(crate) fn named(&self, kid: &str, algorithm: Algorithm) -> Option<&PublicKey> {
        self.keys.iter().find(|key| key.algorithm == algorithm && key.kid.as_deref() == Some(kid))
    }

    /// The only key of the set. `None` if the set has no key or several keys, or if the only key is for another
    /// algorithm.
    pub(crate) fn only(&self, algorithm: Algorithm) -> Option<&PublicKey> {
        match self.keys.as_slice() {
            [key] if key.algorithm == algorithm => Some(key),
            _ => None,
        }
    }

    /// The keys for this algorithm that have this id or no id.
    pub(crate) fn candidates(&self, kid: &str, algorithm: Algorithm) -> impl Iterator<Item = &PublicKey> {
        let fits = move |own: &str| own == kid;
        self.keys.iter().filter(move |key| key.algorithm == algorithm && key.kid.as_deref().is_none_or(fits))
    }
}

#[derive(Deserialize)]
struct KeySet<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    public_key_use: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwk {
    fn public_key(self) -> Option<PublicKey> {
        let for_signatures = self.public_key_use.as_deref().is_none_or(|name| name == "sig");
        let may_verify = self.key_ops.as_deref().is_none_or(|names| names.iter().any(|name| name == "verify"));
        let (algorithm, key) = self.algorithm_and_key()?;
        // RFC 9864 has given EdDSA on Ed25519 a name of its own.
        let same = |name: &str| name == algorithm.name() || (algorithm == Algorithm::EdDSA && name == "Ed25519");
        let usable = for_signatures && may_verify && self.alg.as_deref().is_none_or(same);
        usable.then_some(PublicKey { kid: self.kid, algorithm, key })
    }

    fn algorithm_and_key(&self) -> Option<(Algorithm, DecodingKey)> {
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let key = DecodingKey::from_rsa_components(self.n.as_ref()?, self.e.as_ref()?).ok()?;
                Some((Algorithm::RS256, key))
            }
            ("EC", Some("P-256")) => {
                let key = DecodingKey::from_ec_components(self.x.as_ref()?, self.y.as_ref()?).ok()?;
                Some((Algorithm::ES256, key))
            }
            ("OKP", Some("Ed25519")) => {
                Some((Algorithm::EdDSA, DecodingKey::from_ed_components(self.x.as_ref()?).ok()?))
            }
            _ => None,
        }
    }
}
