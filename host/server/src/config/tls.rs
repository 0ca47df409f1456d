//! `[server.tls]` and `[admin.tls]`: the certificate of a listener, and the certificates of its clients.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::connections::tls::TlsFiles;

/// The TLS of a listener. Without this table the listener speaks plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// A PEM file with the certificate of the server, followed by those of the intermediate authorities.
    pub certificate: PathBuf,
    /// A PEM file with the private key of the certificate, without a passphrase.
    pub key: PathBuf,
    /// A PEM file with the authorities whose client certificates are accepted. Default: clients show no certificate.
    pub client_ca: Option<PathBuf>,
    /// Whether clients must have a certificate. Default with `client_ca`: they must.
    pub client_certificates: Option<ClientCertificatesConfig>,
}

/// Whether clients must have a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificatesConfig {
    /// A client without a certificate is disconnected.
    Required,
    /// A client may connect without a certificate. A certificate that it shows is verified.
    Optional,
}

impl TlsConfig {
    /// Checks keys that depend on each other. The error is the reason why `client_certificates` is wrong.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.client_certificates.is_some() && self.client_ca.is_none() {
            return Err("needs client_ca, the file with the authorities of the clients' certificates");
        }
        Ok(())
    }

    /// True if a client without a certificate is disconnected.
    pub(super) fn wants_certificate_of_each_client(&self) -> bool {
        self.client_ca.is_some() && self.client_certificates != Some(ClientCertificatesConfig::Optional)
    }

    /// The files of the table. Relative paths start at `folder`.
    pub(crate) fn files(&self, folder: &Path) -> TlsFiles {
        TlsFiles {
            certificate: folder.join(&self.certificate),
            key: folder.join(&self.key),
            client_ca: self.client_ca.as_ref().map(|path| folder.join(path)),
            admits_clients_without_certificate: self.client_certificates == Some(ClientCertificatesConfig::Optional),
        }
    }
}
