//! Compact JWS (RFC 7515) with ES256, and the hashes in tokens. Tokens with other algorithms are refused. Keys in a
//! token's header or from the network are never used.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac_sha256::Hash;
use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use p256::ecdsa::{Signature, VerifyingKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::strict_json;

/// A public key of P-256 as a JWK (RFC 7517).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Jwk {
    /// The type of the key; must be `EC`.
    pub kty: String,
    /// The curve of the key; must be `P-256`.
    pub crv: String,
    /// The first coordinate, 32 bytes in base64url.
    pub x: String,
    /// The second coordinate, 32 bytes in base64url.
    pub y: String,
    /// The name of the key.
    pub kid: Option<String>,
    /// The algorithm of the key; must be `ES256` if present.
    pub alg: Option<String>,
    /// The purpose of the key; must be `sig` if present.
    #[serde(rename = "use")]
    pub purpose: Option<String>,
    /// The private part of a key. A key with this part is refused.
    d: Option<String>,
}

impl Jwk {
    /// The key, parsed for verification.
    ///
    /// # Errors
    /// The key cannot verify ES256.
    pub fn verifying_key(&self) -> Result<VerifyingKey, String> {
        let is_other = |value: &Option<String>, wanted| value.as_deref().is_some_and(|value| value != wanted);
        if self.kty != "EC" || self.crv != "P-256" || is_other(&self.alg, "ES256") || is_other(&self.purpose, "sig") {
            return Err("a key must be of EC and P-256, for signatures by ES256".to_owned());
        }
        if self.d.is_some() {
            return Err("a private key must not be here".to_owned());
        }
        let coordinate = |text: &str| decode(text).filter(|bytes| bytes.len() == 32);
        let (Some(x), Some(y)) = (coordinate(&self.x), coordinate(&self.y)) else {
            return Err("a coordinate of P-256 has 32 bytes, in base64url without padding".to_owned());
        };
        // SEC 1, section 2.3.4: 4 stands before a point with both coordinates.
        let point = [&[4][..], &x, &y].concat();
        VerifyingKey::from_sec1_bytes(&point).map_err(|_| "the coordinates are no point of P-256".to_owned())
    }
}

/// The relevant fields of a token's header.
#[derive(Debug, Deserialize)]
pub struct Header {
    alg: String,
    /// The name of the key.
    pub kid: Option<String>,
    /// The type of the token.
    pub typ: Option<String>,
    crit: Option<Value>,
}

/// A parsed token. Its content is untrusted until [`Token::is_signed_by`] returns true.
#[derive(Debug)]
pub struct Token<C> {
    /// The decoded protected header.
    pub header: Header,
    /// The payload.
    pub claims: C,
    signed: [u8; 32],
    signature: Signature,
}

impl<C: DeserializeOwned> Token<C> {
    /// Parses a compact JWS.
    ///
    /// # Errors
    /// The text is not a JWS with ES256. The error says why, as a lower-case fragment.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = text.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (pieces.next(), pieces.next(), pieces.next(), pieces.next())
        else {
            return Err("is no compact JWS".to_owned());
        };
        let header: Header = object(header).ok_or("has a header that cannot be read")?;
        if header.alg != "ES256" {
            return Err("has another algorithm than ES256".to_owned());
        }
        // RFC 7515, section 4.1.11: unknown critical headers must be refused.
        if header.crit.is_some() {
            return Err("has critical headers, of which none is known here".to_owned());
        }
        let claims = object(payload).ok_or("lacks claims, or has some of the wrong type")?;
        let signature = decode(signature).and_then(|bytes| Signature::from_slice(&bytes).ok());
        let signature = signature.ok_or("has no signature of 64 bytes")?;
        let length = text.rfind('.').unwrap_or_default();
        let signed = Hash::hash(text.as_bytes().get(..length).unwrap_or_default());
        Ok(Self { header, claims, signed, signature })
    }

    /// The hash of the signed text. It is the name of the token: the same text may have several valid signatures.
    pub fn id(&self) -> String {
        encode(&self.signed)
    }

    /// True if the key made the signature.
    pub fn is_signed_by(&self, key: &VerifyingKey) -> bool {
        key.verify_prehash(&self.signed, &self.signature).is_ok()
    }

    /// True if one of these keys made the signature. If the header names a key, only that key is tried.
    pub fn is_signed_by_one_of(&self, keys: &[Jwk]) -> bool {
        let named = |key: &&Jwk| self.header.kid.is_none() || key.kid.is_none() || key.kid == self.header.kid;
        keys.iter().filter(named).any(|key| key.verifying_key().is_ok_and(|key| self.is_signed_by(&key)))
    }
}

/// The claims of an unverified token, for finding its alleged issuer.
pub fn unverified_claims<C: DeserializeOwned>(text: &str) -> Option<C> {
    object(text.split('.').nth(1)?)
}

/// The hash of a text as used in tokens: SHA-256 in base64url without padding.
pub fn hash(text: &str) -> String {
    encode(&Hash::hash(text.as_bytes()))
}

/// The hash of a JSON value in its canonical form (RFC 8785).
///
/// # Errors
/// The value has no canonical form.
pub fn canonical_hash(value: &Value) -> Result<String, String> {
    serde_json_canonicalizer::to_string(value).map(|text| hash(&text)).map_err(|_| "has no canonical form".to_owned())
}

/// Returns the token in a text. AP2 v0.1 calls tokens base64url-encoded. Some clients therefore encode the whole token
/// once more, and this function decodes it.
pub fn unwrapped(text: &str) -> Cow<'_, str> {
    let layered = if text.contains('.') { None } else { decode(text) };
    layered.and_then(|bytes| String::from_utf8(bytes).ok()).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The names in the claim `aud`, which is a string or a list.
pub fn names(aud: &Value) -> Vec<&str> {
    let several = aud.as_array().map_or(std::slice::from_ref(aud), Vec::as_slice);
    several.iter().filter_map(Value::as_str).collect()
}

/// The result of verifying a signature. A wrong signature is an error instead.
#[derive(Debug, PartialEq, Eq)]
pub enum Trust<T> {
    /// The signature is valid and by a known issuer.
    Verified(T),
    /// The signature is missing, or its issuer is unknown. The text says which, as a lower-case fragment.
    Unverified(&'static str),
}

/// Base64url without padding.
pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// The JSON value that a text has in base64url. `None` also for JSON that [`strict_json`] refuses.
pub fn decoded(text: &str) -> Option<Value> {
    strict_json::parse(std::str::from_utf8(&decode(text)?).ok()?)
}

fn object<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(decoded(text)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(x: &str, y: &str) -> Jwk {
        serde_json::from_value(serde_json::json!({"kty": "EC", "crv": "P-256", "x": x, "y": y})).unwrap()
    }

    #[test]
    fn a_signature_is_that_of_rfc_7515() {
        // Appendix A.3.
        let text = concat!(
            "eyJhbGciOiJFUzI1NiJ9.",
            "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.",
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        );
        let key = key("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0");
        let token: Token<Value> = Token::parse(text).unwrap();
        assert!(token.is_signed_by_one_of(std::slice::from_ref(&key)));
        assert!(!token.is_signed_by_one_of(&[]));
        let other = text.replace("eyJpc3MiOiJqb2UiLA0K", "eyJpc3MiOiJqaW0iLA0K");
        assert!(!Token::<Value>::parse(&other).unwrap().is_signed_by_one_of(&[key]));
    }

    #[test]
    fn a_token_of_the_ap2_sdk_verifies_and_has_its_hash() {
        // Made by running the SDK of google-agentic-commerce/AP2 (Apache-2.0), commit e1ea56d, with a throw-away key.
        let text = include_str!("tests/checkout.jwt").trim_end();
        let key = key("K79aLSEyp50k5aTJMhrlkHme2gcc-FU6J5_GaWZIymc", "Pt3FbGAtC5J-Ehhlrgs4Lxr-w--Wh7xCG0fX9XGIgsY");
        let token: Token<Value> = Token::parse(text).unwrap();
        assert!(token.is_signed_by_one_of(&[key]));
        assert_eq!(hash(text), "QGCTlYweYRMAfweqCTtdh1FRPUKmuZQfPXMErdAN5sE");
    }

    #[test]
    fn what_is_no_token_of_es256_is_not_taken_apart() {
        for text in ["", "a.b", "a.b.c.d", "eyJhbGciOiJFUzI1NiJ9.e30.", "eyJhbGciOiJFUzI1NiJ9.e30.AAAA"] {
            assert!(Token::<Value>::parse(text).is_err(), "{text}");
        }
        let zeros = format!("eyJhbGciOiJFUzI1NiJ9.e30.{}", encode(&[0; 64]));
        assert!(Token::<Value>::parse(&zeros).is_err());
    }

    #[test]
    fn the_canonical_hash_is_the_same_for_each_way_to_write_a_value() {
        let hashes = [r#"{"b":1.20e2,"a":null}"#, r#"{ "a": null, "b": 120 }"#]
            .map(|text| canonical_hash(&serde_json::from_str(text).unwrap()));
        assert_eq!(hashes[0], hashes[1]);
        assert_eq!(hashes[0], Ok(hash(r#"{"a":null,"b":120}"#)));
    }
}
