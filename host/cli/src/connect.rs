//! The options by which commands reach an agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_auth::Jwks;
use annex_client::{Agent, AgentCardDocument, Binding, Client, ClientConfig, Interceptor, ServiceParameters};
use annex_protocol::ExtensionUri;
use anyhow::Context;
use clap::Args;
use reqwest::header::{HeaderName, HeaderValue};

use crate::tls::TlsArgs;

/// The agent's address, and the keys that its card must be signed with.
#[derive(Args)]
pub(crate) struct Location {
    /// The agent's base URL, or the URL of its card, which ends in .json
    #[arg(value_name = "URL")]
    pub(crate) address: String,
    /// Verify the card's signature with the keys in this file: a JSON Web Key Set, or one public key as PEM
    #[arg(long, value_name = "FILE")]
    verify: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// The options that are the same for all messages to the agent.
#[derive(Args)]
pub(crate) struct CallArgs {
    /// Activate an extension; may be repeated
    #[arg(long = "extension", value_name = "URI", value_parser = extension_uri)]
    pub(crate) extensions: Vec<ExtensionUri>,
    /// Send a header field with each message, such as credentials; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header_field)]
    fields: Vec<(HeaderName, HeaderValue)>,
    /// Use this protocol binding: jsonrpc, http+json or grpc; may be repeated, the preferred one first
    #[arg(long = "binding", value_name = "BINDING")]
    bindings: Vec<Binding>,
}

impl Location {
    /// Creates a client that trusts only the keys in the file of `--verify`. Without that option the client does not
    /// verify cards.
    fn client(&self, config: ClientConfig) -> anyhow::Result<Client> {
        let trusted_keys = self.verify.as_deref().map(read_keys).transpose()?;
        Ok(Client::new(ClientConfig { trusted_keys, tls: self.tls.read()?, ..config })?)
    }

    /// Reads the agent's card.
    pub(crate) async fn card(&self) -> anyhow::Result<Arc<AgentCardDocument>> {
        let client = self.client(ClientConfig::default())?;
        client.card(&self.address).await.map_err(|error| self.tls.explain(error))
    }

    /// Connects to the agent over the bindings in `calling`. Each call passes through the `interceptors`.
    pub(crate) async fn agent(
        &self,
        calling: &CallArgs,
        interceptors: Vec<Arc<dyn Interceptor>>,
    ) -> anyhow::Result<Agent> {
        let config = ClientConfig { bindings: calling.bindings.clone(), interceptors, ..ClientConfig::default() };
        self.client(config)?.agent(&self.address).await.map_err(|error| self.tls.explain(error))
    }
}

impl CallArgs {
    /// The service parameters of one message.
    pub(crate) fn parameters(&self) -> anyhow::Result<ServiceParameters> {
        let mut parameters = ServiceParameters::default();
        for uri in &self.extensions {
            parameters.activate(uri.clone())?;
        }
        for (name, value) in &self.fields {
            parameters.set_field(name.clone(), value.clone()).context("--header")?;
        }
        Ok(parameters)
    }
}

/// Reads public keys: a JSON Web Key Set, or one key as PEM.
pub(crate) fn read_keys(file: &Path) -> anyhow::Result<Jwks> {
    let shown = file.display();
    let keys =
        fs::read_to_string(file).map(annex_files::without_mark).with_context(|| format!("cannot read {shown}"))?;
    // A key set is a JSON object. Anything else is taken for PEM.
    let keys = if keys.trim_start().starts_with('{') { Jwks::parse(&keys) } else { Jwks::from_pem(&keys) };
    keys.with_context(|| format!("no keys in {shown}"))
}

/// Parses `NAME: VALUE`. The value may be a credential, so debug output omits it.
fn header_field(text: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let (name, value) = text.split_once(':').ok_or("not of the form NAME: VALUE")?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| "the name is no name of a header field")?;
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| "the value is no value of a header field")?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn extension_uri(text: &str) -> Result<ExtensionUri, String> {
    let activated = ServiceParameters::default().activate(text.into());
    activated
        .map(|()| text.into())
        .map_err(|error| format!("{error}; `annex card URL` shows the URIs of an agent's extensions"))
}
