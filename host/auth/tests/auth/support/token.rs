//! Valid and invalid tokens.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::support::fixture;

/// The time `offset` seconds from now, in seconds since 1970.
pub(crate) fn time(offset: i64) -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap() + offset
}

/// Valid claims, overwritten with those in `changes`. A value of `null` removes a claim.
pub(crate) fn claims(changes: &Value) -> Value {
    let mut claims = json!({"iss": "https://issuer.example", "aud": "annex", "sub": "ada", "exp": time(600)});
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

/// A token with the claims of [`claims`], signed with the key `p256`.
pub(crate) fn token(changes: &Value) -> String {
    signed("p256", &json!({"alg": "ES256", "kid": "p256", "typ": "JWT"}), &claims(changes))
}

/// A token with this header and these claims. `key` names the private key in `fixtures` that signs it.
pub(crate) fn signed(key: &str, header: &Value, claims: &Value) -> String {
    signed_text(key, &header.to_string(), &claims.to_string())
}

pub(crate) fn signed_text(key: &str, header: &str, claims: &str) -> String {
    let message = unsigned(header, claims);
    let signature = sign(key, message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

pub(crate) fn unsigned(header: &str, claims: &str) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
}

/// A token with a symmetric signature, made with `secret`.
pub(crate) fn signed_symmetrically(secret: &[u8], header: &Value, claims: &Value) -> String {
    let message = unsigned(&header.to_string(), &claims.to_string());
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))
}

fn sign(key: &str, message: &[u8]) -> Vec<u8> {
    let der = PrivatePkcs8KeyDer::from_pem_slice(fixture(&format!("{key}.pem")).as_bytes()).unwrap();
    let der = der.secret_pkcs8_der();
    let random = SystemRandom::new();
    match key {
        "ed25519" => Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).unwrap().sign(message).as_ref().to_vec(),
        "rsa" => {
            let pair = RsaKeyPair::from_pkcs8(der).unwrap();
            let mut signature = vec![0; pair.public().modulus_len()];
            pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
            signature
        }
        _ => {
            let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random).unwrap();
            pair.sign(&random, message).unwrap().as_ref().to_vec()
        }
    }
}
