//! Compiled components on disk, keyed by the component's digest and the engine's version and settings.
//!
//! A file here is native code that the host will run, so the folder belongs to this user alone and every file starts
//! with the digest of the rest. Losing the folder costs a compilation each, nothing else.

use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use wasmtime::Engine;
use wasmtime::component::Component;

use crate::digest::Digest;
use crate::error::RuntimeError;

const DIGEST_BYTES: usize = 32;

pub(crate) struct CompileCache {
    folder: PathBuf,
    engine: u64,
}

impl CompileCache {
    /// Opens the folder, makes it when it is missing, and refuses one that others can write.
    pub(crate) fn open(folder: &Path, engine: &Engine) -> Result<Self, RuntimeError> {
        let refuse = |reason: String| RuntimeError::Cache { path: folder.to_owned(), reason };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| refuse(error.to_string()))?;
        let metadata = fs::symlink_metadata(folder).map_err(|error| refuse(error.to_string()))?;
        if !metadata.is_dir() {
            return Err(refuse("is not a folder".to_owned()));
        }
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(refuse("belongs to another user; name a folder of your own".to_owned()));
        }
        if metadata.mode() & 0o022 != 0 {
            return Err(refuse("can be written by others, who may have left code in it; delete it".to_owned()));
        }
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Self { folder: folder.to_owned(), engine: hasher.finish() })
    }

    /// The compiled component, if it is here and intact.
    pub(crate) fn read(&self, engine: &Engine, digest: &Digest) -> Option<Component> {
        let file = fs::read(self.path(digest)).ok()?;
        let (expected, compiled) = file.split_at_checked(DIGEST_BYTES)?;
        if Digest::of(compiled).as_bytes() != expected {
            tracing::warn!(component = %digest, "a damaged file in the compile cache was ignored");
            return None;
        }
        deserialize(engine, compiled)
    }

    /// Keeps a compiled component. Failure is logged and costs the next start a compilation.
    pub(crate) fn write(&self, digest: &Digest, compiled: &[u8]) {
        if let Err(error) = self.try_write(digest, compiled) {
            tracing::warn!(component = %digest, error, "the compiled component could not be cached");
        }
    }

    fn try_write(&self, digest: &Digest, compiled: &[u8]) -> Result<(), String> {
        let mut file = Digest::of(compiled).as_bytes().to_vec();
        file.extend_from_slice(compiled);
        // Written aside and renamed, so that another process never reads half a file.
        let aside = self.folder.join(format!("{}.{}", digest.hex(), std::process::id()));
        fs::write(&aside, &file).map_err(|error| error.to_string())?;
        match fs::rename(&aside, self.path(digest)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{}-{:016x}.cwasm", digest.hex(), self.engine))
    }
}

#[expect(unsafe_code, reason = "wasmtime trusts the bytes that it deserialises")]
fn deserialize(engine: &Engine, compiled: &[u8]) -> Option<Component> {
    // SAFETY: the bytes were written by `CompileCache::write` of a host with this very engine version and settings
    // (the file's name), into a folder that only this user can write (checked in `open`), and are unchanged since
    // (digest checked in `read`).
    let component = unsafe { Component::deserialize(engine, compiled) };
    component.inspect_err(|error| tracing::warn!(%error, "a file in the compile cache does not fit this engine")).ok()
}
