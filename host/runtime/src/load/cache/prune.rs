//! Keeps the cache's folder within its bytes: what was not used for longest goes, and what broken attempts have left.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The ending of files that are being written.
const ASIDE: (&str, &str) = (".", ".new");
/// A file aside that is older than this is left over from a broken attempt: nobody writes one file for so long.
const LEFT_OVER: Duration = Duration::from_secs(60 * 60);

/// The folder and the bytes that it may have.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) most: u64,
}

struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// A name for a file that is being written.
pub(super) fn name_aside() -> String {
    let (begin, end) = ASIDE;
    format!("{begin}{:032x}{end}", fastrand::u128(..))
}

impl Folder {
    /// Deletes what is over, but never `kept`, which was just written. What cannot be deleted stays: the next one tries
    /// again. Only files that are called as this cache calls them are looked at.
    pub(super) fn prune(&self, kept: Option<&Path>) {
        let mut compiled = Vec::new();
        let mut total = 0_u64;
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some((name, metadata)) = name.to_str().zip(entry.metadata().ok()) else { continue };
            // A file that does not say when it was used counts as the oldest.
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if is_aside(name) && is_left_over(&metadata, used) {
                // Another process may be faster. A file that stays for another reason is tried again after the next write.
                let _ = fs::remove_file(entry.path());
            } else if is_compiled(name) {
                total = total.saturating_add(metadata.len());
                compiled.push(Entry { path: entry.path(), bytes: metadata.len(), used });
            }
        }
        compiled.sort_by_key(|entry| entry.used);
        let others = compiled.into_iter().filter(|entry| kept != Some(entry.path.as_path()));
        for Entry { path, bytes, .. } in others {
            if total <= self.most {
                return;
            }
            // One that cannot be removed goes on counting, and a younger one goes in its place.
            if fs::remove_file(path).is_ok() {
                total = total.saturating_sub(bytes);
            }
        }
    }
}

fn is_left_over(metadata: &Metadata, written: SystemTime) -> bool {
    // A time in the future comes of a clock that was set back. Such a file may still be written.
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
