//! Components with their signatures and SBOMs in a tar archive, for machines without a network: an OCI image layout (OCI image
//! specification 1.1, "OCI Image Layout Specification").

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use tar::{Archive, Builder, Header};

use crate::client::Pulled;
use crate::digest::Digest;
use crate::error::MAX_TEXT;
use crate::manifest::{
    Descriptor, EMPTY, Index, MANIFEST_TYPE, ManifestError, Referrer, component_layer, of_component, of_referrer,
    referrer,
};
use crate::reference::{Reference, ReferenceError};
use crate::{MAX_COMPONENT_BYTES, MAX_MANIFEST_BYTES, MAX_SIGNATURE_BYTES, MAX_SIGNATURES};

const LAYOUT_FILE: &str = "oci-layout";
const LAYOUT: &[u8] = b"{\"imageLayoutVersion\":\"1.0.0\"}";
const INDEX_FILE: &str = "index.json";
/// The annotation with the reference of a manifest (OCI image specification, "Pre-Defined Annotation Keys").
const NAME: &str = "org.opencontainers.image.ref.name";
/// The maximum number of files in an archive.
const MAX_FILES: usize = 100_000;
/// The maximum number of components that are read from an archive.
const MAX_COMPONENTS: usize = 1_000;
const MODE: u32 = 0o644;

/// The reasons why an archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The archive cannot be read or written.
    #[error("the archive cannot be read or written")]
    Io(#[from] io::Error),
    /// The archive has too many files.
    #[error("the archive has more than {MAX_FILES} files")]
    TooManyFiles,
    /// The archive has too many components.
    #[error("the index of the archive names more than {MAX_COMPONENTS} components")]
    TooManyComponents,
    /// The archive lacks a file.
    #[error("the archive has no file {0}; expected an OCI image layout, as `annex save` writes it")]
    Missing(String),
    /// A file of the archive is too large.
    #[error("{0} in the archive has more than {1} bytes")]
    TooLarge(String, u64),
    /// A file of the archive has been changed.
    #[error("{expected} in the archive has been changed: its content has the digest {found}")]
    Digest {
        /// The digest in the name of the file.
        expected: Digest,
        /// The digest of the content.
        found: Digest,
    },
    /// The index or a manifest is not the JSON of one.
    #[error("the JSON of an index or a manifest cannot be read or written: {0}")]
    Json(String),
    /// The index names a component by another text than a reference.
    #[error("the index of the archive has a name that is no reference")]
    Reference(#[from] ReferenceError),
    /// A manifest is not that of a component or of a signature.
    #[error("a manifest in the archive cannot be used")]
    Manifest(#[from] ManifestError),
    /// A component has too many signatures.
    #[error("{0} in the archive has more than {MAX_SIGNATURES} signatures")]
    TooManySignatures(Digest),
}

impl From<serde_json::Error> for LayoutError {
    /// The error can quote the archive.
    fn from(error: serde_json::Error) -> Self {
        Self::Json(annex_text::line_within(&error.to_string(), MAX_TEXT))
    }
}

/// Writes an archive. The same components in the same order result in the same bytes.
pub struct LayoutWriter<W: Write> {
    archive: Builder<W>,
    written: BTreeSet<Digest>,
    index: Index,
}

impl<W: Write> LayoutWriter<W> {
    /// Begins an archive.
    ///
    /// # Errors
    /// [`LayoutError::Io`].
    pub fn new(out: W) -> Result<Self, LayoutError> {
        let mut archive = Builder::new(out);
        append(&mut archive, LAYOUT_FILE, LAYOUT)?;
        Ok(Self { archive, written: BTreeSet::new(), index: Index::new() })
    }

    /// Adds a component and its signatures.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn add(
        &mut self,
        reference: &Reference,
        component: &Pulled,
        signatures: &[Vec<u8>],
    ) -> Result<(), LayoutError> {
        // Other tools want the config, which is the same for everybody who pushes in this layout. Annex reads it nowhere.
        let (config, _) = of_component(&component.component, BTreeMap::new())?;
        for content in [&config, &component.component, &component.manifest] {
            self.blob(content)?;
        }
        let subject = Descriptor::of(MANIFEST_TYPE, &component.manifest);
        let mut named = subject.clone();
        let name = reference.to_string();
        named.annotations.insert(NAME.to_owned(), name.trim_start_matches("oci://").to_owned());
        self.index.manifests.push(named);
        signatures.iter().try_for_each(|bundle| self.referrer(Referrer::Signature, subject.clone(), bundle))
    }

    /// Adds an SBOM of a component.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn add_sbom(&mut self, component: &Pulled, sbom: &[u8]) -> Result<(), LayoutError> {
        self.referrer(Referrer::Sbom, Descriptor::of(MANIFEST_TYPE, &component.manifest), sbom)
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn finish(mut self) -> Result<W, LayoutError> {
        append(&mut self.archive, INDEX_FILE, &serde_json::to_vec(&self.index)?)?;
        Ok(self.archive.into_inner()?)
    }

    fn referrer(&mut self, kind: Referrer, subject: Descriptor, content: &[u8]) -> Result<(), LayoutError> {
        let manifest = of_referrer(kind, subject, content)?;
        for blob in [EMPTY, content, manifest.as_slice()] {
            self.blob(blob)?;
        }
        let mut descriptor = Descriptor::of(MANIFEST_TYPE, &manifest);
        descriptor.artifact_type = Some(kind.media_type().to_owned());
        self.index.manifests.push(descriptor);
        Ok(())
    }

    fn blob(&mut self, content: &[u8]) -> Result<(), LayoutError> {
        let digest = Digest::of(content);
        if self.written.contains(&digest) {
            return Ok(());
        }
        append(&mut self.archive, &blob_file(&digest), content)?;
        self.written.insert(digest);
        Ok(())
    }
}

/// An archive that was opened for reading.
pub struct Layout {
    file: File,
    /// The position and the size of each file in the archive.
    places: BTreeMap<String, (u64, u64)>,
    index: Index,
    /// The signatures of each manifest, by their digests.
    signatures: BTreeMap<Digest, BTreeSet<Digest>>,
}

impl Layout {
    /// Opens an archive and reads its index.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn open(file: File) -> Result<Self, LayoutError> {
        let places = places(&file)?;
        let mut layout = Self { file, places, index: Index::new(), signatures: BTreeMap::new() };
        layout.read(LAYOUT_FILE, MAX_MANIFEST_BYTES)?;
        let index = layout.read(INDEX_FILE, MAX_MANIFEST_BYTES)?;
        layout.index = serde_json::from_slice(&index)?;
        layout.find_signatures()?;
        Ok(layout)
    }

    /// The components of the archive, each with the digest of its manifest. Several references can have one manifest.
    ///
    /// # Errors
    /// [`LayoutError::Reference`], [`LayoutError::TooManyComponents`].
    pub fn components(&self) -> Result<Vec<(Reference, Digest)>, LayoutError> {
        let named = self.index.manifests.iter().filter(|found| found.artifact_type.is_none());
        let named = named.filter_map(|found| Some((found.annotations.get(NAME)?, &found.digest)));
        let mut components: Vec<(Reference, Digest)> = Vec::new();
        let mut known = BTreeSet::new();
        for (name, digest) in named.filter(|named| known.insert(*named)) {
            if components.len() >= MAX_COMPONENTS {
                return Err(LayoutError::TooManyComponents);
            }
            components.push((name.parse()?, digest.clone()));
        }
        Ok(components)
    }

    /// Reads a component by the digest of its manifest, and its signatures. Nobody has verified the signatures.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn read_component(&mut self, manifest: &Digest) -> Result<(Pulled, Vec<Vec<u8>>), LayoutError> {
        let found = self.blob(manifest, MAX_MANIFEST_BYTES)?;
        let layer = component_layer(&found)?;
        let most = usize::try_from(MAX_COMPONENT_BYTES).unwrap_or(usize::MAX);
        let component = self.blob(&layer.digest, most)?;
        let signatures = self.read_signatures(manifest)?;
        let pulled =
            Pulled { manifest_digest: manifest.clone(), manifest: found, component_digest: layer.digest, component };
        Ok((pulled, signatures))
    }

    /// Reads the signatures of the component with this manifest. Nobody has verified them.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn read_signatures(&mut self, manifest: &Digest) -> Result<Vec<Vec<u8>>, LayoutError> {
        let found = self.signatures.get(manifest).cloned().unwrap_or_default();
        if found.len() > MAX_SIGNATURES {
            return Err(LayoutError::TooManySignatures(manifest.clone()));
        }
        found.iter().map(|digest| self.blob(digest, MAX_SIGNATURE_BYTES)).collect()
    }

    /// Finds out which signature is about which manifest. The manifest of each signature is read once, so that the work for
    /// an archive grows with its size alone.
    fn find_signatures(&mut self) -> Result<(), LayoutError> {
        let kind = Referrer::Signature;
        let is_signature = |found: &&Descriptor| found.artifact_type.as_deref() == Some(kind.media_type());
        let manifests: BTreeSet<Digest> =
            self.index.manifests.iter().filter(is_signature).map(|found| found.digest.clone()).collect();
        for digest in manifests {
            let (subject, layer) = referrer(kind, &self.blob(&digest, MAX_MANIFEST_BYTES)?)?;
            self.signatures.entry(subject).or_default().insert(layer.digest);
        }
        Ok(())
    }

    fn blob(&mut self, digest: &Digest, most: usize) -> Result<Vec<u8>, LayoutError> {
        let content = self.read(&blob_file(digest), most)?;
        let found = Digest::of(&content);
        if found == *digest { Ok(content) } else { Err(LayoutError::Digest { expected: digest.clone(), found }) }
    }

    fn read(&mut self, name: &str, most: usize) -> Result<Vec<u8>, LayoutError> {
        let place = self.places.get(name).copied();
        let (position, size) = place.ok_or_else(|| LayoutError::Missing(name.to_owned()))?;
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        if size > most {
            return Err(LayoutError::TooLarge(name.to_owned(), most));
        }
        self.file.seek(SeekFrom::Start(position))?;
        let mut content = Vec::new();
        (&self.file).take(size).read_to_end(&mut content)?;
        Ok(content)
    }
}

/// Finds the files of an archive. Folders and links do not count. An entry that gives a later entry another name or size is
/// skipped: its content would be read into memory whatever its size, and the names of a layout are short.
fn places(file: &File) -> Result<BTreeMap<String, (u64, u64)>, LayoutError> {
    let mut places = BTreeMap::new();
    for entry in Archive::new(file).entries_with_seek()?.raw(true) {
        let entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        if places.len() >= MAX_FILES {
            return Err(LayoutError::TooManyFiles);
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
        places.insert(name, (entry.raw_file_position(), entry.size()));
    }
    Ok(places)
}

fn blob_file(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn append<W: Write>(archive: &mut Builder<W>, name: &str, content: &[u8]) -> Result<(), LayoutError> {
    let mut header = Header::new_gnu();
    header.set_size(u64::try_from(content.len()).unwrap_or(u64::MAX));
    header.set_mode(MODE);
    // The same for everybody, so that the archive depends on its content alone.
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    Ok(archive.append_data(&mut header, name, content)?)
}
