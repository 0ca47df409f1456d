//! `[extension.limits]` and `[runtime.ceiling]`: what one extension may use, and what no extension may go beyond.

use std::fmt::Display;
use std::time::Duration;

use annex_runtime::{Limits, MEMORY_CEILING, TABLE_CEILING};
use serde::{Deserialize, Serialize};

/// A key of the limits, and what is wrong with its value.
type Wrong = (&'static str, String);

/// `[extension.limits]`; what is absent has the value of [`Limits::standard`], or of the ceiling where that is less.
/// `[runtime.ceiling]` has the same keys; what is absent there has no ceiling but the most that each limit may be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Linear memory in MiB, at most 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<usize>,
    /// Elements over all tables, at most 20,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_elements: Option<usize>,
    /// CPU time per call in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// CPU time per turn in milliseconds; 1,000, or `cpu_ms` where that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_cpu_ms: Option<u64>,
    /// Time on the clock per call in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// Time on the clock in all calls of a turn in milliseconds; 30,000, or `wall_ms` where that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_wall_ms: Option<u64>,
    /// Host calls per turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_calls: Option<u32>,
    /// Bytes handed to one hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<usize>,
    /// Bytes that one call may hand to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<usize>,
    /// Log lines per turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_lines: Option<u32>,
    /// Bytes of all log lines per turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<usize>,
    /// Turns at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
}

impl LimitsConfig {
    /// The limits, none of them above `ceiling`.
    pub(super) fn to_limits(&self, ceiling: &Self) -> Result<Limits, Wrong> {
        self.check()?;
        let standard = Limits::standard();
        let within = |key, wanted, ceiling, standard: Duration| {
            within(key, wanted, ceiling, millis(standard)).map(Duration::from_millis)
        };
        let cpu = within("limits.cpu_ms", self.cpu_ms, ceiling.cpu_ms, standard.cpu)?;
        let wall = within("limits.wall_ms", self.wall_ms, ceiling.wall_ms, standard.wall)?;
        // A turn gets at least the time that one of its calls may take.
        let turn_cpu = standard.turn_cpu.max(cpu);
        let turn_wall = standard.turn_wall.max(wall);
        Ok(Limits {
            cpu,
            turn_cpu: within("limits.turn_cpu_ms", self.turn_cpu_ms, ceiling.turn_cpu_ms, turn_cpu)?,
            wall,
            turn_wall: within("limits.turn_wall_ms", self.turn_wall_ms, ceiling.turn_wall_ms, turn_wall)?,
            ..self.amounts(ceiling, standard)?
        })
    }

    /// The limits that are no times.
    fn amounts(&self, ceiling: &Self, standard: Limits) -> Result<Limits, Wrong> {
        let memory = within("limits.memory_mib", self.memory_mib, ceiling.memory_mib, standard.memory >> 20)?;
        Ok(Limits {
            memory: memory << 20,
            table_elements: within(
                "limits.table_elements",
                self.table_elements,
                ceiling.table_elements,
                standard.table_elements,
            )?,
            host_calls: within("limits.host_calls", self.host_calls, ceiling.host_calls, standard.host_calls)?,
            input: within("limits.input_bytes", self.input_bytes, ceiling.input_bytes, standard.input)?,
            output: within("limits.output_bytes", self.output_bytes, ceiling.output_bytes, standard.output)?,
            log_lines: within("limits.log_lines", self.log_lines, ceiling.log_lines, standard.log_lines)?,
            log_bytes: within("limits.log_bytes", self.log_bytes, ceiling.log_bytes, standard.log_bytes)?,
            turns: within("limits.turns", self.turns, ceiling.turns, standard.turns)?,
            ..standard
        })
    }

    /// Refuses what the engine cannot do, and limits with which no call could run.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let memory = MEMORY_CEILING >> 20;
        if self.memory_mib.is_some_and(|mib| mib == 0 || mib > memory) {
            return Err(("limits.memory_mib", format!("must be between 1 and {memory}")));
        }
        if self.table_elements.is_some_and(|elements| elements > TABLE_CEILING) {
            return Err(("limits.table_elements", format!("must be at most {TABLE_CEILING}")));
        }
        self.check_most()?;
        let at_least_one = [
            ("limits.cpu_ms", self.cpu_ms),
            ("limits.turn_cpu_ms", self.turn_cpu_ms),
            ("limits.wall_ms", self.wall_ms),
            ("limits.turn_wall_ms", self.turn_wall_ms),
            ("limits.turns", self.turns.map(u64::from)),
        ];
        match at_least_one.into_iter().find(|(_, value)| *value == Some(0)) {
            Some((key, _)) => Err((key, "must be at least 1".to_owned())),
            None => Ok(()),
        }
    }

    /// Refuses what no extension needs: a larger number is a slip, such as microseconds for milliseconds.
    fn check_most(&self) -> Result<(), Wrong> {
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        // No instance has more memory for what it is handed, and for what it hands over.
        let bytes = wide(MEMORY_CEILING);
        let limits = [
            ("limits.cpu_ms", self.cpu_ms, 60_000),
            ("limits.turn_cpu_ms", self.turn_cpu_ms, 600_000),
            ("limits.wall_ms", self.wall_ms, 600_000),
            ("limits.turn_wall_ms", self.turn_wall_ms, 3_600_000),
            ("limits.host_calls", self.host_calls.map(u64::from), 10_000_000),
            ("limits.input_bytes", self.input_bytes.map(wide), bytes),
            ("limits.output_bytes", self.output_bytes.map(wide), bytes),
            ("limits.log_lines", self.log_lines.map(u64::from), 100_000),
            ("limits.log_bytes", self.log_bytes.map(wide), bytes),
            ("limits.turns", self.turns.map(u64::from), 1_000_000),
        ];
        let above = limits.into_iter().find_map(|(key, given, most)| {
            let given = given.filter(|given| *given > most)?;
            Some((key, format!("is {given}; it must be at most {most}")))
        });
        above.map_or(Ok(()), Err)
    }
}

/// The value of a key: the one wanted, which must not be above the ceiling, or the standard one under it.
fn within<T: Copy + Ord + Display>(
    key: &'static str,
    wanted: Option<T>,
    ceiling: Option<T>,
    standard: T,
) -> Result<T, Wrong> {
    match (wanted, ceiling) {
        (Some(wanted), Some(ceiling)) if wanted > ceiling => {
            Err((key, format!("is {wanted}, above the ceiling of {ceiling} in [runtime.ceiling]")))
        }
        (Some(wanted), _) => Ok(wanted),
        (None, Some(ceiling)) => Ok(standard.min(ceiling)),
        (None, None) => Ok(standard),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
