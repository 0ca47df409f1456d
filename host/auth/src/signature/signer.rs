//! Signs an Agent Card.

use annex_protocol::{AgentCard, AgentCardSignature};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Serialize;

use crate::signature::CanonicalForm;
use crate::signature::canonical::{CanonicalError, canonical_bytes, read_card};
use crate::{Algorithm, KeyError};

/// A private key and its id. Only the parsed key is stored, and there is no `Debug` that could print it.
pub struct Signer {
    kid: String,
    key: PrivateKey,
    random: SystemRandom,
}

enum PrivateKey {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// The reason why a card cannot be signed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    /// The card cannot be encoded as JSON.
    #[error("the card cannot be encoded")]
    Encoding(#[source] serde_json::Error),
    /// The card has no canonical form, for instance because of an integer beyond ±(2^53 − 1).
    #[error("the card has no canonical form")]
    NotCanonical(#[from] CanonicalError),
    /// The system gave no random numbers, or the key is damaged.
    #[error("the key cannot sign")]
    Key,
}

#[derive(Serialize)]
struct ProtectedHeader<'a> {
    alg: &'static str,
    typ: &'static str,
    kid: &'a str,
}

impl Signer {
    /// Reads an unencrypted private key in PKCS#8, a PEM block `PRIVATE KEY`. The key is Ed25519, P-256, or RSA of 2048
    /// to 4096 bits. `kid` is the id under which verifiers find the public key. The type of the key decides the
    /// algorithm of the signatures. If `algorithm` is given, it must equal that algorithm.
    ///
    /// # Errors
    /// When `pem` is not such a block, its key has an unsupported type or is not for `algorithm`, or `kid` is empty.
    pub fn from_pem(pem: &str, kid: &str, algorithm: Option<Algorithm>) -> Result<Self, KeyError> {
        if kid.is_empty() {
            return Err(KeyError::EmptyKid);
        }
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| KeyError::NotPem { expected: "PRIVATE KEY", command: "pkcs8 -topk8 -nocrypt" })?;
        let random = SystemRandom::new();
        let key = PrivateKey::read(der.secret_pkcs8_der(), &random).ok_or(KeyError::UnsupportedKey)?;
        let actual = key.algorithm();
        match algorithm {
            Some(asked) if asked != actual => Err(KeyError::OtherAlgorithm { actual, asked }),
            _ => Ok(Self { kid: kid.to_owned(), key, random }),
        }
    }

    /// The algorithm of the signatures.
    pub fn algorithm(&self) -> Algorithm {
        self.key.algorithm()
    }

    /// Signs the card by the rules of the specification. A signature does not cover other signatures, so a card may
    /// have several.
    ///
    /// # Errors
    /// When the card has no canonical form, see [the module](crate::signature).
    pub fn sign(&self, card: &AgentCard) -> Result<AgentCardSignature, SignError> {
        self.sign_in_form(card, CanonicalForm::Specification)
    }

    /// Signs the card in the given form.
    ///
    /// If a card has empty values, the official SDKs can verify only a signature in [`CanonicalForm::WithoutEmptyValues`]. Add
    /// that signature as a second one. A security requirement without scopes is such an empty value.
    ///
    /// # Errors
    /// When the card has no canonical form, see [the module](crate::signature).
    pub fn sign_in_form(&self, card: &AgentCard, form: CanonicalForm) -> Result<AgentCardSignature, SignError> {
        let json = serde_json::to_string(card).map_err(SignError::Encoding)?;
        self.sign_json(&json, form)
    }

    /// Signs a card given as JSON text, including fields that the model does not know.
    ///
    /// # Errors
    /// When the text is not a JSON object, or the card has no canonical form.
    pub fn sign_json(&self, card_json: &str, form: CanonicalForm) -> Result<AgentCardSignature, SignError> {
        let payload = canonical_bytes(read_card(card_json)?, form)?;
        // Section 8.4 wants `alg` and `kid`, and recommends this `typ`.
        let protected = self.protected("JOSE")?;
        let message = format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload));
        let signature = self.signature_of(&message)?;
        Ok(AgentCardSignature { protected, signature, header: None })
    }

    /// Signs a payload of the type `typ` as a JWS in compact form (RFC 7515 section 7.1).
    pub(crate) fn sign_compact(&self, typ: &'static str, payload: &[u8]) -> Result<String, SignError> {
        let message = format!("{}.{}", self.protected(typ)?, URL_SAFE_NO_PAD.encode(payload));
        let signature = self.signature_of(&message)?;
        Ok(format!("{message}.{signature}"))
    }

    /// The protected header in base64url.
    fn protected(&self, typ: &'static str) -> Result<String, SignError> {
        let header = ProtectedHeader { alg: self.algorithm().name(), typ, kid: &self.kid };
        Ok(URL_SAFE_NO_PAD.encode(serde_json::to_vec(&header).map_err(SignError::Encoding)?))
    }

    /// The signature over a text, in base64url.
    fn signature_of(&self, message: &str) -> Result<String, SignError> {
        let signature = self.key.sign(message.as_bytes(), &self.random).ok_or(SignError::Key)?;
        Ok(URL_SAFE_NO_PAD.encode(signature))
    }
}

impl PrivateKey {
    fn read(pkcs8: &[u8], random: &SystemRandom) -> Option<Self> {
        // OpenSSL writes Ed25519 keys without the public half, which the check of the strict reader wants.
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8) {
            return Some(Self::Ed25519(key));
        }
        if let Ok(key) = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, random) {
            return Some(Self::P256(key));
        }
        RsaKeyPair::from_pkcs8(pkcs8).ok().map(Self::Rsa)
    }

    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Ed25519(_) => Algorithm::EdDSA,
            Self::P256(_) => Algorithm::ES256,
            Self::Rsa(_) => Algorithm::RS256,
        }
    }

    fn sign(&self, message: &[u8], random: &SystemRandom) -> Option<Vec<u8>> {
        match self {
            Self::Ed25519(key) => Some(key.sign(message).as_ref().to_vec()),
            Self::P256(key) => key.sign(random, message).ok().map(|signature| signature.as_ref().to_vec()),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, random, message, &mut signature).ok()?;
                Some(signature)
            }
        }
    }
}
