//! `[extension.limits]`: the resource limits of an extension. `[runtime.ceiling]`: the highest limits that any
//! extension may have.

use std::fmt::Display;
use std::time::Duration;

use annex_runtime::{Limits, MEMORY_CEILING, TABLE_CEILING};
use serde::{Deserialize, Serialize};

/// A key of the limits and the reason why its value is refused.
type Wrong = (&'static str, String);

/// The table `[extension.limits]`. The default of a key is the value in [`Limits::standard`], or the ceiling if the
/// ceiling is lower.
///
/// The table `[runtime.ceiling]` has the same keys. The default of each ceiling is the fixed maximum of the limit.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// The maximum linear memory of an instance, in MiB. At most 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<usize>,
    /// The maximum number of elements of all tables together. At most 20,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_elements: Option<usize>,
    /// The maximum CPU time per call, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// The maximum CPU time per turn, in milliseconds. Default 1,000, or `cpu_ms` if that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_cpu_ms: Option<u64>,
    /// The maximum wall-clock time per call, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// The maximum wall-clock time of all calls of a turn together, in milliseconds. Default 30,000, or `wall_ms` if
    /// that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_wall_ms: Option<u64>,
    /// The maximum number of host calls per turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_calls: Option<u32>,
    /// The maximum number of bytes that the host passes to one hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<usize>,
    /// The maximum number of bytes that the extension may pass to the host in one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<usize>,
    /// The maximum number of log lines per turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_lines: Option<u32>,
    /// The maximum size of all log lines of a turn together, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<usize>,
    /// The maximum number of turns that the extension takes part in at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
}

impl LimitsConfig {
    /// Converts the limits to the form that the runtime takes.
    ///
    /// # Errors
    /// When a limit is above `ceiling` or outside of the fixed range. The error is a pair of key and reason.
    pub(super) fn to_limits(&self, ceiling: &Self) -> Result<Limits, Wrong> {
        self.check()?;
        let standard = Limits::standard();
        let within = |key, wanted, ceiling, standard: Duration| {
            within(key, wanted, ceiling, millis(standard)).map(Duration::from_millis)
        };
        let cpu = within("limits.cpu_ms", self.cpu_ms, ceiling.cpu_ms, standard.cpu)?;
        let wall = within("limits.wall_ms", self.wall_ms, ceiling.wall_ms, standard.wall)?;
        // A turn gets at least as much time as one of its calls.
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

    /// Returns each limit that is above `ceiling` or outside of the fixed range, as a pair of key and reason.
    pub(super) fn wrong(&self, ceiling: &Self) -> Vec<Wrong> {
        let none = Self::default;
        let each = [
            Self { memory_mib: self.memory_mib, ..none() },
            Self { table_elements: self.table_elements, ..none() },
            Self { cpu_ms: self.cpu_ms, ..none() },
            Self { turn_cpu_ms: self.turn_cpu_ms, ..none() },
            Self { wall_ms: self.wall_ms, ..none() },
            Self { turn_wall_ms: self.turn_wall_ms, ..none() },
            Self { host_calls: self.host_calls, ..none() },
            Self { input_bytes: self.input_bytes, ..none() },
            Self { output_bytes: self.output_bytes, ..none() },
            Self { log_lines: self.log_lines, ..none() },
            Self { log_bytes: self.log_bytes, ..none() },
            Self { turns: self.turns, ..none() },
        ];
        each.iter().filter_map(|one| one.to_limits(ceiling).err()).collect()
    }

    /// Converts the limits on memory, bytes and numbers. In the result, the limits on time are those of `standard`.
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

    /// Refuses values beyond the engine's maximum, and limits of zero with which no call could run.
    fn check(&self) -> Result<(), Wrong> {
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

    /// Refuses values above any reasonable use. Such a value is usually a mistake, such as microseconds instead of
    /// milliseconds.
    fn check_most(&self) -> Result<(), Wrong> {
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        // An instance cannot hold more bytes than its memory, so a larger limit has no effect.
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

/// The value of a limit. Without `wanted`, the value is `standard`, or `ceiling` if that is lower.
///
/// # Errors
/// When `wanted` is above `ceiling`.
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
