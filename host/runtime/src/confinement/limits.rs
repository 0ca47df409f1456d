//! Limits of an instance.
//!
//! [`Limits`] has no `Default`, so that each store is created with an explicit choice, such as [`Limits::standard`].

use std::fmt;
use std::time::Duration;

/// Maximum number of artifacts of which an extension can hold back chunks in one turn.
pub(crate) const MAX_HELD_ARTIFACTS: usize = 16;
/// Maximum number of chunks that an extension can hold back of one artifact. The extension gets all of them again with
/// each further chunk.
pub(crate) const MAX_HELD_CHUNKS: u32 = 4096;

/// Limits of an instance, which serves one extension for one turn. Times and counts are per hook call unless stated
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum linear memory in bytes, over all memories of the instance. Growth beyond the limit traps.
    pub memory: usize,
    /// Maximum number of elements of all tables together.
    pub table_elements: usize,
    /// Maximum CPU time in the guest and in host calls that do not wait. Checked at each tick ([`crate::TICK`]) and
    /// after each wait.
    pub cpu: Duration,
    /// Maximum CPU time of the whole turn, over all its calls.
    pub turn_cpu: Duration,
    /// Maximum wall-clock time, including waits in host calls.
    pub wall: Duration,
    /// Maximum wall-clock time of all calls in the turn together. Time between the calls does not count.
    pub turn_wall: Duration,
    /// Maximum number of calls to imports in the whole turn.
    pub host_calls: u32,
    /// Maximum size of the data passed to one hook, in bytes: metadata on the way in, an event as JSON on the way out.
    pub input: usize,
    /// Maximum size of the data that a call may pass to the host, in bytes: a hook's result, or an import's arguments.
    pub output: usize,
    /// Maximum number of log lines in the whole turn.
    pub log_lines: u32,
    /// Maximum length of one log line, in bytes. A longer line is cut.
    pub log_line: usize,
    /// Maximum size of all log lines in the whole turn, in bytes.
    pub log_bytes: usize,
    /// Maximum number of concurrent turns of the extension. A further turn waits as long as it would wait for an
    /// instance, and is then refused.
    pub turns: u32,
}

impl Limits {
    /// Limits for an extension that checks and adds metadata:
    ///
    /// - 16 MiB of memory and 10,000 table elements
    /// - 50 ms of CPU time and 1 s of wall-clock time per call, 1 s and 30 s per turn
    /// - 5,000 host calls, 256 KiB of input and 1 MiB of output
    /// - 100 log lines, of at most 4 KiB each and 64 KiB in total
    /// - 1,000 concurrent turns
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            memory: 16 << 20,
            table_elements: 10_000,
            // Ten ticks. Four hooks on 16 KiB of JSON, including the instance, were measured at 115 µs.
            cpu: Duration::from_millis(50),
            turn_cpu: Duration::from_secs(1),
            wall: Duration::from_secs(1),
            turn_wall: Duration::from_secs(30),
            // A body in a thousand pieces with four calls each, and some more.
            host_calls: 5_000,
            input: 256 << 10,
            output: 1 << 20,
            log_lines: 100,
            log_line: 4 << 10,
            log_bytes: 64 << 10,
            turns: 1_000,
        }
    }
}

/// The host had no time for a guest. This error is the cause of a trap, but not a fault of the guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostBusy;

impl fmt::Display for HostBusy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the host had no time for it")
    }
}

impl std::error::Error for HostBusy {}

/// The limit that a guest exceeded. This error is the cause of a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReached {
    /// The guest exceeded [`Limits::memory`].
    Memory,
    /// The guest exceeded [`Limits::table_elements`].
    TableElements,
    /// The guest exceeded [`Limits::cpu`].
    Cpu,
    /// The guest exceeded [`Limits::turn_cpu`].
    TurnCpu,
    /// The guest exceeded [`Limits::wall`].
    Wall,
    /// The guest exceeded [`Limits::turn_wall`].
    TurnWall,
    /// The guest exceeded [`Limits::host_calls`].
    HostCalls,
    /// The guest exceeded [`Limits::output`].
    Output,
}

impl fmt::Display for LimitReached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Memory => "memory limit",
            Self::TableElements => "table limit",
            Self::Cpu => "CPU time limit",
            Self::TurnCpu => "CPU time limit of the turn",
            Self::Wall => "time limit",
            Self::TurnWall => "time limit of the turn",
            Self::HostCalls => "limit of host calls",
            Self::Output => "limit of output bytes",
        })
    }
}

impl std::error::Error for LimitReached {}
