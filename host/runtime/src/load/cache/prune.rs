//! Limits the size of the cache folder: deletes the least recently used files, and leftovers of interrupted writes.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Prefix and suffix of temporary files.
const ASIDE: (&str, &str) = (".", ".new");
/// A temporary file older than this is a leftover: no write takes that long.
const LEFT_OVER: Duration = Duration::from_secs(60 * 60);

/// The folder and its limit in bytes.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) most: u64,
}

struct CachedFile {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// A name for a temporary file.
pub(super) fn name_aside() -> String {
    let (begin, end) = ASIDE;
    format!("{begin}{:032x}{end}", fastrand::u128(..))
}

impl Folder {
    /// Deletes files until the limit is met, but never the file `kept`, which was just written. If a file cannot be
    /// deleted, the next call tries again. Files whose names are not those of cached or temporary files are ignored.
    pub(super) fn prune(&self, kept: Option<&Path>) {
        let mut compiled = Vec::new();
        let mut total = 0_u64;
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some((name, metadata)) = name.to_str().zip(entry.metadata().ok()) else { continue };
            // A file without a modification time counts as the oldest.
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if is_aside(name) && is_left_over(&metadata, used) {
                // Another process may have deleted it. Otherwise the next write tries again.
                let _ = fs::remove_file(entry.path());
            } else if is_compiled(name) {
                total = total.saturating_add(metadata.len());
                compiled.push(CachedFile { path: entry.path(), bytes: metadata.len(), used });
            }
        }
        compiled.sort_by_key(|entry| entry.used);
        let others = compiled.into_iter().filter(|entry| kept != Some(entry.path.as_path()));
        for CachedFile { path, bytes, .. } in others {
            if total <= self.most {
                return;
            }
            // A file that cannot be deleted still counts, and a younger one is deleted instead.
            if fs::remove_file(path).is_ok() {
                total = total.saturating_sub(bytes);
            }
        }
    }
}

fn is_left_over(metadata: &Metadata, written: SystemTime) -> bool {
    // A time in the future means that the clock was set back. Such a file may still be in use.
    metadata.is_file() && written.elapsed().is_ok_and(|age| age > LEFT_OVER)
}

fn is_aside(name: &str) -> bool {
    let (begin, end) = ASIDE;
    let middle = name.strip_prefix(begin).and_then(|name| name.strip_suffix(end));
    middle.is_some_and(|middle| is_hexadecimal(middle, 32))
}

fn is_compiled(name: &str) -> bool {
    let halves = name.strip_suffix(".cwasm").and_then(|name| name.split_once('-'));
    halves.is_some_and(|(component, engine)| is_hexadecimal(component, 64) && is_hexadecimal(engine, 16))
}

fn is_hexadecimal(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
