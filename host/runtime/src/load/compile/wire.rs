//! The protocol between host and compiling process, over one socket. The process sends a greeting, and the host sends
//! one request. The process answers with the outline. If the request is to compile, it then answers with the code.
//! After a refusal the process sends no further answer.
//!
//! Each message is a JSON header, preceded by its length and followed by bytes.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::confinement::engine::EngineOptions;
use crate::load::inspect::Outline;
use crate::load::keep_functions::KeepFunctions;

/// Version of the messages below.
pub(super) const VERSION: u32 = 4;

/// The first bytes that a compiling process sends. Other programs do not send them.
pub(super) const GREETING: &[u8] = b"annex compiles: 1\n";

/// Maximum length of a header, in bytes. The longest header contains the outline: names of imports and exports, and the
/// manifest.
const MAX_HEADER: u32 = 1 << 20;

/// Maximum length of a reason in an answer, in bytes.
pub(super) const MAX_TEXT: usize = 4 << 10;

/// The request of the host, followed by the component.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) version: u32,
    /// Memory limit in bytes.
    pub(super) memory: u64,
    /// CPU limit in seconds.
    pub(super) cpu_seconds: u64,
    /// Identity of the engine that runs the code, from `engine::identity`.
    pub(super) engine: u64,
    /// Options of the engine that runs the code.
    pub(super) options: EngineOptions,
    pub(super) task: Task,
    /// SHA-256 of the component in hexadecimal.
    pub(super) component: String,
    /// Size of the component in bytes.
    pub(super) length: u64,
}

/// What the process is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Task {
    /// Read the outline, and check whether instances can be kept.
    Inspect,
    /// Compile, for kept instances if `keep` is true.
    Compile { keep: bool },
}

/// The answer of the process, followed by code if there is any.
#[derive(Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) version: u32,
    /// SHA-256 of the component, as in the request.
    pub(super) component: String,
    pub(super) engine: u64,
    /// True if the process filters its system calls.
    pub(super) filtered: bool,
    pub(super) outcome: JobOutcome,
}

/// The outcome of the request.
#[derive(Serialize, Deserialize)]
pub(super) enum JobOutcome {
    /// The outline. `unkeepable` is only set for [`Task::Inspect`].
    Inspected { outline: Box<Outline>, unkeepable: Option<String> },
    /// The code follows: size, SHA-256, and number of added functions.
    Compiled { length: u64, code: String, functions: Option<KeepFunctions> },
    /// The component exceeds a limit on its structure.
    TooComplex { what: String, found: u64, limit: u64 },
    /// Instances of the component cannot be kept.
    Unkeepable { reason: String },
    /// The component's manifest is too large, or there are two.
    Manifest { reason: String },
    /// The file is not a component.
    NotAComponent { reason: String },
    /// The compiler rejected the component.
    Refused { reason: String },
    /// The compiler ran out of memory.
    OutOfMemory,
    /// The compiler panicked.
    Panicked,
    /// The process cannot compile for this host.
    Unfit { reason: String },
}

pub(super) fn write_header(to: &mut impl Write, header: &impl Serialize) -> io::Result<()> {
    let header = serde_json::to_vec(header)?;
    let length = u32::try_from(header.len()).ok().filter(|length| *length <= MAX_HEADER).ok_or_else(too_long)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&header)
}

/// Reads a header.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the header is invalid, other kinds if reading fails.
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

/// Reads exactly `length` bytes. The caller has checked `length`.
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
