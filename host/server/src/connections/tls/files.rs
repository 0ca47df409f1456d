//! The files of a TLS table, and the server config that rustls makes of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_auth::CertificateSummary;
use annex_files::Purpose;
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

use super::error::{TlsError, reason};

/// The maximum size of each file, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;
/// The protocols that clients can choose by ALPN (RFC 7301), the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The SHA-256 digest of the files' bytes.
pub(super) type FilesDigest = [u8; 32];

/// The paths of the files of a TLS table.
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// The authorities of client certificates. `None` if clients show no certificate.
    pub(crate) client_ca: Option<PathBuf>,
    /// True if clients may connect without a certificate although there are authorities.
    pub(crate) admits_clients_without_certificate: bool,
}

/// The bytes of the files.
pub(crate) struct TlsBytes {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// The TLS that was made of the files.
pub(crate) struct LoadedTls {
    pub(super) acceptor: TlsAcceptor,
    /// The certificate of the server.
    pub(crate) certificate: CertificateSummary,
    /// The certificate of the server in DER.
    pub(crate) leaf: CertificateDer<'static>,
    pub(super) digest: FilesDigest,
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError::Read`].
    pub(crate) fn read(&self) -> Result<TlsBytes, TlsError> {
        let read = |key, path: &Path, purpose| {
            let bytes = annex_files::read(path, purpose, MAX_FILE_BYTES);
            bytes.map_err(|source| TlsError::Read { key, path: path.to_owned(), source })
        };
        let client_ca = self.client_ca.as_deref().map(|path| read("client_ca", path, Purpose::Named));
        Ok(TlsBytes {
            certificate: read("certificate", &self.certificate, Purpose::Named)?,
            key: read("key", &self.key, Purpose::Secret)?,
            client_ca: client_ca.transpose()?,
        })
    }

    fn not_pem(&self, key: &'static str, expected: &'static str, error: &pem::Error) -> TlsError {
        let path = match key {
            "key" => Some(&self.key),
            "client_ca" => self.client_ca.as_ref(),
            _ => Some(&self.certificate),
        };
        TlsError::NotPem { key, path: path.cloned().unwrap_or_default(), expected, reason: reason(error) }
    }

    fn unusable(&self, error: rustls::Error) -> TlsError {
        let (certificate, key) = (self.certificate.clone(), self.key.clone());
        match error {
            rustls::Error::InconsistentKeys(_) => TlsError::OtherKey { key, certificate },
            error => TlsError::Unusable { certificate, key, source: Box::new(error) },
        }
    }
}

impl TlsBytes {
    /// The digest of all files. Files with equal bytes have equal digests.
    pub(super) fn digest(&self) -> FilesDigest {
        let mut digest = Sha256::new();
        for bytes in [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten() {
            // The length separates the files, so that no byte can move from one to the next.
            digest.update(bytes.len().to_be_bytes());
            digest.update(bytes);
        }
        digest.finalize().into()
    }

    /// Makes the TLS of the bytes. `files` has the paths, for errors.
    ///
    /// # Errors
    /// The file that cannot be used.
    pub(crate) fn load(&self, files: &TlsFiles) -> Result<LoadedTls, TlsError> {
        let chain =
            certificates(&self.certificate).map_err(|error| files.not_pem("certificate", CERTIFICATE, &error))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key);
        let key = key.map_err(|error| files.not_pem("key", PRIVATE_KEY, &error))?;
        let no_items = || files.not_pem("certificate", CERTIFICATE, &pem::Error::NoItemsFound);
        let leaf = chain.first().cloned().ok_or_else(no_items)?;
        let certificate = CertificateSummary::read(&leaf)
            .map_err(|source| TlsError::Certificate { path: files.certificate.clone(), source })?;
        let provider = Arc::new(ring::default_provider());
        let verifier = self.verifier(files, &provider)?;
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12]);
        let builder = builder.map_err(|error| files.unusable(error))?.with_client_cert_verifier(verifier);
        let mut config = builder.with_single_cert(chain, key).map_err(|error| files.unusable(error))?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(LoadedTls { acceptor, certificate, leaf, digest: self.digest() })
    }

    fn verifier(
        &self,
        files: &TlsFiles,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let (Some(bytes), Some(path)) = (&self.client_ca, &files.client_ca) else {
            return Ok(WebPkiClientVerifier::no_client_auth());
        };
        let authorities = certificates(bytes).map_err(|error| files.not_pem("client_ca", CERTIFICATE, &error))?;
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(|source| TlsError::Authority { path: path.clone(), source })?;
        }
        let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        if files.admits_clients_without_certificate {
            verifier = verifier.allow_unauthenticated();
        }
        verifier.build().map_err(|source| TlsError::Authorities { path: path.clone(), source })
    }
}

const CERTIFICATE: &str = "PEM block `CERTIFICATE`";
const PRIVATE_KEY: &str =
    "private key in PEM without a passphrase (`PRIVATE KEY`, `EC PRIVATE KEY` or `RSA PRIVATE KEY`)";

/// All certificates in a PEM text, at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?;
    if certificates.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(certificates) }
}
