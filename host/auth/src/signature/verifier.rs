//! Verifies the signatures of a received Agent Card.

use annex_protocol::{AgentCardSignature, JsonObject};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::verify as verify_jws;
use serde::Deserialize;

use crate::jwks::PublicKey;
use crate::signature::CanonicalForm;
use crate::signature::canonical::{CanonicalError, canonical_bytes, read_card};
use crate::{Algorithm, Jwks};

/// The maximum number of signatures of a card that are checked. Each signature costs two verifications for each
/// candidate key.
const MAX_SIGNATURES: usize = 8;
const MAX_HEADER_BYTES: usize = 4096;

/// A signature of a card, after the signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedSignature {
    /// The id in the signature's protected header.
    pub kid: String,
    /// The algorithm of the signature.
    pub algorithm: Algorithm,
    /// The canonical form that the signature covers.
    pub form: CanonicalForm,
}

/// The reason why a card is not trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The card has no canonical form.
    #[error("the card has no canonical form")]
    NotCanonical(#[from] CanonicalError),
    /// The card has no signatures, or its `signatures` do not have the form of section 8.4.2.
    #[error("the card has no signatures")]
    Unsigned,
    /// No signature has a header that names a trusted key and the algorithm of that key.
    #[error("no signature is by a trusted key")]
    UnknownKey,
    /// A signature names a trusted key, but does not match this card.
    #[error("no signature is valid")]
    Invalid,
}

/// Verifies a card with `keys`. Returns the first valid signature. `card_json` is the JSON text as received, and
/// signatures also cover fields that the model does not know. Only the protected header of a signature is read; it must
/// have `alg` and `kid`.
///
/// # Errors
/// When no signature is valid.
pub fn verify(card_json: &str, keys: &Jwks) -> Result<VerifiedSignature, VerifyError> {
    let card = read_card(card_json)?;
    let signatures = signatures(card_json).filter(|signatures| !signatures.is_empty()).ok_or(VerifyError::Unsigned)?;
    let mut payloads = Vec::new();
    // A signature does not name its canonical form, and the official SDKs and the specification use different ones.
    for form in [CanonicalForm::Specification, CanonicalForm::WithoutEmptyValues] {
        payloads.push((form, URL_SAFE_NO_PAD.encode(canonical_bytes(card.clone(), form)?)));
    }
    let mut failure = VerifyError::UnknownKey;
    for signature in signatures.iter().take(MAX_SIGNATURES) {
        let Some((kid, algorithm)) = read_header(&signature.protected) else { continue };
        if let Some(form) = signed_form(signature, &payloads, keys.candidates(&kid, algorithm)) {
            return Ok(VerifiedSignature { kid, algorithm, form });
        }
        // A bad signature that names a trusted key is a more useful error than an unknown key.
        if keys.candidates(&kid, algorithm).next().is_some() {
            failure = VerifyError::Invalid;
        }
    }
    Err(failure)
}

/// The canonical form that the signature covers, if one of the keys has made the signature; `None` otherwise.
fn signed_form<'a>(
    signature: &AgentCardSignature,
    payloads: &[(CanonicalForm, String)],
    keys: impl Iterator<Item = &'a PublicKey>,
) -> Option<CanonicalForm> {
    let messages: Vec<_> =
        payloads.iter().map(|(form, payload)| (*form, format!("{}.{payload}", signature.protected))).collect();
    let is_good = |key: &PublicKey, message: &str| {
        // An error, such as text that is no base64, makes this signature bad and says nothing of the others.
        verify_jws(&signature.signature, message.as_bytes(), &key.key, key.algorithm.to_jws()).unwrap_or(false)
    };
    let mut pairs = keys.flat_map(|key| messages.iter().map(move |(form, message)| (key, *form, message)));
    pairs.find(|(key, _, message)| is_good(key, message)).map(|(_, form, _)| form)
}

fn signatures(card_json: &str) -> Option<Vec<AgentCardSignature>> {
    JsonObject::parse(card_json).ok()?.get("signatures")?.to().ok()
}

#[derive(Deserialize)]
struct ProtectedHeader {
    alg: jsonwebtoken::Algorithm,
    kid: String,
    crit: Option<serde::de::IgnoredAny>,
}

/// The key id and the algorithm; `None` for an unsupported header, such as one with critical extensions (RFC 7515
/// section 4.1.11).
fn read_header(protected: &str) -> Option<(String, Algorithm)> {
    if protected.len() > MAX_HEADER_BYTES {
        return None;
    }
    let header: ProtectedHeader = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(protected).ok()?).ok()?;
    let algorithm = Algorithm::from_jws(header.alg)?;
    header.crit.is_none().then_some((header.kid, algorithm))
}
