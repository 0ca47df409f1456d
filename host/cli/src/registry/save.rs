//! `annex save`

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use annex_registry::{LayoutWriter, Reference};
use anyhow::Context;
use clap::Args;

use super::keys::SignerArgs;
use super::{RegistryArgs, origin};
use crate::{new_file, output};

/// The permissions of the new file.
const MODE: u32 = 0o644;

/// Save components of OCI registries with their signatures and SBOMs in a file, for machines without a network.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex save oci://registry.example/acme/redact:1.2 -o components.tar\n  annex save \
                        oci://registry.example/acme/redact:1.2 \\\n    oci://registry.example/acme/clock:3 --key \
                        acme.pub -o components.tar\n\nThe file is an OCI image layout in a tar archive, which \
                        `annex load` reads on the other machine. An existing file is not changed."
)]
pub(crate) struct Save {
    /// The components: `oci://HOST[:PORT]/PATH[:TAG][@sha256:HEX]`
    #[arg(required = true, value_name = "REFERENCE")]
    references: Vec<Reference>,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    signers: SignerArgs,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl Save {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        self.registry.refuse_for_several(&self.references)?;
        let created = new_file::create(&self.output, MODE)?;
        let saved = self.save_into(created).await;
        // A part of an archive helps nobody.
        let saved = saved.inspect_err(|_| drop(fs::remove_file(&self.output)))?;
        output::write(&saved)
    }

    /// Returns the references with their digests, one per line.
    async fn save_into(&self, file: File) -> anyhow::Result<String> {
        let cannot_write = || format!("cannot write {}", self.output.display());
        let mut archive = LayoutWriter::new(BufWriter::new(file)).with_context(cannot_write)?;
        let mut saved = String::new();
        for reference in &self.references {
            let component = origin::pull(reference, &self.signers, &self.registry, "pulling").await?;
            archive.add(reference, &component.pulled, &component.signatures).with_context(cannot_write)?;
            for sbom in component.pull_sboms(reference).await? {
                archive.add_sbom(&component.pulled, &sbom).with_context(cannot_write)?;
            }
            saved += &format!("{}\n", component.origin.reference);
        }
        archive.finish().with_context(cannot_write)?.flush().with_context(cannot_write)?;
        Ok(saved)
    }
}
