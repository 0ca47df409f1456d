//! Signatures as Sigstore bundles of version 0.3: a DSSE envelope whose payload is an in-toto statement about a digest.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::key::{KeyError, PrivateKey, PublicKey};
use crate::keyless::{Certificate, KeylessBundle, KeylessError, TrustRoot};

/// The media type of a bundle.
pub const BUNDLE_MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The maximum size of a bundle in bytes.
pub const MAX_BUNDLE_BYTES: usize = 64 << 10;
/// The maximum number of bundles of one component.
pub const MAX_BUNDLES: usize = 100;

const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// The type of a statement that says nothing but that the subject is signed. A statement of another type, such as that of an
/// SBOM, is no approval of a component.
const PREDICATE_TYPE: &str = "https://sigstore.dev/cosign/sign/v1";
const ALGORITHM: &str = "sha256:";

/// The reasons why a digest cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The digest is not a SHA-256.
    #[error("the digest {0:?} is not \"sha256:\" and 64 lower-case hexadecimal digits")]
    Digest(String),
    /// The key cannot sign.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The statement cannot be written as JSON.
    #[error("the statement cannot be encoded")]
    Json(#[from] serde_json::Error),
}

/// The reasons why a bundle is no signature of a digest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleError {
    #[error("it has {0} bytes; at most {MAX_BUNDLE_BYTES} are read")]
    TooLarge(usize),
    #[error("it is not a bundle with a DSSE envelope")]
    NotABundle(#[source] serde_json::Error),
    #[error("its media type is {0:?} and not {BUNDLE_MEDIA_TYPE}")]
    MediaType(String),
    #[error("its payload type is {0:?} and not {PAYLOAD_TYPE}")]
    PayloadType(String),
    #[error("its envelope has {0} signatures; the envelope of a bundle has one")]
    Signatures(usize),
    #[error("its {0} is not base64")]
    NotBase64(&'static str),
    #[error("no key of the policy has signed it")]
    Unknown,
    #[error("its payload is not an in-toto statement")]
    NotAStatement(#[source] serde_json::Error),
    #[error("its statement has the type {0:?} and the predicate type {1:?}, which approve nothing")]
    StatementType(String, String),
    #[error("it signs another manifest")]
    OtherSubject,
    #[error(transparent)]
    Keyless(KeylessError),
}

/// Who has made a valid signature.
pub(crate) enum Signature<'k> {
    Keys(Vec<&'k PublicKey>),
    Certificate(Box<Certificate>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    media_type: String,
    #[serde(default, skip_deserializing)]
    verification_material: VerificationMaterial,
    dsse_envelope: Envelope,
}

/// Says which key has signed. Only a hint, so it is not read.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct VerificationMaterial {
    public_key: KeyHint,
}

#[derive(Default, Serialize)]
struct KeyHint {
    hint: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Serialize, Deserialize)]
struct EnvelopeSignature {
    sig: String,
    #[serde(default, skip_deserializing)]
    keyid: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    predicate_type: String,
    #[serde(default, skip_deserializing)]
    predicate: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize, Deserialize)]
struct Subject {
    #[serde(default)]
    name: String,
    digest: SubjectDigest,
}

#[derive(Serialize, Deserialize)]
struct SubjectDigest {
    #[serde(default)]
    sha256: String,
}

/// Signs the digest of a manifest or of a file. `name` is the place of the component, such as `registry.example/acme/redact`, or
/// the name of the file, for people who read the statement. Returns a bundle as JSON.
///
/// # Errors
/// [`SignError`].
///
/// # Example
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (key, _pem) = annex_trust::PrivateKey::generate()?;
/// let digest = format!("sha256:{}", "a".repeat(64));
/// let bundle = annex_trust::sign(&key, &digest, "registry.example/acme/redact")?;
/// assert!(bundle.starts_with(b"{\"mediaType\":"));
/// # Ok(())
/// # }
/// ```
pub fn sign(key: &PrivateKey, digest: &str, name: &str) -> Result<Vec<u8>, SignError> {
    let hex = hex_of(digest).ok_or_else(|| SignError::Digest(digest.to_owned()))?;
    let statement = Statement {
        kind: STATEMENT_TYPE.to_owned(),
        subject: vec![Subject { name: name.to_owned(), digest: SubjectDigest { sha256: hex.to_owned() } }],
        predicate_type: PREDICATE_TYPE.to_owned(),
        predicate: serde_json::Map::new(),
    };
    let payload = serde_json::to_vec(&statement)?;
    let signature = key.sign(&signed_bytes(PAYLOAD_TYPE, &payload))?;
    let id = key.public().id();
    let bundle = Bundle {
        media_type: BUNDLE_MEDIA_TYPE.to_owned(),
        verification_material: VerificationMaterial { public_key: KeyHint { hint: id.clone() } },
        dsse_envelope: Envelope {
            payload: STANDARD.encode(&payload),
            payload_type: PAYLOAD_TYPE.to_owned(),
            signatures: vec![EnvelopeSignature { sig: STANDARD.encode(signature), keyid: id }],
        },
    };
    Ok(serde_json::to_vec(&bundle)?)
}

/// Finds who has signed the digest of a manifest in this bundle: keys, or the holder of a certificate. A certificate is verified
/// only with a trust root, and only if none of the keys has signed.
pub(crate) fn signature_of<'k>(
    bundle: &[u8],
    digest: &str,
    keys: &[&'k PublicKey],
    root: Option<&TrustRoot>,
) -> Result<Signature<'k>, BundleError> {
    match (signing_keys(bundle, digest, keys), root) {
        // The size and the form of the bundle are checked by now.
        (Err(BundleError::Unknown), Some(root)) => {
            Ok(Signature::Certificate(Box::new(certificate_of(bundle, digest, root)?)))
        }
        (found, _) => found.map(Signature::Keys),
    }
}

/// Finds the certificate of the trust root whose holder has signed the digest.
fn certificate_of(bundle: &[u8], digest: &str, root: &TrustRoot) -> Result<Certificate, BundleError> {
    let bundle = KeylessBundle::parse(bundle).map_err(|error| match error {
        KeylessError::NoCertificate => BundleError::Unknown,
        other => BundleError::Keyless(other),
    })?;
    approves(bundle.payload().unwrap_or_default(), digest)?;
    root.verify(&bundle, hex_of(digest).unwrap_or_default()).map_err(BundleError::Keyless)
}

/// Finds the keys that have signed the digest of a manifest or file in this bundle. Checks at most one signature per key.
pub(crate) fn signing_keys<'k>(
    bundle: &[u8],
    digest: &str,
    keys: &[&'k PublicKey],
) -> Result<Vec<&'k PublicKey>, BundleError> {
    if bundle.len() > MAX_BUNDLE_BYTES {
        return Err(BundleError::TooLarge(bundle.len()));
    }
    let bundle: Bundle = serde_json::from_slice(bundle).map_err(BundleError::NotABundle)?;
    if bundle.media_type != BUNDLE_MEDIA_TYPE {
        return Err(BundleError::MediaType(bundle.media_type));
    }
    let Envelope { payload, payload_type, signatures } = bundle.dsse_envelope;
    if payload_type != PAYLOAD_TYPE {
        return Err(BundleError::PayloadType(payload_type));
    }
    // The Sigstore bundle format allows one signature per envelope.
    let [EnvelopeSignature { sig, .. }] = signatures.as_slice() else {
        return Err(BundleError::Signatures(signatures.len()));
    };
    let payload = STANDARD.decode(payload).map_err(|_| BundleError::NotBase64("payload"))?;
    let signature = STANDARD.decode(sig).map_err(|_| BundleError::NotBase64("signature"))?;
    let message = signed_bytes(&payload_type, &payload);
    let found: Vec<&PublicKey> = keys.iter().copied().filter(|key| key.verifies(&message, &signature)).collect();
    // The statement is read after its signature is verified, so that only a signer can have it parsed.
    if found.is_empty() {
        return Err(BundleError::Unknown);
    }
    approves(&payload, digest).map(|()| found)
}

/// Checks that the payload is an approval of the digest.
pub(crate) fn approves(payload: &[u8], digest: &str) -> Result<(), BundleError> {
    let statement: Statement = serde_json::from_slice(payload).map_err(BundleError::NotAStatement)?;
    if statement.kind != STATEMENT_TYPE || statement.predicate_type != PREDICATE_TYPE {
        return Err(BundleError::StatementType(statement.kind, statement.predicate_type));
    }
    let is_subject = |subject: &Subject| hex_of(digest).is_some_and(|hex| subject.digest.sha256 == hex);
    if statement.subject.iter().any(is_subject) { Ok(()) } else { Err(BundleError::OtherSubject) }
}

/// The bytes that are signed: the pre-authentication encoding of DSSE (protocol.md of the DSSE specification, version 1.0.0).
fn signed_bytes(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// The hexadecimal digits of a SHA-256 digest.
pub(crate) fn hex_of(digest: &str) -> Option<&str> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digest.strip_prefix(ALGORITHM).filter(|hex| hex.len() == 64 && hex.as_bytes().iter().all(is_digit))
}

#[cfg(test)]
mod tests;
