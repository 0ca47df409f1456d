//! `annex pull`

use std::fs;
use std::path::{Path, PathBuf};

use annex_registry::Reference;
use clap::Args;

use super::bar::Bar;
use super::{RegistryArgs, failed, sbom};
use crate::{new_file, output};

/// The permissions of the new file.
const MODE: u32 = 0o644;

/// Pull a component from an OCI registry into a file.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex pull oci://registry.example/acme/redact:1.2\n  annex pull \
                        oci://registry.example/acme/redact:1.2 -o redact.wasm\n\nPrints the reference with the digest. \
                        The bytes are checked against their digest, and an existing file is not changed. Nobody checks \
                        signatures here: `annex verify` does.")]
pub(crate) struct Pull {
    /// The component: `oci://HOST[:PORT]/PATH[:TAG][@sha256:HEX]`
    reference: Reference,
    /// The file to write; default: the last part of the path, with .wasm
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the list of the component's dependencies to this file too, if the registry has one: an SBOM as CycloneDX
    /// in JSON
    #[arg(long, value_name = "FILE")]
    sbom: Option<PathBuf>,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl Pull {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Self { reference, output: file, sbom, registry } = self;
        let file = file.unwrap_or_else(|| default_file(&reference));
        // Checked before the transfer too, so that nobody waits in vain.
        if let Some(there) = [Some(&file), sbom.as_ref()].into_iter().flatten().find(|file| is_there(file)) {
            return Err(new_file::exists(there));
        }
        let client = registry.client(reference.registry()).await?;
        let bar = Bar::new("pulling");
        let pulled = client.pull(&reference, &bar).await;
        drop(bar);
        let pulled = pulled.map_err(failed)?;
        let sbom = match sbom {
            Some(file) => Some(sbom::pull(&client, &reference, &pulled, file).await?),
            None => None,
        };
        new_file::write(&file, &pulled.component, MODE)?;
        output::note(&format!("wrote {} bytes to {}", pulled.component.len(), file.display()));
        if let Some(sbom) = sbom {
            sbom.write()?;
        }
        output::write(&format!("{}\n", reference.with_digest(&pulled.manifest_digest)))
    }
}

fn is_there(file: &Path) -> bool {
    fs::symlink_metadata(file).is_ok()
}

fn default_file(reference: &Reference) -> PathBuf {
    let name = reference.repository().rsplit('/').next().unwrap_or("component");
    PathBuf::from(format!("{name}.wasm"))
}
