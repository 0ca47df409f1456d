//! `annex load`

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use annex_files::Purpose;
use annex_registry::{Cache, Layout, LayoutError};
use anyhow::{Context, anyhow};
use clap::Args;

use super::keys::SignerArgs;
use super::origin;
use crate::exit::Failure;
use crate::{output, serve};

/// Load components of a file that `annex save` has written into the cache of this machine.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex load components.tar\n  annex load components.tar --key acme.pub\n\nPrints each \
                        reference with its digest. Each digest is checked. No registry is called. The cache is \
                        annex/registry in the user's cache folder."
)]
pub(crate) struct Load {
    /// The file
    file: PathBuf,
    #[command(flatten)]
    signers: SignerArgs,
}

impl Load {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Self { file, signers } = self;
        let policy = signers.policy()?;
        let cache = serve::cache_folder().context("there is no cache folder; set XDG_CACHE_HOME or HOME")?;
        let cache = Cache::at(cache.join("registry"));
        let failed = |error| failed(error, &file);
        let opened = annex_files::open(&file, Purpose::Named).with_context(|| cannot_read(&file))?;
        let mut layout = Layout::open(opened).map_err(failed)?;
        let components = layout.components().map_err(failed)?;
        // All are checked before the first is stored. Each is read again then, because all of them may not fit into memory.
        // A component with several names is read once.
        let mut checked = BTreeSet::new();
        for (reference, manifest) in &components {
            let signatures = if checked.insert(manifest) {
                layout.read_component(manifest).map(|(_, signatures)| signatures)
            } else {
                layout.read_signatures(manifest)
            };
            origin::origin(reference, manifest, &signatures.map_err(failed)?, policy.as_ref())?;
        }
        let mut stored = BTreeSet::new();
        for (reference, manifest) in &components {
            if stored.insert(manifest) {
                let (pulled, signatures) = layout.read_component(manifest).map_err(failed)?;
                origin::origin(reference, manifest, &signatures, policy.as_ref())?;
                cache.put(&pulled, &signatures).with_context(|| format!("cannot store {reference} in the cache"))?;
            }
            output::write(&format!("{}\n", reference.with_digest(manifest)))?;
        }
        Ok(())
    }
}

/// Marks the error of an archive with its exit code.
fn failed(error: LayoutError, file: &Path) -> anyhow::Error {
    let is_unreadable = matches!(error, LayoutError::Io(_) | LayoutError::Json(_));
    let error = anyhow!(error).context(cannot_read(file));
    if is_unreadable { error } else { Failure::Refused.of(error) }
}

fn cannot_read(file: &Path) -> String {
    format!("cannot read {}", file.display())
}
