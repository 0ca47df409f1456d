//! Signatures over a passport's canonical form.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ed25519_compact::{KeyPair, PublicKey, Seed, Signature};
use hmac_sha256::HMAC;
use serde::Deserialize;

/// The fewest bytes of a secret.
const MIN_SECRET_BYTES: usize = 16;

/// Accepts base64 with or without padding.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT.with_encode_padding(false));

/// The algorithm of a passport's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// HMAC with SHA-256 (RFC 2104), with a key that both sides share.
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    /// Ed25519 (RFC 8032).
    Ed25519,
}

/// A parsed key.
pub enum Key {
    /// A key for HMAC, which signs and verifies.
    Hmac(Vec<u8>),
    /// A public key of Ed25519, which verifies.
    Public(PublicKey),
    /// A private key of Ed25519, which signs.
    Private(KeyPair),
}

impl Key {
    /// Makes a key for HMAC from the bytes of a secret's text.
    ///
    /// # Errors
    /// The secret is too short.
    pub fn hmac(secret: &str) -> Result<Self, String> {
        if secret.len() < MIN_SECRET_BYTES {
            return Err(format!("a secret of hmac-sha256 has at least {MIN_SECRET_BYTES} bytes"));
        }
        // The bytes of the text itself, without decoding, so that both sides do the same.
        Ok(Self::Hmac(secret.as_bytes().to_vec()))
    }

    /// Parses a public key: 32 bytes in base64.
    ///
    /// # Errors
    /// The text is not a public key.
    pub fn public(text: &str) -> Result<Self, String> {
        let key = PublicKey::from_slice(&decode(text).ok_or("it is not base64")?);
        key.map(Self::Public).map_err(|_| "a public key of ed25519 has 32 bytes".to_owned())
    }

    /// Parses a private key: the seed of 32 bytes in base64.
    ///
    /// # Errors
    /// The text is not a seed.
    pub fn private(text: &str) -> Result<Self, String> {
        let seed = Seed::from_slice(&decode(text).ok_or("it is not base64")?);
        let seed = seed.map_err(|_| "a private key of ed25519 is a seed of 32 bytes")?;
        Ok(Self::Private(KeyPair::from_seed(seed)))
    }

    /// The signature in base64url without padding; `None` for a public key.
    pub fn sign(&self, signed: &str) -> Option<String> {
        match self {
            Self::Hmac(key) => Some(URL_SAFE.encode(HMAC::mac(signed.as_bytes(), key))),
            // Without noise the signature is deterministic, as in RFC 8032, and takes no random numbers of the host.
            Self::Private(pair) => Some(URL_SAFE.encode(pair.sk.sign(signed.as_bytes(), None).as_ref())),
            Self::Public(_) => None,
        }
    }

    /// True if the signature, in either base64 alphabet, matches the text.
    pub fn verifies(&self, signed: &str, signature: &str) -> bool {
        let Some(signature) = decode(signature) else { return false };
        match self {
            Self::Hmac(key) => {
                // All 32 bytes are required: a shortened MAC could be guessed. `verify` compares in constant time.
                <&[u8; 32]>::try_from(signature.as_slice()).is_ok_and(|mac| HMAC::verify(signed.as_bytes(), key, mac))
            }
            Self::Public(key) => is_signature(key, signed, &signature),
            Self::Private(pair) => is_signature(&pair.pk, signed, &signature),
        }
    }
}

fn is_signature(key: &PublicKey, signed: &str, signature: &[u8]) -> bool {
    Signature::from_slice(signature).is_ok_and(|signature| key.verify(signed.as_bytes(), &signature).is_ok())
}

fn decode(text: &str) -> Option<Vec<u8>> {
    // The public specification leaves the form of a signature open, so both alphabets are taken.
    URL_SAFE.decode(text).or_else(|_| STANDARD.decode(text)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_is_that_of_rfc_4231() {
        let key = Key::Hmac(b"Jefe".to_vec());
        let hex = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let bytes: Vec<u8> = hex
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let text = "what do ya want for nothing?";
        assert_eq!(key.sign(text).unwrap(), URL_SAFE.encode(&bytes));
        assert!(key.verifies(text, &STANDARD.encode(&bytes)));
    }

    #[test]
    fn a_signature_is_that_of_rfc_8032() {
        // Section 7.1, test 2: the message is the byte 0x72.
        let key = Key::public("PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=").unwrap();
        let signature = "kqAJqfDUyrhyDoILX2QlQKKye1QWUD+Ps3YiI+vbadoIWsHkPhWZbkWPNhPQ8R2MOHsurrQwKu6wDSkWErsMAA==";
        assert!(key.verifies("r", signature));
        assert!(!key.verifies("s", signature));
    }

    #[test]
    fn what_one_side_signs_the_other_verifies_and_nothing_else() {
        let private = Key::private("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8").unwrap();
        let signature = private.sign("text").unwrap();
        let public = Key::public(crate::parameters::tests::PUBLIC_KEY).unwrap();
        assert!(public.verifies("text", &signature));
        for (text, forged) in [("Text", signature.as_str()), ("text", ""), ("text", "AAAA"), ("text", "no base64!")] {
            assert!(!public.verifies(text, forged), "{text} {forged}");
        }
        assert_eq!(public.sign("text"), None);
    }

    #[test]
    fn a_mac_that_is_cut_off_or_longer_does_not_verify() {
        let key = Key::hmac("0123456789abcdef").unwrap();
        let mac = HMAC::mac(b"text", b"0123456789abcdef");
        for bytes in [&mac[..31], &[], &[&mac[..], &[0]].concat()] {
            assert!(!key.verifies("text", &STANDARD.encode(bytes)));
        }
        assert!(key.verifies("text", &STANDARD.encode(mac)));
    }
}
