//! What one instance may use.
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
    /// CPU time in the guest, counted in ticks of [`crate::TICK`].
    pub cpu: Duration,
    /// Time on the clock, waiting in host calls included.
    pub wall: Duration,
    /// Calls to imports over the whole turn.
    pub host_calls: u32,
    /// Bytes of metadata handed to one hook.
    pub input: usize,
    /// Bytes that one call may hand to the host: a hook's result, or an import's arguments.
    pub output: usize,
    /// Log lines over the whole turn.
    pub log_lines: u32,
    /// Bytes of one log line; the rest is cut off.
    pub log_line: usize,
}

impl Limits {
    /// What suits an extension that checks and adds metadata: 16 MiB, 50 ms of CPU, 1 s in all, 1,000 host calls,
    /// 256 KiB in, 1 MiB out, 100 log lines of 4 KiB.
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            memory: 16 << 20,
            table_elements: 10_000,
            cpu: Duration::from_millis(50),
            wall: Duration::from_secs(1),
            host_calls: 1_000,
            input: 256 << 10,
            output: 1 << 20,
            log_lines: 100,
            log_line: 4 << 10,
        }
    }
}

/// A limit that a guest ran into. It travels inside the trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReached {
    /// [`Limits::memory`].
    Memory,
    /// [`Limits::table_elements`].
    TableElements,
    /// [`Limits::cpu`].
    Cpu,
    /// [`Limits::wall`].
    Wall,
    /// [`Limits::host_calls`].
    HostCalls,
}

impl fmt::Display for LimitReached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Memory => "memory limit",
            Self::TableElements => "table limit",
            Self::Cpu => "CPU time limit",
            Self::Wall => "time limit",
            Self::HostCalls => "limit of host calls",
        })
    }
}

impl std::error::Error for LimitReached {}
