//! The options for TLS: the authorities that a command trusts, and the certificate that it shows.

use std::fs;
use std::path::{Path, PathBuf};

use annex_client::{ClientError, ClientTls};
use annex_files::Purpose;
use annex_protocol::Secret;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use reqwest::{Certificate, ClientBuilder, Identity};

use crate::exit;

/// The maximum size of a file with a key, in bytes.
const MAX_KEY_BYTES: usize = 64 << 10;

/// The remedy if no trusted authority has issued the certificate of a server.
const UNKNOWN_ISSUER: &str = "no authority that is trusted here has issued the certificate of the server; if you trust its \
                              authority, name the file with that authority's certificate by --ca-file";
/// The remedy if a server ends the TLS connection of a client that shows no certificate.
const NO_CERTIFICATE: &str =
    "if the server asks for a client certificate, show one with --client-cert and --client-key";
/// The remedy if a server ends the TLS connection of a client that shows a certificate.
const REFUSED_CERTIFICATE: &str =
    "the server may have refused the certificate of --client-cert: see when it ends, and who has issued it";

/// The authorities that are trusted, and the certificate of the client.
#[derive(Args)]
pub(crate) struct TlsArgs {
    /// Trust the authorities in this PEM file too, for a server whose certificate is from a private authority
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Show the certificate in this PEM file to a server that asks for one; needs --client-key
    #[arg(long, global = true, value_name = "FILE")]
    client_cert: Option<PathBuf>,
    /// The private key of the certificate, in a PEM file without a passphrase
    #[arg(long, global = true, value_name = "FILE")]
    client_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Reads the files.
    pub(crate) fn read(&self) -> anyhow::Result<ClientTls> {
        let identity = match (&self.client_cert, &self.client_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(read_identity(certificate, key)?),
            (Some(_), None) => bail!("--client-cert needs --client-key, the file with its private key"),
            (None, Some(_)) => bail!("--client-key needs --client-cert, the file with its certificate"),
        };
        Ok(ClientTls { authorities: self.ca_file.as_deref().map(read_authorities).transpose()?, identity })
    }

    /// Adds the remedy to an error of a request that failed at TLS.
    pub(crate) fn explain(&self, error: ClientError) -> anyhow::Error {
        let is_broken = matches!(&error, ClientError::Broken { url, .. } if url.starts_with("https:"));
        let error = anyhow::Error::new(error);
        match self.hint(&error, is_broken) {
            Some(hint) => exit::with_hint(&error, hint),
            None => error,
        }
    }

    /// The remedy for a request that failed at TLS; `None` for any other failure. `is_broken` is true if a connection over
    /// TLS ended without an answer.
    pub(crate) fn hint(&self, error: &anyhow::Error, is_broken: bool) -> Option<&'static str> {
        if is_unknown_issuer(error) {
            Some(UNKNOWN_ISSUER)
        } else if !is_broken {
            None
        } else if self.client_cert.is_none() {
            Some(NO_CERTIFICATE)
        } else {
            Some(REFUSED_CERTIFICATE)
        }
    }

    /// True if the options name an authority of their own.
    pub(crate) fn names_authority(&self) -> bool {
        self.ca_file.is_some()
    }

    /// Begins an HTTP client that trusts the authorities and shows the certificate.
    pub(crate) fn client_builder(&self) -> anyhow::Result<ClientBuilder> {
        let ClientTls { authorities, identity } = self.read()?;
        let authorities = authorities.map(|pem| Certificate::from_pem_bundle(pem.as_bytes())).transpose()?;
        with_identity(annex_egress::client_builder(authorities.unwrap_or_default()), identity)
    }

    /// Begins an HTTP client that shows the certificate, and verifies none.
    pub(crate) fn unverified_client_builder(&self) -> anyhow::Result<ClientBuilder> {
        with_identity(annex_egress::unverified_client_builder(), self.read()?.identity)
    }
}

fn with_identity(builder: ClientBuilder, identity: Option<Secret>) -> anyhow::Result<ClientBuilder> {
    match identity {
        Some(pem) => Ok(builder.identity(Identity::from_pem(pem.expose().as_bytes())?)),
        None => Ok(builder),
    }
}

/// True if no trusted authority has issued the certificate of a server. The client has the cause as a text alone.
fn is_unknown_issuer(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.to_string().ends_with("invalid peer certificate: UnknownIssuer"))
}

fn read_authorities(file: &Path) -> anyhow::Result<String> {
    let shown = file.display();
    let pem = fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    match Certificate::from_pem_bundle(pem.as_bytes()) {
        Ok(certificates) if !certificates.is_empty() => Ok(pem),
        _ => Err(anyhow!("{shown} has no PEM block `CERTIFICATE`; --ca-file takes the certificates of authorities")),
    }
}

fn read_identity(certificate: &Path, key: &Path) -> anyhow::Result<Secret> {
    let shown = certificate.display();
    let chain = fs::read_to_string(certificate).with_context(|| format!("cannot read {shown}"))?;
    let read = annex_files::read_text(key, Purpose::Secret, MAX_KEY_BYTES);
    let key_text = read.with_context(|| format!("cannot read {}", key.display()))?;
    let pem = format!("{key_text}\n{chain}");
    // Whether the two belong together shows only when a client is built.
    Identity::from_pem(pem.as_bytes())
        // No request is sent, so the client needs no authorities, which the machine may not have.
        .and_then(|identity| ClientBuilder::new().tls_certs_only([]).identity(identity).build())
        .with_context(|| format!("{shown} and {} are not a certificate and its key in PEM", key.display()))?;
    Ok(Secret::new(pem))
}
