//! The conversation of the host with the compiling process, over one socket: a greeting, one request, an answer with what
//! the component says of itself, and one with its code if it is to be compiled. An answer that is a refusal is the last.
//!
//! All are a header in JSON, with its length before it, and bytes after it.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::confinement::engine::EngineOptions;
use crate::load::inspect::Outline;
use crate::load::keep_functions::KeepFunctions;

/// Changes with the messages below.
pub(super) const VERSION: u32 = 3;

/// The first bytes that a compiling process says, before it has read any. Other programs do not say them.
pub(super) const GREETING: &[u8] = b"annex compiles: 1\n";

/// Bytes of a header. The longest has the names of a component's imports and exports, and its manifest.
const MAX_HEADER: u32 = 1 << 20;

/// Bytes of a reason in an answer.
pub(super) const MAX_TEXT: usize = 4 << 10;

/// The request of the host. The component follows it.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) version: u32,
    /// Bytes of memory that the process may have.
    pub(super) memory: u64,
    /// Seconds of CPU time that it may take.
    pub(super) cpu_seconds: u64,
    /// The engine that is to run the code, as `engine::identity` gives it.
    pub(super) engine: u64,
    /// The options of that engine.
    pub(super) options: EngineOptions,
    pub(super) task: Task,
    /// SHA-256 of the component, in hexadecimal digits.
    pub(super) component: String,
    /// Bytes of the component.
    pub(super) length: u64,
}

/// What is to be done with the component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Task {
    /// It is looked at, also for whether its instances could be kept.
    Inspect,
    /// It is compiled, as one whose instances are kept or not.
    Compile { keep: bool },
}

/// The answer of the process. The code follows it, when there is any.
#[derive(Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) version: u32,
    /// As in the request.
    pub(super) component: String,
    pub(super) engine: u64,
    /// The process could make no system calls but those that compiling needs.
    pub(super) filtered: bool,
    pub(super) outcome: Outcome,
}

/// The outcome of the request.
#[derive(Serialize, Deserialize)]
pub(super) enum Outcome {
    /// What the component says of itself. Whether its instances can be kept is only found out for [`Task::Inspect`].
    Inspected { outline: Box<Outline>, unkeepable: Option<String> },
    /// There are so many bytes of code, with this SHA-256, and functions by which its instances are kept.
    Compiled { length: u64, code: String, functions: Option<KeepFunctions> },
    /// The component has more of something than a host compiles.
    TooComplex { what: String, found: u64, limit: u64 },
    /// Its instances cannot be kept, and are to be.
    Unkeepable { reason: String },
    /// It is no component.
    NotAComponent { reason: String },
    /// The compiler refused it.
    Refused { reason: String },
    /// The compiler got no more memory.
    OutOfMemory,
    /// The compiler panicked.
    Panicked,
    /// The process is not fit to compile for this host.
    Unfit { reason: String },
}

pub(super) fn write_header(to: &mut impl Write, header: &impl Serialize) -> io::Result<()> {
    let header = serde_json::to_vec(header)?;
    let length = u32::try_from(header.len()).ok().filter(|length| *length <= MAX_HEADER).ok_or_else(too_long)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&header)
}

/// # Errors
/// [`io::ErrorKind::InvalidData`] when it is no such header, others when there is none.
pub(super) fn read_header<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MAX_HEADER {
        return Err(too_long());
    }
    let header = read_bytes(from, length.into())?;
    serde_json::from_slice(&header).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

/// Reads exactly so many bytes. The caller has bounded `length`.
pub(super) fn read_bytes(from: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(length).map_err(|_| too_long())?);
    from.take(length).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(read) if read == length => Ok(bytes),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is too long")
}
