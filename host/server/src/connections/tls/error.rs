//! The faults of the files of a TLS table.

use std::io;
use std::path::PathBuf;

use annex_auth::CertificateError;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem;
use tokio_rustls::rustls::server::VerifierBuilderError;

/// The reason why the files of `[server.tls]` or `[admin.tls]` cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The key of the file in the TLS table.
        key: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file has no usable PEM block.
    #[error("{} has no {expected}: {reason}", path.display())]
    NotPem {
        /// The key of the file in the TLS table.
        key: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The block that the file must have.
        expected: &'static str,
        /// The reason, without bytes of the file.
        reason: &'static str,
    },
    /// A certificate cannot be read.
    #[error("the first certificate in {} cannot be used", path.display())]
    Certificate {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: CertificateError,
    },
    /// The key is not the key of the certificate.
    #[error("the key in {} is not the key of the certificate in {}", key.display(), certificate.display())]
    OtherKey {
        /// The path of the key.
        key: PathBuf,
        /// The path of the certificate.
        certificate: PathBuf,
    },
    /// The key or the certificate cannot be used.
    #[error("the certificate in {} and the key in {} cannot be used", certificate.display(), key.display())]
    Unusable {
        /// The path of the certificate.
        certificate: PathBuf,
        /// The path of the key.
        key: PathBuf,
        /// The cause.
        #[source]
        source: Box<rustls::Error>,
    },
    /// A certificate in the file of authorities cannot be used.
    #[error("{} has a certificate that cannot be used as an authority", path.display())]
    Authority {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// The authorities cannot verify clients.
    #[error("the authorities in {} cannot be used", path.display())]
    Authorities {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: VerifierBuilderError,
    },
    /// The certificate of a changed file has ended.
    #[error("the certificate in {} has ended; take a renewed one", path.display())]
    Ended {
        /// The path of the file.
        path: PathBuf,
    },
}

/// The reason why a text is not PEM. The text of a [`pem::Error`] has bytes of the file, which can be those of a key.
pub(super) fn reason(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a BEGIN line has no END line; each of them is a line of its own",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line does not end with five hyphens",
        pem::Error::Base64Decode(_) => "the text between the BEGIN and END lines is not Base64",
        pem::Error::NoItemsFound => "the file has no such block",
        _ => "the file cannot be parsed",
    }
}

impl TlsError {
    /// The key in the TLS table whose file has the fault.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::Read { key, .. } | Self::NotPem { key, .. } => key,
            Self::OtherKey { .. } | Self::Unusable { .. } => "key",
            Self::Certificate { .. } | Self::Ended { .. } => "certificate",
            Self::Authority { .. } | Self::Authorities { .. } => "client_ca",
        }
    }
}
