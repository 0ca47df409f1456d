//! Begins the HTTP clients of all crates. A machine without certificates of authorities has clients too, for plain http.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::{Certificate, Client, ClientBuilder};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme};

#[cfg(test)]
mod tests;

/// True once a client has found authorities on this machine.
static HAS_AUTHORITIES: AtomicBool = AtomicBool::new(false);

/// The reason why a client without authorities refuses https.
#[derive(Debug, thiserror::Error)]
#[error(
    "this machine has no certificates of authorities to verify the server with; install the Debian package ca-certificates, or \
     name a file with certificates in SSL_CERT_FILE"
)]
struct NoAuthorities;

/// Refuses each certificate.
#[derive(Debug)]
struct RefusingVerifier;

/// Begins an HTTP client, which trusts `authorities` and those of this machine. Without either, the client calls plain http,
/// and each request by https fails with an error that names the remedy. Installs the TLS provider of the process, unless it
/// has one.
pub fn client_builder(authorities: Vec<Certificate>) -> ClientBuilder {
    install_provider();
    if !authorities.is_empty() {
        // reqwest does not need the machine's authorities then.
        return Client::builder().tls_certs_merge(authorities);
    }
    if machine_has_authorities() { Client::builder() } else { refusing_builder() }
}

/// Begins an HTTP client that does not verify certificates, for a server on this machine.
pub fn unverified_client_builder() -> ClientBuilder {
    install_provider();
    Client::builder().tls_danger_accept_invalid_certs(true)
}

fn install_provider() {
    // The process has one provider. Installing fails if another part of the process did so before.
    let _ = ring::default_provider().install_default();
}

fn machine_has_authorities() -> bool {
    if HAS_AUTHORITIES.load(Ordering::Relaxed) {
        return true;
    }
    // reqwest reads the authorities when it builds a client, and fails without any. A proxy of the environment is left out,
    // because a mistake in its address is another error.
    let has_authorities = Client::builder().no_proxy().build().is_ok();
    HAS_AUTHORITIES.store(has_authorities, Ordering::Relaxed);
    has_authorities
}

fn refusing_builder() -> ClientBuilder {
    let tls = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(RefusingVerifier));
    Client::builder().tls_backend_preconfigured(tls.with_no_client_auth())
}

fn refusal() -> rustls::Error {
    rustls::Error::Other(OtherError(Arc::new(NoAuthorities)))
}

impl ServerCertVerifier for RefusingVerifier {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Err(refusal())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(refusal())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(refusal())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
