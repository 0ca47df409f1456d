//! Keys that sign components.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    UnparsedPublicKey, VerificationAlgorithm,
};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};

/// The DER of a SubjectPublicKeyInfo up to an uncompressed point on P-256 (RFC 5480, section 2).
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const P256_POINT: usize = 65;
/// The first byte of an uncompressed point (RFC 5480, section 2.2).
const UNCOMPRESSED: u8 = 4;
/// The DER of a SubjectPublicKeyInfo up to an Ed25519 key (RFC 8410, section 4).
const ED25519_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const ED25519_KEY: usize = 32;
/// The number of characters in a line of PEM (RFC 7468, section 2).
const PEM_LINE: usize = 64;

/// The reasons why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The text is not PEM with one key of the expected kind. The error has no part of the text, which can be a private key.
    #[error("has no key in PEM: {reason}; expected one block \"-----BEGIN {label}-----\", as `{command}` writes it")]
    NotPem {
        /// The label of the expected block.
        label: &'static str,
        /// A command that writes such a block.
        command: &'static str,
        /// The reason why the text is not PEM.
        reason: &'static str,
    },
    /// The key is of another kind.
    #[error("has a key of a kind that is not supported; use ECDSA over P-256, or Ed25519")]
    Unsupported,
    /// The source of random numbers failed.
    #[error("the system gives no random numbers")]
    NoRandomNumbers,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algorithm {
    P256,
    Ed25519,
}

/// A public key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKey {
    algorithm: Algorithm,
    /// The key as ring takes it: a point or 32 bytes.
    bytes: Vec<u8>,
}

/// A private key.
pub struct PrivateKey(Pair);

enum Pair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("PrivateKey").field(&self.public().id()).finish()
    }
}

impl PublicKey {
    /// Reads a SubjectPublicKeyInfo in PEM (RFC 7468, section 13), as `openssl pkey -pubout` writes it.
    ///
    /// # Errors
    /// [`KeyError::NotPem`], [`KeyError::Unsupported`].
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let der: SubjectPublicKeyInfoDer<'static> = only_block(pem, "PUBLIC KEY", "openssl pkey -pubout")?;
        let of = |algorithm, bytes: &[u8]| Self { algorithm, bytes: bytes.to_vec() };
        let is_point = |point: &&[u8]| point.len() == P256_POINT && point.first() == Some(&UNCOMPRESSED);
        if let Some(point) = der.strip_prefix(&P256_PREFIX).filter(is_point) {
            return Ok(of(Algorithm::P256, point));
        }
        let key = der.strip_prefix(&ED25519_PREFIX).filter(|key| key.len() == ED25519_KEY);
        key.map(|key| of(Algorithm::Ed25519, key)).ok_or(KeyError::Unsupported)
    }

    /// The key in PEM.
    #[must_use]
    pub fn to_pem(&self) -> String {
        to_pem("PUBLIC KEY", &self.der())
    }

    /// The SHA-256 of the SubjectPublicKeyInfo in hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> String {
        digest(&SHA256, &self.der()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// True if this key has made the signature.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match self.algorithm {
            Algorithm::P256 => &ECDSA_P256_SHA256_ASN1,
            Algorithm::Ed25519 => &ED25519,
        };
        UnparsedPublicKey::new(algorithm, &self.bytes).verify(message, signature).is_ok()
    }

    fn der(&self) -> Vec<u8> {
        let prefix: &[u8] = match self.algorithm {
            Algorithm::P256 => &P256_PREFIX,
            Algorithm::Ed25519 => &ED25519_PREFIX,
        };
        [prefix, &self.bytes].concat()
    }
}

impl PrivateKey {
    /// Makes an ECDSA key over P-256. Returns the key, and its PKCS #8 in PEM.
    ///
    /// # Errors
    /// [`KeyError::NoRandomNumbers`].
    pub fn generate() -> Result<(Self, String), KeyError> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random);
        let document = document.map_err(|_| KeyError::NoRandomNumbers)?;
        let pem = to_pem("PRIVATE KEY", document.as_ref());
        Ok((Self::from_der(document.as_ref())?, pem))
    }

    /// Reads a key from PKCS #8 in PEM (RFC 7468, section 10), as `openssl genpkey` writes it.
    ///
    /// # Errors
    /// [`KeyError::NotPem`], [`KeyError::Unsupported`].
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let der: PrivatePkcs8KeyDer<'static> = only_block(pem, "PRIVATE KEY", "openssl pkcs8 -topk8 -nodes")?;
        Self::from_der(der.secret_pkcs8_der())
    }

    fn from_der(der: &[u8]) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        if let Ok(pair) = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der, &random) {
            return Ok(Self(Pair::P256(pair)));
        }
        // OpenSSL writes no public key beside an Ed25519 key.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map_err(|_| KeyError::Unsupported)?;
        Ok(Self(Pair::Ed25519(pair)))
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let (algorithm, bytes) = match &self.0 {
            Pair::P256(pair) => (Algorithm::P256, pair.public_key().as_ref()),
            Pair::Ed25519(pair) => (Algorithm::Ed25519, pair.public_key().as_ref()),
        };
        PublicKey { algorithm, bytes: bytes.to_vec() }
    }

    /// Signs the message.
    ///
    /// # Errors
    /// [`KeyError::NoRandomNumbers`].
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.0 {
            Pair::P256(pair) => {
                let signature = pair.sign(&SystemRandom::new(), message).map_err(|_| KeyError::NoRandomNumbers)?;
                Ok(signature.as_ref().to_vec())
            }
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

/// Reads the only block of its kind. A file with two keys is refused, because one of the keys would have no effect.
fn only_block<T: PemObject>(pem: &[u8], label: &'static str, command: &'static str) -> Result<T, KeyError> {
    let not_pem = |reason| KeyError::NotPem { label, command, reason };
    let mut blocks = T::pem_slice_iter(pem);
    let block = match blocks.next() {
        Some(Ok(block)) => block,
        Some(Err(error)) => return Err(not_pem(reason(&error))),
        None => return Err(not_pem("it has no such block")),
    };
    match blocks.next() {
        None => Ok(block),
        Some(_) => Err(not_pem("it has more than one block")),
    }
}

/// The reason without the text of the error, which has bytes of the file.
fn reason(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a BEGIN line has no END line",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line does not end with five hyphens",
        pem::Error::Base64Decode(_) => "the text between the BEGIN and END lines is not Base64",
        _ => "it cannot be parsed",
    }
}

fn to_pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, behind) = rest.split_at(rest.len().min(PEM_LINE));
        pem += line;
        pem.push('\n');
        rest = behind;
    }
    pem + &format!("-----END {label}-----\n")
}
