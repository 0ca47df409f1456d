//! The limits of one instance.
//!
//! The type has no `Default` on purpose: every store is made with limits that somebody chose, if only by writing
//! [`Limits::standard`].

use std::fmt;
use std::time::Duration;

/// Limits of one instance, which serves one extension for one turn. Times and counts are per hook call unless said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory in bytes, all memories of the instance together. Growth beyond it traps.
    pub memory: usize,
    /// Elements over all tables.
    pub table_elements: usize,
    /// CPU time in the guest and in host calls that do not wait. It is stopped at a tick ([`crate::TICK`]), or after a wait.
    pub cpu: Duration,
    /// The same over the whole turn, whatever the number of its calls.
    pub turn_cpu: Duration,
    /// Time on the clock, waiting in host calls included.
    pub wall: Duration,
    /// The same over the whole turn; time between the calls does not count.
    pub turn_wall: Duration,
    /// Calls to imports over the whole turn.
    pub host_calls: u32,
    /// Bytes handed to one hook: metadata on the way in, an event as JSON on the way out.
    pub input: usize,
    /// Bytes that one call may hand to the host: a hook's result, or an import's arguments.
    pub output: usize,
    /// Log lines over the whole turn.
    pub log_lines: u32,
    /// Bytes of one log line; the rest is cut off.
    pub log_line: usize,
    /// Bytes of all log lines over the whole turn.
    pub log_bytes: usize,
    /// Turns that the extension serves at once; more wait as long as for an instance, and are refused then.
    pub turns: u32,
}

impl Limits {
    /// Limits for an extension that checks and adds metadata: 16 MiB, 10,000 table elements, 50 ms of CPU and 1 s in
    /// all per call, 1 s of CPU and 30 s in all per turn, 5,000 host calls, 256 KiB in, 1 MiB out, 100 log lines of
    /// 4 KiB and 64 KiB together, 1,000 turns at once.
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            memory: 16 << 20,
            table_elements: 10_000,
            // Ten ticks. Four hooks on 16 KiB of JSON, with their instance, were measured at 115 µs.
            cpu: Duration::from_millis(50),
            turn_cpu: Duration::from_secs(1),
            wall: Duration::from_secs(1),
            turn_wall: Duration::from_secs(30),
            // A body that comes in a thousand pieces, where each takes four calls, and some more.
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

/// The host had no time for a guest. It travels inside the trap, and is nobody's fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostBusy;

impl fmt::Display for HostBusy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the host had no time for it")
    }
}

impl std::error::Error for HostBusy {}

/// A limit that a guest ran into. It travels inside the trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReached {
    /// [`Limits::memory`].
    Memory,
    /// [`Limits::table_elements`].
    TableElements,
    /// [`Limits::cpu`].
    Cpu,
    /// [`Limits::turn_cpu`].
    TurnCpu,
    /// [`Limits::wall`].
    Wall,
    /// [`Limits::turn_wall`].
    TurnWall,
    /// [`Limits::host_calls`].
    HostCalls,
    /// [`Limits::output`].
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
