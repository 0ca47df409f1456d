//! SBOMs of components: lists of their dependencies, as CycloneDX in JSON.

use std::path::{Path, PathBuf};

use annex_files::Purpose;
use annex_registry::{Client, Layer, MAX_SBOM_BYTES, Pulled, Reference};
use anyhow::Context;
use serde::Deserialize;

use super::failed;
use crate::exit::Failure;
use crate::{new_file, output};

/// The permissions of a new file.
const MODE: u32 = 0o644;
/// The maximum length of the reason why a file is no SBOM, in bytes. The reason quotes the file.
const MAX_REASON: usize = 300;
/// The value of `bomFormat` in each document of CycloneDX.
const FORMAT: &str = "CycloneDX";

/// What every document of CycloneDX says first.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    bom_format: String,
    #[expect(dead_code, reason = "a document without a version is no document of CycloneDX")]
    spec_version: String,
}

/// Reads an SBOM from a file.
///
/// # Errors
/// When the file cannot be read, or is no CycloneDX in JSON.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let read = annex_files::read(file, Purpose::Named, MAX_SBOM_BYTES);
    let read = read.with_context(|| format!("cannot read {}", file.display()))?;
    let wrong = |reason: String| {
        let reason = annex_text::line_within(&reason, MAX_REASON);
        Failure::Refused.error(format!("{} is no SBOM as CycloneDX in JSON: {reason}", file.display()))
    };
    let document: Document = serde_json::from_slice(&read).map_err(|error| wrong(error.to_string()))?;
    if document.bom_format != FORMAT {
        return Err(wrong(format!("its bomFormat is {:?}, and not {FORMAT:?}", document.bom_format)));
    }
    Ok(read)
}

/// Pushes an SBOM of a component that is in the registry.
///
/// # Errors
/// When the registry fails.
pub(super) async fn push(client: &Client, reference: &Reference, sbom: Vec<u8>) -> anyhow::Result<()> {
    let without = || format!("{reference} is pushed, and its SBOM is not");
    let size = sbom.len();
    let subject = client.resolve(reference).await.map_err(failed).with_context(without)?;
    client.push_sbom(reference, &subject, sbom.into()).await.map_err(failed).with_context(without)?;
    output::note(&format!("pushed its SBOM of {size} bytes"));
    Ok(())
}

/// The SBOM of a component that is to be written to a file.
pub(super) struct NewSbom {
    file: PathBuf,
    /// `None` if the component has no SBOM.
    content: Option<Vec<u8>>,
}

/// Pulls the SBOM of a component for a new file.
///
/// # Errors
/// When the registry fails, or when the component has several SBOMs.
pub(super) async fn pull(
    client: &Client,
    reference: &Reference,
    component: &Pulled,
    file: PathBuf,
) -> anyhow::Result<NewSbom> {
    let sboms = client.sboms(reference, &component.manifest_digest).await;
    let content = match sboms.map_err(failed).context("cannot read the list of SBOMs")?.as_slice() {
        [] => None,
        [one] => Some(client.pull_sbom(reference, one).await.map_err(failed)?),
        several => return Err(Failure::Refused.error(choice(reference, several))),
    };
    Ok(NewSbom { file, content })
}

impl NewSbom {
    /// Writes the file, or says that there is no SBOM.
    ///
    /// # Errors
    /// When the file exists or cannot be written.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        let Self { file, content } = self;
        let Some(content) = content else {
            output::note(&format!("the registry has no SBOM of it, and {} is not written", file.display()));
            return Ok(());
        };
        new_file::write(file, content, MODE)?;
        output::note(&format!("wrote its SBOM of {} bytes to {}", content.len(), file.display()));
        Ok(())
    }
}

fn choice(reference: &Reference, several: &[Layer]) -> String {
    let digests: Vec<&str> = several.iter().map(|sbom| sbom.digest.as_str()).collect();
    format!(
        "{reference} has {} SBOMs ({}), and Annex takes one only if there is no other; pull without --sbom",
        several.len(),
        digests.join(", ")
    )
}
