//! The commands that call OCI registries, and the arguments that these commands share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use annex_registry::{Client, ClientConfig, Credentials, Login, Reference, RegistryConfig, RegistryError};
use clap::Args;

use crate::exit::Failure;

pub(crate) mod add;
mod bar;
mod checksums;
mod config_text;
pub(crate) mod difference;
mod grants;
pub(crate) mod keys;
pub(crate) mod load;
pub(crate) mod lock;
pub(crate) mod login;
pub(crate) mod origin;
pub(crate) mod outdated;
mod password;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod save;
mod sbom;
pub(crate) mod sign;
mod signed_file;
mod source;
mod target;
pub(crate) mod upload;
pub(crate) mod verify;

/// How a command reaches a registry.
#[derive(Default, Args)]
pub(crate) struct RegistryArgs {
    /// Call the registry by http in place of https; a registry on loopback needs no option for that
    #[arg(long)]
    plain_http: bool,
    /// Trust the authorities in this PEM file too, for a registry whose certificate is from a private authority
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

impl RegistryArgs {
    /// A client with the person's credentials for this registry.
    pub(crate) async fn client(&self, registry: &str) -> anyhow::Result<Client> {
        Ok(self.client_with(registry, Credentials::from_env().find(registry).await?))
    }

    /// Refuses these options for a file.
    fn refuse_for_file(&self) -> anyhow::Result<()> {
        if self.plain_http || self.ca_file.is_some() {
            return Err(Failure::Usage.error("--plain-http and --ca-file are for components in registries"));
        }
        Ok(())
    }

    /// Refuses these options for components of several registries. They would be for all of these registries, and the password
    /// of another registry would be sent in clear.
    fn refuse_for_several(&self, references: &[Reference]) -> anyhow::Result<()> {
        let registries: BTreeSet<&str> = references.iter().map(Reference::registry).collect();
        if registries.len() > 1 && (self.plain_http || self.ca_file.is_some()) {
            let names = registries.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Failure::Usage.error(format!(
                "--plain-http and --ca-file are for one registry, and the components are in several ({names}); run a \
                 command for each registry"
            )));
        }
        Ok(())
    }

    fn client_with(&self, registry: &str, login: Option<Login>) -> Client {
        // The person has named this registry, which may be on a private network. Other addresses, such as those of its
        // redirects, may not.
        let config = RegistryConfig { plain_http: self.plain_http, ca_file: self.ca_file.clone(), allow_private: true };
        client(registry, config, login)
    }
}

/// A client for one registry.
fn client(registry: &str, config: RegistryConfig, login: Option<Login>) -> Client {
    let logins = login.map(|login| (registry.to_owned(), login));
    Client::new(ClientConfig {
        registries: BTreeMap::from([(registry.to_owned(), config)]),
        logins: logins.into_iter().collect(),
    })
}

/// Marks the error of a registry with its exit code.
pub(crate) fn failed(error: RegistryError) -> anyhow::Error {
    match &error {
        RegistryError::Unreachable { .. } | RegistryError::Answer { .. } => Failure::Unreachable.of(error),
        RegistryError::Config { key, reason, .. } => Failure::Usage.error(format!("the registry's {key} {reason}")),
        // The text has its cause already.
        RegistryError::Manifest { .. } => Failure::Refused.error(error.to_string()),
        RegistryError::Refused { .. }
        | RegistryError::Unauthorized { .. }
        | RegistryError::NotFound(_)
        | RegistryError::Status { .. }
        | RegistryError::Redirect { .. }
        | RegistryError::Digest { .. }
        | RegistryError::Size { .. }
        | RegistryError::TooMany { .. }
        | RegistryError::TooManyPages { .. } => Failure::Refused.of(error),
        RegistryError::HttpClient(_) | RegistryError::Json(_) => error.into(),
    }
}
