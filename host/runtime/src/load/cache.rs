//! Compiled components on disk, keyed by the component's digest and the engine's version and settings.
//!
//! A file here is native code that the host will run. So the folder is written by this user alone, each file is nobody
//! else's to read or write, and begins with a keyed digest over what it was compiled from and what it holds: whoever may
//! have written a file has not written that, without the key. Losing the folder costs a compilation each, nothing else.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use annex_files::Purpose;
use ring::hmac;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::confinement::engine;
use crate::digest::Digest;
use crate::error::RuntimeError;

mod key;
mod prune;

use prune::Folder;

/// Bytes of the keyed digest, with which a file begins.
const TAG_BYTES: usize = 32;
/// Bytes of the component's digest and the engine's hash, which follow.
const ORIGIN_BYTES: usize = 40;
/// A file that was used is marked so at most once in this time, so that a start does not write for each file it reads.
const MARKED_ONCE_IN: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) struct CompileCache {
    folder: Folder,
    engine: u64,
    key: hmac::Key,
}

impl CompileCache {
    /// Opens the folder, makes it when it is missing, and refuses one that others can write. Its files have at most `most`
    /// bytes together.
    pub(crate) fn open(folder: &Path, most: u64, engine: &Engine) -> Result<Self, RuntimeError> {
        let refuse = |error: io::Error| {
            let is_other = error.kind() == ErrorKind::NotADirectory;
            let reason = if is_other { "is not a folder".to_owned() } else { error.to_string() };
            RuntimeError::Cache { path: folder.to_owned(), reason }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(refuse)?;
        annex_files::check_folder(folder, Purpose::Private).map_err(refuse)?;
        let key = key::of(folder).map_err(refuse)?;
        let folder = Folder { path: folder.to_owned(), most };
        // The limit may be lower than at the last start, and broken attempts may have left files.
        folder.prune(None);
        Ok(Self { folder, engine: engine::identity(engine), key })
    }

    /// The compiled component, if it is here and intact.
    pub(crate) fn read(&self, engine: &Engine, digest: &Digest) -> Option<Component> {
        let compiled = match self.try_read(digest) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(component = %digest, %error, "a file in the compile cache was ignored");
                return None;
            }
        };
        deserialize(engine, compiled.get(TAG_BYTES + ORIGIN_BYTES..)?)
    }

    /// A whole file that was written with the key for this component and this engine.
    fn try_read(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        let mut file = annex_files::open(&self.path(digest), Purpose::Private)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        // The origin is signed with the code, so that a file of one component cannot be passed off as that of another.
        let is_ours = content.split_at_checked(TAG_BYTES).is_some_and(|(tag, signed)| {
            signed.starts_with(&self.origin(digest)) && hmac::verify(&self.key, signed, tag).is_ok()
        });
        if !is_ours {
            return Err(io::Error::new(ErrorKind::InvalidData, "it is damaged, or was written by somebody else"));
        }
        // Only the order in which files go depends on it.
        let _ = mark_used(&file);
        Ok(content)
    }

    /// Keeps a compiled component. Failure is logged and costs the next start a compilation.
    pub(crate) fn write(&self, digest: &Digest, compiled: &[u8]) {
        if let Err(error) = self.try_write(digest, compiled) {
            tracing::warn!(component = %digest, %error, "the compiled component could not be cached");
        }
    }

    fn try_write(&self, digest: &Digest, compiled: &[u8]) -> io::Result<()> {
        // All others would have to go for it, and the folder would be too large all the same.
        if compiled.len() as u64 > self.folder.most {
            let reason = format!("it has {} bytes, more than runtime.cache_bytes lets all have", compiled.len());
            return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
        }
        let origin = self.origin(digest);
        let mut signing = hmac::Context::with_key(&self.key);
        signing.update(&origin);
        signing.update(compiled);
        let path = self.path(digest);
        let tag = signing.sign();
        let content = [tag.as_ref(), &origin, compiled];
        write_aside(&self.folder.path, &content, |aside| fs::rename(aside, &path))?;
        self.folder.prune(Some(&path));
        Ok(())
    }

    /// The component that a file was compiled from, and the engine that it is for.
    fn origin(&self, digest: &Digest) -> [u8; ORIGIN_BYTES] {
        let mut origin = [0; ORIGIN_BYTES];
        let (component, engine) = origin.split_at_mut(digest.as_bytes().len());
        component.copy_from_slice(digest.as_bytes());
        engine.copy_from_slice(&self.engine.to_le_bytes());
        origin
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.path.join(format!("{}-{:016x}.cwasm", digest.hex(), self.engine))
    }
}

/// Writes a file for this user alone and lets `place` put it where it belongs, so that another process never reads half a
/// file.
fn write_aside(folder: &Path, content: &[&[u8]], place: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let aside = folder.join(prune::name_aside());
    // A file or a link that is there already is somebody else's, and must not be written through.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    let write = || -> io::Result<()> {
        // The umask may have taken bits from the mode above.
        file.set_permissions(Permissions::from_mode(0o600))?;
        content.iter().try_for_each(|part| file.write_all(part))?;
        place(&aside)
    };
    write().inspect_err(|_| drop(fs::remove_file(&aside)))
}

fn mark_used(file: &File) -> io::Result<()> {
    let now = SystemTime::now();
    let unused = now.duration_since(file.metadata()?.modified()?).unwrap_or_default();
    if unused < MARKED_ONCE_IN { Ok(()) } else { file.set_modified(now) }
}

#[expect(unsafe_code, reason = "wasmtime trusts the bytes that it deserialises")]
fn deserialize(engine: &Engine, compiled: &[u8]) -> Option<Component> {
    // SAFETY: the bytes were written by `CompileCache::write` of a host with this very engine version and settings, for
    // this component, and are unchanged since: `read` has verified a digest over all of it, keyed with what only this
    // user can read (`key`, and `annex_files::Purpose::Private`).
    let component = unsafe { Component::deserialize(engine, compiled) };
    component.inspect_err(|error| tracing::warn!(%error, "a file in the compile cache does not fit this engine")).ok()
}
