//! Keyless signatures: a certificate authority certifies for some minutes who signs, and a transparency log has an entry for each
//! signature. A trust root names the authorities and logs. The signature is verified at the time that a log or a timestamp
//! authority has signed, never at the present time.

use std::fmt;
use std::sync::Arc;

use sigstore_verify::crypto::CertificateInfo;
use sigstore_verify::trust_root::TrustedRoot;
use sigstore_verify::types::bundle::VerificationMaterialContent;
use sigstore_verify::types::{Bundle, Sha256Hash, SignatureContent};
use sigstore_verify::{
    CertificateError, Error, TimestampError, TransparencyLogError, VerificationPolicy, VerificationResult, Verifier,
    bundle,
};

mod ring_provider;

/// The maximum number of log entries of a bundle. A signature needs one.
const MAX_LOG_ENTRIES: usize = 4;
/// The maximum number of signed timestamps of a bundle.
const MAX_TIMESTAMPS: usize = 4;
/// The maximum number of signatures of a log's state, by the log and its witnesses.
const MAX_CHECKPOINT_SIGNATURES: usize = 16;

/// An identity: what an issuer, such as a build service, has confirmed about a signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The URL of the issuer.
    pub(crate) issuer: String,
    pub(crate) claim: Claim,
}

/// The part of an identity that names the signer. A certificate has at most one subject and one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The e-mail address or URI that is the subject's alternative name.
    Subject(String),
    /// The URL of the source repository of the build that has signed (Fulcio's extension 1.3.6.1.4.1.57264.1.12).
    Repository(String),
}

/// A certificate of the trust root. Its holder has made a valid signature.
pub(crate) struct Certificate(CertificateInfo);

/// A bundle with a certificate and a DSSE envelope. Nothing in it is verified.
pub(crate) struct KeylessBundle(Bundle);

/// The authorities and logs that verify keyless signatures.
#[derive(Clone)]
pub(crate) struct TrustRoot(Arc<Verifier>);

/// The reasons why a file is no trust root.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    #[error("is not a trusted_root.json")]
    NotARoot(#[source] serde_json::Error),
    #[error("has no {0}, so no keyless identity can be verified")]
    Lacks(&'static str),
    #[error("has an authority or a log that cannot be used")]
    Unusable(#[source] Error),
}

/// The reasons why a keyless signature does not count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeylessError {
    /// The bundle is by a key.
    #[error("it has no certificate")]
    NoCertificate,
    #[error("its certificate, log entry or timestamp cannot be read: {0}")]
    Unreadable(String),
    #[error("it has {0} {1}; at most {2} are read")]
    TooMany(usize, &'static str, usize),
    #[error("it has no entry of a transparency log")]
    NoLogEntry,
    #[error("its log entry is not proved by a log of the trust root: {0}")]
    LogEntry(String),
    #[error("its log entry is for another signature")]
    OtherLogEntry,
    #[error("neither its log entry nor a timestamp proves when it was made")]
    NoTime,
    #[error("its timestamp is not of the trust root: {0}")]
    Timestamp(String),
    #[error("it was not made while its certificate was valid: {0}")]
    OutsideValidity(String),
    #[error("its certificate is not of the trust root: {0}")]
    OtherRoot(String),
    #[error("no Certificate Transparency log of the trust root has its certificate: {0}")]
    NotPublished(String),
    #[error("its certificate has not signed it")]
    NotSigned,
    #[error("it cannot be verified: {0}")]
    Unsupported(String),
}

impl Identity {
    pub(crate) fn is_in(&self, Certificate(certificate): &Certificate) -> bool {
        let has_claim = match &self.claim {
            Claim::Subject(subject) => certificate.identity.as_ref().is_some_and(|name| name.as_str() == subject),
            Claim::Repository(url) => certificate.ci_claims.source_repository_uri.as_ref() == Some(url),
        };
        has_claim && certificate.issuer.as_ref() == Some(&self.issuer)
    }

    /// True if a certificate can have both identities, although they differ.
    pub(crate) fn can_be(&self, other: &Self) -> bool {
        let same_kind = matches!(
            (&self.claim, &other.claim),
            (Claim::Subject(_), Claim::Subject(_)) | (Claim::Repository(_), Claim::Repository(_))
        );
        self.issuer == other.issuer && !same_kind
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Claim::Subject(name) | Claim::Repository(name)) = &self.claim;
        write!(formatter, "{name} ({})", self.issuer)
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CertificateInfo { identity, issuer, .. } = &self.0;
        let name = identity.as_ref().map_or("a certificate without a subject", |name| name.as_str());
        write!(formatter, "{name} ({})", issuer.as_deref().unwrap_or("no issuer"))
    }
}

impl KeylessBundle {
    /// Reads a bundle. The caller has checked its size.
    ///
    /// # Errors
    /// [`KeylessError`]. The number of signatures that verification checks is bounded.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, KeylessError> {
        let bundle: Bundle =
            serde_json::from_slice(json).map_err(|error| KeylessError::Unreadable(error.to_string()))?;
        let material = &bundle.verification_material;
        if !matches!(material.content, VerificationMaterialContent::Certificate(_)) {
            return Err(KeylessError::NoCertificate);
        }
        let checkpoints = material.tlog_entries.iter().filter_map(|entry| entry.inclusion_proof.as_ref());
        let signatures = checkpoints.filter_map(|proof| proof.checkpoint.checkpoint()).map(|of| of.signatures().len());
        for (count, of, limit) in [
            (material.tlog_entries.len(), "log entries", MAX_LOG_ENTRIES),
            (material.timestamp_verification_data.rfc3161_timestamps.len(), "timestamps", MAX_TIMESTAMPS),
            (signatures.max().unwrap_or(0), "signatures of a log's state", MAX_CHECKPOINT_SIGNATURES),
        ] {
            if count > limit {
                return Err(KeylessError::TooMany(count, of, limit));
            }
        }
        Ok(Self(bundle))
    }

    /// The signed statement. `None` if the bundle has no envelope.
    pub(crate) fn payload(&self) -> Option<&[u8]> {
        match &self.0.content {
            SignatureContent::DsseEnvelope(envelope) => Some(envelope.payload.as_bytes()),
            _ => None,
        }
    }
}

impl TrustRoot {
    /// Reads Sigstore's `trusted_root.json`.
    ///
    /// # Errors
    /// [`RootError`].
    pub(crate) fn from_json(json: &[u8]) -> Result<Self, RootError> {
        ring_provider::install();
        let root: TrustedRoot = serde_json::from_slice(json).map_err(RootError::NotARoot)?;
        for (is_empty, name) in [
            (root.certificate_authorities.is_empty(), "certificate authority"),
            (root.tlogs.is_empty(), "transparency log"),
            (root.ctlogs.is_empty(), "Certificate Transparency log"),
        ] {
            if is_empty {
                return Err(RootError::Lacks(name));
            }
        }
        Ok(Self(Arc::new(Verifier::new(&root).map_err(RootError::Unusable)?)))
    }

    /// Verifies the signature, its certificate and its log entry. The caller has checked that the payload approves the digest
    /// with these hexadecimal digits, and decides whether the holder of the certificate may sign.
    ///
    /// # Errors
    /// [`KeylessError`].
    pub(crate) fn verify(&self, bundle: &KeylessBundle, hex: &str) -> Result<Certificate, KeylessError> {
        let digest = Sha256Hash::from_hex(hex).map_err(|error| KeylessError::Unsupported(error.to_string()))?;
        let verified = self.0.verify(digest, &bundle.0, &VerificationPolicy::any_identity());
        let verified = verified.map_err(KeylessError::of)?;
        let is_complete = verified.certificate_verified() && verified.sct_verified() && verified.tlog_verified();
        let certificate = Some(&verified).filter(|_| is_complete).and_then(VerificationResult::certificate);
        let skipped = || KeylessError::Unsupported("a check was left out".to_owned());
        certificate.cloned().map(Certificate).ok_or_else(skipped)
    }
}

impl fmt::Debug for TrustRoot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TrustRoot").finish_non_exhaustive()
    }
}

impl KeylessError {
    fn of(error: Error) -> Self {
        match error {
            Error::Bundle(bundle::Error::MissingInclusionProof(_) | bundle::Error::MissingSigningTimeEvidence) => {
                Self::NoLogEntry
            }
            Error::Bundle(error) => Self::LogEntry(error.to_string()),
            Error::TransparencyLog(TransparencyLogError::EntryMismatch(_)) | Error::ArtifactMismatch(_) => {
                Self::OtherLogEntry
            }
            Error::TransparencyLog(TransparencyLogError::IntegratedTime(reason)) => Self::OutsideValidity(reason),
            Error::TransparencyLog(error) => Self::LogEntry(error.to_string()),
            Error::Timestamp(TimestampError::NoVerifiedTimestamp(_)) => Self::NoTime,
            Error::Timestamp(error) => Self::Timestamp(error.to_string()),
            Error::Certificate(error) => Self::of_certificate(error),
            Error::SignatureInvalid(_) => Self::NotSigned,
            other => Self::Unsupported(other.to_string()),
        }
    }

    fn of_certificate(error: CertificateError) -> Self {
        match error {
            // The library verifies a path of certificates at a time, and says with a text alone what was wrong.
            CertificateError::ChainInvalid(reason)
                if ["CertExpired", "CertNotValidYet"].iter().any(|name| reason.contains(name)) =>
            {
                Self::OutsideValidity("a log or a timestamp has another time".to_owned())
            }
            CertificateError::ChainInvalid(reason) => Self::OtherRoot(reason),
            CertificateError::Sct(reason) => Self::NotPublished(reason),
            CertificateError::Malformed(reason) => Self::Unreadable(reason),
            other => Self::OutsideValidity(other.to_string()),
        }
    }
}
