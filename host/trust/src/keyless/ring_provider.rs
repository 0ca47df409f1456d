//! The cryptography of keyless signatures, which is that of ring.

use ring::digest::{Context, SHA256, SHA384, SHA512};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use sigstore_verify::crypto::{self, CryptoProvider, Error, HashContext, Result, SigningScheme};
use sigstore_verify::types::HashAlgorithm;

/// Lets the library of keyless signatures use ring. The library keeps one provider for the whole process.
pub(super) fn install() {
    // An error says that a provider is installed already, and only this module installs one.
    let _ = crypto::install_default_provider(&RingProvider);
}

#[derive(Debug)]
struct RingProvider;

struct RingHash(Context);

impl HashContext for RingHash {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finish().as_ref().to_vec()
    }
}

impl CryptoProvider for RingProvider {
    fn hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>> {
        let algorithm = match algorithm {
            HashAlgorithm::Sha2256 => &SHA256,
            HashAlgorithm::Sha2384 => &SHA384,
            HashAlgorithm::Sha2512 => &SHA512,
            other => return Err(Error::UnsupportedAlgorithm(other.to_string())),
        };
        Ok(Box::new(RingHash(Context::new(algorithm))))
    }

    fn verify_raw(&self, scheme: SigningScheme, key: &[u8], data: &[u8], signature: &[u8]) -> Result<()> {
        let key = UnparsedPublicKey::new(algorithm(scheme)?, key);
        key.verify(data, signature).map_err(|_| Error::Verification(format!("{} signature invalid", scheme.name())))
    }

    /// Only for signatures without a statement, which approve nothing. ring has no function for it.
    fn verify_prehashed(&self, scheme: SigningScheme, _key: &[u8], _digest: &[u8], _signature: &[u8]) -> Result<()> {
        Err(Error::UnsupportedAlgorithm(format!("{} of a digest", scheme.name())))
    }
}

fn algorithm(scheme: SigningScheme) -> Result<&'static dyn VerificationAlgorithm> {
    Ok(match scheme {
        SigningScheme::EcdsaP256Sha256 => &ECDSA_P256_SHA256_ASN1,
        SigningScheme::EcdsaP256Sha384 => &ECDSA_P256_SHA384_ASN1,
        SigningScheme::EcdsaP384Sha256 => &ECDSA_P384_SHA256_ASN1,
        SigningScheme::EcdsaP384Sha384 => &ECDSA_P384_SHA384_ASN1,
        SigningScheme::Ed25519 => &ED25519,
        SigningScheme::RsaPssSha256 => &RSA_PSS_2048_8192_SHA256,
        SigningScheme::RsaPssSha384 => &RSA_PSS_2048_8192_SHA384,
        SigningScheme::RsaPssSha512 => &RSA_PSS_2048_8192_SHA512,
        SigningScheme::RsaPkcs1Sha256 => &RSA_PKCS1_2048_8192_SHA256,
        SigningScheme::RsaPkcs1Sha384 => &RSA_PKCS1_2048_8192_SHA384,
        SigningScheme::RsaPkcs1Sha512 => &RSA_PKCS1_2048_8192_SHA512,
        other => return Err(Error::UnsupportedAlgorithm(other.name().to_owned())),
    })
}
