//! Pulled components in a folder.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, read_dir, remove_file};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use annex_files::Purpose;

use crate::client::Pulled;
use crate::digest::Digest;
use crate::manifest::component_layer;
use crate::{MAX_COMPONENT_BYTES, MAX_MANIFEST_BYTES, MAX_SIGNATURE_BYTES, MAX_SIGNATURES};

/// A folder with manifests, components and signatures, each under its digest. Several processes can use it.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// A component in the cache. Each part had its digest when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    /// The manifest as the registry has sent it.
    pub manifest: Vec<u8>,
    /// The digest of the component.
    pub component_digest: Digest,
    /// The component.
    pub component: Vec<u8>,
    /// The signatures that were found when the component was pulled.
    pub signatures: Vec<Vec<u8>>,
}

impl Cache {
    /// A cache in this folder, which is made when something is stored.
    #[must_use]
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Reads a component. `None` if the cache does not have all of its parts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if a part has been changed. Any other error of reading a file.
    pub fn get(&self, manifest: &Digest) -> io::Result<Option<Cached>> {
        let Some(found) = self.blob(manifest, MAX_MANIFEST_BYTES)? else { return Ok(None) };
        let layer = component_layer(&found).map_err(|error| invalid(manifest, &error.to_string()))?;
        let most = usize::try_from(MAX_COMPONENT_BYTES).unwrap_or(usize::MAX);
        let Some(component) = self.blob(&layer.digest, most)? else { return Ok(None) };
        let signatures = self.signatures(manifest)?;
        Ok(Some(Cached { manifest: found, component_digest: layer.digest, component, signatures }))
    }

    /// Stores a component and its signatures. Signatures of earlier pulls stay, unless there would be more than
    /// [`MAX_SIGNATURES`].
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if another user can write to the folder. Any other error of writing a file.
    pub fn put(&self, pulled: &Pulled, signatures: &[Vec<u8>]) -> io::Result<()> {
        make(&self.blobs())?;
        // The target of a link is checked, because people move caches to other disks.
        annex_files::check_folder(&self.folder.canonicalize()?, Purpose::Private)?;
        let _lock = self.lock()?;
        let folder = self.signatures_of(&pulled.manifest_digest);
        make(&folder)?;
        make_room(&folder, signatures)?;
        for signature in signatures {
            annex_files::replace(&folder.join(Digest::of(signature).hex()), signature, 0o600)?;
        }
        annex_files::replace(&self.blob_path(&pulled.component_digest), &pulled.component, 0o600)?;
        // Last, because a manifest in the cache stands for the whole component.
        annex_files::replace(&self.blob_path(&pulled.manifest_digest), &pulled.manifest, 0o600)
    }

    /// Waits until no other process writes. Two that write one file would both use the name of its temporary file.
    fn lock(&self) -> io::Result<File> {
        let path = self.folder.join("lock");
        match annex_files::create(&path, 0o600, false) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let file = annex_files::open(&path, Purpose::Private)?;
        file.lock()?;
        Ok(file)
    }

    fn signatures(&self, manifest: &Digest) -> io::Result<Vec<Vec<u8>>> {
        let entries = match read_dir(self.signatures_of(manifest)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            // A file with another name is one that is being written.
            names.extend(entry?.file_name().to_str().and_then(|hex| format!("sha256:{hex}").parse::<Digest>().ok()));
            if names.len() == MAX_SIGNATURES {
                break;
            }
        }
        names.sort();
        let folder = self.signatures_of(manifest);
        let read = names.iter().map(|digest| checked(&folder.join(digest.hex()), digest, MAX_SIGNATURE_BYTES));
        // Another process may have removed a signature since the folder was listed.
        read.map(none_if_missing).filter_map(Result::transpose).collect()
    }

    fn blob(&self, digest: &Digest, most: usize) -> io::Result<Option<Vec<u8>>> {
        none_if_missing(checked(&self.blob_path(digest), digest, most))
    }

    fn blobs(&self) -> PathBuf {
        self.folder.join("blobs/sha256")
    }

    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    fn signatures_of(&self, manifest: &Digest) -> PathBuf {
        self.folder.join("signatures").join(manifest.hex())
    }
}

/// Removes the signatures of earlier pulls if they and `new` are more than [`MAX_SIGNATURES`]. A registry could otherwise fill the
/// folder, and a good signature would not be among those that are read.
fn make_room(folder: &Path, new: &[Vec<u8>]) -> io::Result<()> {
    let new: BTreeSet<String> = new.iter().map(|signature| Digest::of(signature).hex().to_owned()).collect();
    let mut earlier = Vec::new();
    for entry in read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_none_or(|name| !new.contains(name)) {
            earlier.push(entry.path());
        }
    }
    if earlier.len() + new.len() > MAX_SIGNATURES {
        for path in earlier {
            remove_file(path)?;
        }
    }
    Ok(())
}

/// `None` in place of the error that a file is missing.
fn none_if_missing(read: io::Result<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Reads a file whose content must have this digest.
fn checked(path: &Path, digest: &Digest, most: usize) -> io::Result<Vec<u8>> {
    let bytes = annex_files::read(path, Purpose::Private, most)?;
    let found = Digest::of(&bytes);
    if found == *digest { Ok(bytes) } else { Err(invalid(digest, &format!("its content has the digest {found}"))) }
}

fn invalid(digest: &Digest, reason: &str) -> io::Error {
    let text =
        format!("{digest} in the cache has been changed: {reason}; delete the file and pull the component again");
    io::Error::new(ErrorKind::InvalidData, text)
}

fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}
