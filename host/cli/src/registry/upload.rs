//! Components that commands send to a running server: files, and components of registries.

use std::path::{Path, PathBuf};

use annex_files::Purpose;
use annex_registry::{Reference, is_reference};
use annex_runtime::MAX_COMPONENT_BYTES;
use anyhow::Context;
use clap::Args;

use super::keys::SignerArgs;
use super::{RegistryArgs, origin};
use crate::exit::Failure;
use crate::output;

/// The component that a command sends.
#[derive(Args)]
pub(crate) struct UploadArgs {
    /// The component: a .wasm file, or a reference such as oci://registry.example/acme/redact:1.2
    component: PathBuf,
    /// A public key in PEM that must have signed the component of a registry; may be repeated
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<String>,
}

/// The bytes of a component, and the name that its file or its reference gives it.
pub(crate) struct Upload {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl UploadArgs {
    /// The reference, for a server that has the component in its `annex.lock`.
    ///
    /// # Errors
    /// When the argument is a file, or when a key is given, because the server verifies the signatures.
    pub(crate) fn locked(&self) -> anyhow::Result<String> {
        match reference_of(&self.component) {
            Some(reference) if self.keys.is_empty() => Ok(reference.to_owned()),
            Some(_) => Err(Failure::Usage.error("with --locked the server verifies by its [trust]; leave out --key")),
            None => {
                Err(Failure::Usage.error("--locked is for components of registries, such as oci://registry.example/a"))
            }
        }
    }

    /// Reads the file, or pulls and verifies the component.
    ///
    /// # Errors
    /// When the component cannot be read, or when a key has not signed it.
    pub(crate) async fn read(&self) -> anyhow::Result<Upload> {
        let Self { component, keys } = self;
        match reference_of(component) {
            Some(reference) => pull(reference, keys).await,
            None if keys.is_empty() => file(component),
            None => {
                Err(Failure::Usage.error("--key is for components of registries, such as oci://registry.example/a"))
            }
        }
    }
}

/// The argument as a reference. `None` if it is a file.
fn reference_of(component: &Path) -> Option<&str> {
    component.to_str().filter(|component| is_reference(component))
}

async fn pull(reference: &str, keys: &[String]) -> anyhow::Result<Upload> {
    let reference: Reference = reference.parse().map_err(|error| Failure::Usage.of(error))?;
    if keys.is_empty() {
        let text = "name who must have signed the component, with --key FILE; for one that nobody has signed, `annex pull` \
                    writes a file";
        return Err(Failure::Usage.error(text));
    }
    let (signers, registry) = (SignerArgs::of_keys(keys), RegistryArgs::default());
    let component = Box::pin(origin::pull(&reference, &signers, &registry, "pulling")).await?;
    output::note(&format!("{} is signed by {}", component.origin.reference, component.origin.signers.join(" and ")));
    let name = reference.repository().rsplit('/').next().unwrap_or_default().to_owned();
    Ok(Upload { name, bytes: component.pulled.component })
}

fn file(path: &Path) -> anyhow::Result<Upload> {
    let bytes = annex_files::read(path, Purpose::Named, MAX_COMPONENT_BYTES).with_context(|| {
        let hint = if path.extension().is_none() { "; name its file, such as ./my-extension.wasm" } else { "" };
        format!("cannot read the component {}{hint}", path.display())
    })?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Upload { name, bytes })
}
