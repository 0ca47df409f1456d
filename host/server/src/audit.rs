//! The audit log: a file with a line for each change over the admin API and for each receipt, chained by hashes.
//!
//! A line has the digest of the line before it, so a missing or changed line shows. The file belongs to the operator:
//! this program only appends to it. `annex audit verify` checks the chain.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use annex_files::Purpose;
use annex_protocol::Timestamp;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use tokio::task::spawn_blocking;
use tokio_util::task::TaskTracker;

mod chain;
pub(crate) mod receipts;
pub(crate) mod record;
mod verify;

use chain::{ChainEnd, FIRST_NUMBER, MAX_LINE_BYTES};
use record::{Line, Record};
pub use verify::{VerifiedChain, VerifyError, verify_audit};

/// The maximum number of bytes that other processes may have appended since the last line of this process. Of more
/// bytes only the last two lines are checked.
const MAX_FOLLOWED_BYTES: u64 = 4 << 20;
/// The number of attempts to lock the file, and the pause between two attempts.
const LOCK_ATTEMPTS: usize = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);
const MODE: u32 = 0o600;

/// The reasons why a line cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be opened.
    #[error("admin.audit_file: cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The file cannot be read or written.
    #[error("admin.audit_file: cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

/// The audit log of a process. Other processes of the same host may write to the same file.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    /// The end of the file after the last line of this process. `None` before the first line.
    known: Mutex<Option<FileEnd>>,
    /// The tasks that append receipts.
    writers: TaskTracker,
}

/// The end of the file after a line.
#[derive(Debug)]
struct FileEnd {
    place: FilePosition,
    chain: ChainEnd,
}

/// A file and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FilePosition {
    device: u64,
    inode: u64,
    length: u64,
}

/// The state of the file before a line is appended.
struct ChainState {
    /// The end of the chain. `None` if there is no line yet.
    end: Option<ChainEnd>,
    /// The reason why the file does not continue the chain. `None` if it does.
    broken: Option<&'static str>,
}

impl Audit {
    /// Opens the file, or creates it, and writes that the process has started. Blocks the thread. If the line cannot be
    /// written, for example because the disk is full, this is logged, and changes are refused until it can.
    ///
    /// # Errors
    /// [`AuditError::Open`]
    pub(crate) fn open(path: PathBuf) -> Result<Self, AuditError> {
        let audit = Self { path, known: Mutex::new(None), writers: TaskTracker::new() };
        match audit.append(&[Record::started()]) {
            Ok(number) => {
                tracing::info!(path = %audit.path.display(), number, "changes are recorded in the audit file");
                Ok(audit)
            }
            Err(error @ AuditError::Open { .. }) => Err(error),
            Err(error) => {
                let error = annex_text::with_causes(&error);
                tracing::error!(error, "the audit file cannot be written; changes over the admin API are refused");
                Ok(audit)
            }
        }
    }

    /// Appends a record, and waits until the line is on the disk. Returns the number of the line.
    ///
    /// # Errors
    /// [`AuditError`]. The file then has no part of the line, or the next line begins a new chain.
    pub(crate) async fn record(self: &Arc<Self>, record: Record) -> Result<u64, AuditError> {
        self.record_all(vec![record]).await
    }

    /// Like [`record`](Self::record), for at least one record. Returns the number of the last line.
    async fn record_all(self: &Arc<Self>, records: Vec<Record>) -> Result<u64, AuditError> {
        let audit = Arc::clone(self);
        let writing = spawn_blocking(move || audit.append(&records)).await;
        writing.unwrap_or_else(|panicked| Err(self.unwritten(io::Error::other(panicked))))
    }

    /// Appends a record in the background. A failure is logged.
    pub(crate) fn record_later(self: &Arc<Self>, record: Record) {
        let audit = Arc::clone(self);
        drop(spawn_blocking(move || {
            if let Err(error) = audit.append(&[record]) {
                tracing::error!(error = annex_text::with_causes(&error), "a refused change is not in the audit file");
            }
        }));
    }

    fn append(&self, records: &[Record]) -> Result<u64, AuditError> {
        // One line after the other. The lock of the file keeps the other processes out.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let file = open(&self.path).map_err(|source| AuditError::Open { path: self.path.clone(), source })?;
        let end = self.append_to(&file, known.as_ref(), records).map_err(|source| self.unwritten(source))?;
        let number = end.chain.number;
        *known = Some(end);
        Ok(number)
    }

    fn append_to(&self, file: &File, known: Option<&FileEnd>, records: &[Record]) -> io::Result<FileEnd> {
        lock(file)?;
        let place = FilePosition::of(file)?;
        let ChainState { mut end, broken } = chain_state(file, place, known)?;
        let mut text = Vec::new();
        if let Some(reason) = broken {
            tracing::warn!(path = %self.path.display(), reason, "the audit file was changed; a new chain begins");
            if !ends_a_line(file, place)? {
                text.push(b'\n');
            }
            end = Some(push(&mut text, end.as_ref(), &Record::new_chain(reason))?);
        }
        for record in records {
            end = Some(push(&mut text, end.as_ref(), record)?);
        }
        let chain = end.ok_or_else(|| io::Error::other("there is no record to write"))?;
        let mut writer = file;
        if let Err(error) = writer.write_all(&text).and_then(|()| file.sync_data()) {
            // Part of a line may be in the file. If it cannot be removed, the next line finds it and begins a new chain.
            let _ = file.set_len(place.length);
            return Err(error);
        }
        if place.length == 0 {
            sync_folder(&self.path)?;
        }
        let length = place.length.saturating_add(text.len() as u64);
        Ok(FileEnd { place: FilePosition { length, ..place }, chain })
    }

    fn unwritten(&self, source: io::Error) -> AuditError {
        AuditError::Write { path: self.path.clone(), source }
    }
}

impl FilePosition {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino(), length: metadata.len() })
    }

    fn is_in(self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Opens the file, which only this user may read and write. The path is opened for each line, so that the operator can
/// move the file away at any time.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(MODE).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    annex_files::open(path, Purpose::Private)?;
    Ok(file)
}

/// Locks the file until it is closed.
fn lock(file: &File) -> io::Result<()> {
    for _ in 0..LOCK_ATTEMPTS {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
            locked => return locked.map_err(io::Error::from),
        }
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "another process keeps the file locked"))
}

/// Finds the line that the next one follows.
fn chain_state(file: &File, place: FilePosition, known: Option<&FileEnd>) -> io::Result<ChainState> {
    let end = known.map(|known| known.chain.clone());
    match known {
        Some(known) if known.place == place => Ok(ChainState { end, broken: None }),
        Some(known) if known.place.is_in(place) && place.length < known.place.length => {
            Ok(ChainState { end, broken: Some("the file is shorter than this process has left it") })
        }
        Some(known) if known.place.is_in(place) && place.length - known.place.length <= MAX_FOLLOWED_BYTES => {
            let added = read(file, known.place.length, place.length)?;
            Ok(checked(chain::follow(&added, &known.chain), end))
        }
        // The operator has moved the file away. The new file continues the chain of the old one.
        _ if place.length == 0 => Ok(ChainState { end, broken: None }),
        _ => {
            let from = place.length.saturating_sub(2 * MAX_LINE_BYTES as u64 + 2);
            let tail = read(file, from, place.length)?;
            Ok(checked(chain::last(&tail, from == 0), end))
        }
    }
}

/// The result of a check of the file. `before` is the end that this process knows.
fn checked(found: Result<ChainEnd, &'static str>, before: Option<ChainEnd>) -> ChainState {
    match found {
        Ok(end) => ChainState { end: Some(end), broken: None },
        Err(reason) => ChainState { end: before, broken: Some(reason) },
    }
}

fn read(file: &File, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(to.saturating_sub(from)).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

/// True if the file is empty or ends with a line break.
fn ends_a_line(file: &File, place: FilePosition) -> io::Result<bool> {
    match place.length.checked_sub(1) {
        Some(last) => Ok(read(file, last, place.length)?.ends_with(b"\n")),
        None => Ok(true),
    }
}

/// Adds the line of a record to `text`, as the line after `end`. Returns the end of the chain with this line.
fn push(text: &mut Vec<u8>, end: Option<&ChainEnd>, record: &Record) -> io::Result<ChainEnd> {
    let number = end.map_or(FIRST_NUMBER, |end| end.number.saturating_add(1));
    let prev = end.map(|end| end.digest.as_str());
    let line = serde_json::to_vec(&Line { number, time: Timestamp::now().to_string(), record, prev })?;
    if line.len() > MAX_LINE_BYTES {
        return Err(io::Error::other(format!("the line would have {} bytes, of at most {MAX_LINE_BYTES}", line.len())));
    }
    let digest = chain::digest(&line);
    text.extend(line);
    text.push(b'\n');
    Ok(ChainEnd { number, digest })
}

/// Makes the entry of a new file in its folder durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;
