//! The machine: open files, memory, processors, and the confinement of the processes that compile components.

use std::fs;
use std::path::Path;
use std::thread;

use rustix::process::{Resource, getrlimit};

use super::finding::Finding;
use crate::config::Config;
use crate::process::descriptors;

pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let files = match descriptors::check(config) {
        Ok(text) => Finding::fine("limits", text),
        Err(warning) => Finding::warning("limits", warning),
    };
    vec![files, memory(config), addresses(), processors()]
}

/// The maximum memory, in bytes, that tasks, sessions, request bodies, answers and compilers together may use under
/// this config. The memory of instances and of the program itself is not included.
fn promised(config: &Config) -> u64 {
    let in_memory = config.tasks.data_dir.is_none() && config.tasks.postgres_env.is_none();
    let tasks = if in_memory { config.tasks.max_bytes } else { 0 };
    let sessions_in_memory = in_memory && config.sessions.data_dir.is_none() && config.sessions.postgres_env.is_none();
    let sessions = if sessions_in_memory { config.sessions.max_bytes } else { 0 };
    let held = [tasks, sessions, config.server.max_reading_bytes, config.server.max_answer_bytes];
    let held = held.into_iter().map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX)).fold(0, u64::saturating_add);
    let compilers = config.runtime.compile_memory_bytes.saturating_mul(config.runtime.compile_processes.into());
    held.saturating_add(compilers)
}

fn memory(config: &Config) -> Finding {
    let promised = promised(config);
    let Some((available, whose)) = available() else {
        return Finding::warning("limits", "cannot find out how much memory the machine has");
    };
    let (promised_mib, available_mib) = (promised >> 20, available >> 20);
    if promised > available {
        return Finding::warning(
            "limits",
            format!(
                "{whose} has {available_mib} MiB of memory, and the config lets requests, answers, tasks, sessions and \
                 compilers take {promised_mib} MiB: give it more, or lower server.max_answer_bytes, \
                 server.max_reading_bytes, tasks.max_bytes, sessions.max_bytes or runtime.compile_memory_bytes"
            ),
        );
    }
    let text = format!(
        "{whose} has {available_mib} MiB of memory; the config lets requests, answers, tasks, sessions and compilers take \
         {promised_mib} MiB"
    );
    Finding::fine("limits", text)
}

/// Returns the memory in bytes that this process may use, and the name of its source for messages. The source is this
/// process's control group if the group's limit is lower than the memory of the machine. Otherwise it is the machine.
fn available() -> Option<(u64, &'static str)> {
    let of_machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    match (of_group(), of_machine) {
        (Some(group), Some(machine)) if group < machine => Some((group, "the control group")),
        (_, Some(machine)) => Some((machine, "the machine")),
        (Some(group), None) => Some((group, "the control group")),
        (None, None) => None,
    }
}

/// The bytes of the `MemTotal` line of `/proc/meminfo`, such as `MemTotal: 16384 kB`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The lowest memory limit in bytes of this process's control group and its ancestors.
fn of_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let folder = root.join(group);
    let folders = folder.ancestors().take_while(|folder| folder.starts_with(root));
    let limits = folders.filter_map(|folder| fs::read_to_string(folder.join("memory.max")).ok());
    limits.filter_map(|limit| limit.trim().parse().ok()).min()
}

/// Checks the limit on address space. The pool of instances reserves far more addresses than memory.
fn addresses() -> Finding {
    match getrlimit(Resource::As).current {
        None => Finding::fine("limits", "the address space of the process is not limited"),
        Some(limit) => Finding::error(
            "limits",
            format!(
                "the process may reserve {} GiB of address space, but instances reserve terabytes and use little of it: \
                 run `ulimit -v unlimited`, or take LimitAS= out of the unit of systemd",
                limit >> 30
            ),
        ),
    }
}

fn processors() -> Finding {
    match thread::available_parallelism().map(usize::from) {
        Ok(number) => Finding::fine("limits", format!("processors: {number}")),
        Err(error) => {
            Finding::warning("limits", format!("cannot find out how many processors the machine has: {error}"))
        }
    }
}

/// Checks that the kernel can filter the system calls of the processes that compile components. The components may come
/// from untrusted authors.
pub(super) fn confinement() -> Vec<Finding> {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let filters =
        ["kill_process", "errno", "allow"].iter().all(|needed| actions.split_whitespace().any(|one| one == *needed));
    let is_known = matches!(std::env::consts::ARCH, "x86_64" | "aarch64" | "riscv64");
    vec![if filters && is_known {
        Finding::fine(
            "confinement",
            "the kernel filters system calls (seccomp) of the processes that compile components",
        )
    } else {
        Finding::warning(
            "confinement",
            "the kernel filters no system calls here, so only limits confine the processes that compile components; use a \
             kernel with seccomp where components are not trusted",
        )
    }]
}

#[cfg(test)]
mod tests {
    use super::total;

    #[test]
    fn the_memory_of_the_machine_is_read_in_bytes() {
        assert_eq!(total("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16 << 10));
        assert_eq!(total("MemFree: 1 kB\n"), None);
    }
}
