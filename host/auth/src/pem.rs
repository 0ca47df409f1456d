//! Public keys in the format of `openssl pkey -pubout` (RFC 5280 SubjectPublicKeyInfo, RFC 7468 PEM).

use jsonwebtoken::DecodingKey;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;

use crate::{Algorithm, KeyError};

// Everything in front of the key bits. For these two the lengths are fixed.
const ED25519: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
const P256: &[u8] =
    b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
const RSA_ALGORITHM: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";

/// Reads the public key in a PEM text. Also returns the algorithm of the key. A key is for one algorithm only.
pub(crate) fn public_key(pem: &str) -> Result<(Algorithm, DecodingKey), KeyError> {
    let info = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| KeyError::NotPem { expected: "PUBLIC KEY", command: "pkey -pubout" })?;
    let der: &[u8] = info.as_ref();
    if let Some(key) = der.strip_prefix(ED25519).filter(|key| key.len() == 32) {
        return Ok((Algorithm::EdDSA, DecodingKey::from_ed_der(key)));
    }
    if let Some(point) = der.strip_prefix(P256).filter(|point| point.len() == 65) {
        return Ok((Algorithm::ES256, DecodingKey::from_ec_der(point)));
    }
    rsa_key(der).map(|key| (Algorithm::RS256, DecodingKey::from_rsa_der(key))).ok_or(KeyError::UnsupportedKey)
}

/// The RSAPublicKey inside a SubjectPublicKeyInfo. In keys of 2048 to 8192 bits the length fields have two bytes, so
/// length fields of other sizes are refused. ring parses the key strictly when it verifies a signature.
fn rsa_key(der: &[u8]) -> Option<&[u8]> {
    let bits = two_byte_length(der, 0x30)?.strip_prefix(RSA_ALGORITHM)?;
    two_byte_length(bits, 0x03)?.strip_prefix(&[0])
}

fn two_byte_length(der: &[u8], tag: u8) -> Option<&[u8]> {
    let (head, rest) = der.split_first_chunk::<4>()?;
    let [found, form, high, low] = *head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    (found == tag && form == 0x82 && length == rest.len()).then_some(rest)
}
