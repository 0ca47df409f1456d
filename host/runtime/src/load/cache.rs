//! Caches compiled components on disk, keyed by the component's digest and the engine's version and settings.
//!
//! A cached file is native code that the host will execute. Therefore only this user may write the folder, and only
//! this user may read or write its files. Each file begins with a keyed digest (HMAC) over its origin and content, so
//! that a file that was written without the key is ignored. Losing the folder only costs compilations.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use annex_files::Purpose;
use ring::hmac;
use serde::{Deserialize, Serialize};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::confinement::engine;
use crate::digest::Digest;
use crate::load::inspect::Outline;
use crate::load::keep_functions::KeepFunctions;
use crate::load::memory_images;

mod key;
mod prune;

use prune::Folder;

/// Size of the keyed digest at the beginning of a file, in bytes.
const TAG_BYTES: usize = 32;
/// Size of the component's digest and the engine's hash, which follow the keyed digest, in bytes.
const ORIGIN_BYTES: usize = 40;
/// The modification time of a used file is updated at most once in this time, so that a start does not write to each
/// file.
const MARKED_ONCE_IN: Duration = Duration::from_secs(24 * 60 * 60);

/// Facts about a component that the compiling process has determined in addition to the code.
#[derive(Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) outline: Outline,
    pub(crate) functions: Option<KeepFunctions>,
}

/// Files with the code that inspects, refuses and rewrites components. A change in one of these files invalidates the
/// cache.
const SOURCES: [&str; 9] = [
    include_str!("inspect.rs"),
    include_str!("keep_functions.rs"),
    include_str!("manifest.rs"),
    include_str!("compile/child/debug_info.rs"),
    include_str!("compile/child/outline.rs"),
    include_str!("compile/child/structure.rs"),
    include_str!("compile/child/structure/depth.rs"),
    include_str!("compile/child/keeping.rs"),
    include_str!("compile/child/keeping/rewrite.rs"),
];

/// A hash of the engine and of [`SOURCES`]. Together with the component they determine the content of a cached file.
fn edition(engine: &Engine) -> u64 {
    let mut hasher = DefaultHasher::new();
    (engine::identity(engine), SOURCES).hash(&mut hasher);
    hasher.finish()
}

pub(crate) struct CompileCache {
    folder: Folder,
    /// The hash of the engine and the sources, see [`edition`].
    engine: u64,
    key: Mutex<hmac::Key>,
}

impl CompileCache {
    /// Opens or creates the folder. `most` limits the size of all files in bytes. Returns `None` and logs a warning
    /// if the folder is unusable or writable for others.
    pub(crate) fn open(folder: &Path, most: u64, engine: &Engine) -> Option<Self> {
        match prepare(folder) {
            Ok((path, key)) => {
                let folder = Folder { path, most };
                // The limit may have been lowered, and interrupted writes may have left files.
                folder.prune(None);
                Some(Self { folder, engine: edition(engine), key: Mutex::new(key) })
            }
            Err(error) => {
                let reason = match error.kind() {
                    ErrorKind::NotADirectory | ErrorKind::AlreadyExists => "it is not a folder".to_owned(),
                    _ => error.to_string(),
                };
                let folder = folder.display();
                tracing::warn!(
                    "there is no compile cache, so that each start compiles all components: {folder}: {reason}; name a \
                     folder that this user can write as runtime.cache_dir"
                );
                None
            }
        }
    }

    fn key(&self) -> hmac::Key {
        self.key.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads a compiled component and its facts, if they are cached and intact.
    pub(crate) fn read(&self, engine: &Engine, digest: &Digest) -> Option<(Facts, Component)> {
        let compiled = match self.try_read(digest) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(component = %digest, %error, "a file in the compile cache was ignored");
                return None;
            }
        };
        let (length, rest) = compiled.get(TAG_BYTES + ORIGIN_BYTES..)?.split_first_chunk()?;
        let (facts, code) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        Some((serde_json::from_slice(facts).ok()?, deserialize(engine, code)?))
    }

    /// Reads a complete file and verifies its digest and origin.
    fn try_read(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        let mut file = annex_files::open(&self.path(digest), Purpose::Private)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        // The digest covers the origin too, so that a file of one component does not pass for another's.
        let is_ours = content.split_at_checked(TAG_BYTES).is_some_and(|(tag, signed)| {
            signed.starts_with(&self.origin(digest)) && hmac::verify(&self.key(), signed, tag).is_ok()
        });
        if !is_ours {
            return Err(io::Error::new(ErrorKind::InvalidData, "it is damaged, or another program has written it"));
        }
        // Only the order of deletion depends on this.
        let _ = mark_used(&file);
        Ok(content)
    }

    /// Writes a compiled component. A failure is logged and costs a compilation at the next start.
    pub(crate) fn write(&self, digest: &Digest, facts: &Facts, code: &[u8]) {
        if let Err(error) = self.try_write(digest, facts, code) {
            tracing::warn!(component = %digest, %error, "the compiled component could not be cached");
        }
    }

    fn try_write(&self, digest: &Digest, facts: &Facts, code: &[u8]) -> io::Result<()> {
        let facts = serde_json::to_vec(facts)?;
        let length = u32::try_from(facts.len()).map_err(io::Error::other)?.to_le_bytes();
        // Other files would be deleted for this one, and the folder would still be too large.
        if code.len() as u64 > self.folder.most {
            let reason = format!("it has {} bytes, more than runtime.cache_bytes allows in total", code.len());
            return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
        }
        let origin = self.origin(digest);
        let signed: [&[u8]; 4] = [&origin, &length, &facts, code];
        match self.put(digest, signed) {
            // The folder was removed since it was opened.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let (_, key) = prepare(&self.folder.path)?;
                *self.key.lock().unwrap_or_else(PoisonError::into_inner) = key;
                self.put(digest, signed)
            }
            put => put,
        }
    }

    fn put(&self, digest: &Digest, signed: [&[u8]; 4]) -> io::Result<()> {
        let mut signing = hmac::Context::with_key(&self.key());
        signed.iter().for_each(|part| signing.update(part));
        let tag = signing.sign();
        let path = self.path(digest);
        let content = [&[tag.as_ref()], &signed[..]].concat();
        write_aside(&self.folder.path, &content, |aside| fs::rename(aside, &path))?;
        self.folder.prune(Some(&path));
        Ok(())
    }

    /// The digest of the component and the hash of the engine, as each file contains them.
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

/// Creates the folder if needed, and returns its path and key. Fails if others can write it. A symbolic link is
/// resolved once: its target is checked and used from then on.
fn prepare(folder: &Path) -> io::Result<(PathBuf, hmac::Key)> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let folder = fs::canonicalize(folder)?;
    annex_files::check_folder(&folder, Purpose::Private)?;
    let key = key::of(&folder)?;
    Ok((folder, key))
}

/// Writes a temporary file that only this user can access, and lets `place` move it to its final name. Other
/// processes never read an incomplete file.
fn write_aside(folder: &Path, content: &[&[u8]], place: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let aside = folder.join(prune::name_aside());
    // `create_new` refuses an existing file or link, which another user may have created.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    let write = || -> io::Result<()> {
        // The umask may have removed bits of the mode above.
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
    // SAFETY: `CompileCache::write` of a host with this engine version and settings wrote the bytes for this
    // component, and they are unchanged: `read` has verified a digest over all of them, with a key that only this
    // user can read (`key`, and `annex_files::Purpose::Private`).
    let component = unsafe { Component::deserialize(engine, compiled) };
    let with_memory = component.and_then(memory_images::make);
    with_memory.inspect_err(|error| tracing::warn!(%error, "a file in the compile cache cannot be used")).ok()
}
