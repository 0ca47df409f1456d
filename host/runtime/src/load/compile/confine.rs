//! Confines a compiling process to reading, writing, allocating memory and exiting.
//!
//! The resource limits work on every Linux. The filter for system calls needs support by the kernel and the machine. It
//! stops actions that no resource limit prevents, such as deleting files.

use std::collections::BTreeMap;
use std::io;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// Resource limits of the process.
pub(super) struct Bounds {
    /// Memory in bytes, in addition to the program and its stack.
    pub(super) memory: u64,
    /// CPU time in seconds since the start of the process.
    pub(super) cpu_seconds: u64,
}

/// Stack size in bytes, the default of most systems.
const MAX_STACK: u64 = 8 << 20;

/// Lowers the priority of the process, so that it does not slow down requests of the server.
const NICENESS: i32 = 5;

/// Makes the kernel kill the process when the thread that started it ends.
pub(super) fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Restores the default action for a stack overflow (SIGSEGV). Rust's handler would abort, which would look like a
/// lack of memory.
#[expect(unsafe_code, reason = "no safe crate here sets the disposition of a signal")]
pub(super) fn end_where_the_stack_ends() {
    // SAFETY: the default disposition runs no code of this process.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
}

/// Permanently drops all privileges that compiling does not need. Returns true if system calls are filtered.
///
/// # Errors
/// A limit cannot be set.
pub(super) fn confine(bounds: &Bounds) -> io::Result<bool> {
    // One more second for SIGKILL, after SIGXCPU.
    set_limit(Resource::Cpu, bounds.cpu_seconds, bounds.cpu_seconds.saturating_add(1))?;
    // Limits writable memory. A limit on address space would count memory that allocators reserve and never use.
    set_limit(Resource::Data, bounds.memory, bounds.memory)?;
    // The limit above does not include the stack.
    set_limit(Resource::Stack, MAX_STACK, MAX_STACK)?;
    set_limit(Resource::Core, 0, 0)?;
    set_limit(Resource::Fsize, 0, 0)?;
    // Open descriptors stay open. Opening files or sockets fails.
    set_limit(Resource::Nofile, 0, 0)?;
    set_limit(Resource::Nproc, 0, 0)?;
    // Failing to lower the priority only costs latency.
    let _ = rustix::process::nice(NICENESS);
    match filter_system_calls() {
        Ok(()) => Ok(true),
        // The machine or kernel supports no filters. If only the second filter fails, that is an error.
        Err(error) if error.is::<FirstFilter>() => Ok(false),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}

fn set_limit(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    // Without privileges a hard limit can only be lowered, and the operator's own limit may be lower.
    let before = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit { current: Some(current.min(before)), maximum: Some(maximum.min(before)) };
    Ok(setrlimit(resource, limit)?)
}

/// Installs two filters for system calls. One refuses the calls in [`FUTILE`], the other kills the process at any other
/// call that compiling does not need. Installing them also prevents the process from gaining privileges through `exec`.
fn filter_system_calls() -> Result<(), Box<dyn std::error::Error>> {
    let machine = TargetArch::try_from(std::env::consts::ARCH).map_err(|_| FirstFilter)?;
    let futile = FUTILE.iter().map(|call| (*call, Vec::new())).collect();
    let refusal = SeccompAction::Errno(rustix::io::Errno::PERM.raw_os_error().unsigned_abs());
    let futile: BpfProgram = SeccompFilter::new(futile, SeccompAction::Allow, refusal, machine)?.try_into()?;
    let allowed = SeccompFilter::new(allowed()?, SeccompAction::KillProcess, SeccompAction::Allow, machine)?;
    let allowed: BpfProgram = allowed.try_into()?;
    // The order matters: the refusing filter also refuses calls that install another filter.
    seccompiler::apply_filter_all_threads(&allowed).map_err(|_| FirstFilter)?;
    seccompiler::apply_filter_all_threads(&futile)?;
    Ok(())
}

/// The error of a kernel or a machine without filters for system calls.
#[derive(Debug, thiserror::Error)]
#[error("the kernel filters no system calls")]
struct FirstFilter;

/// System calls that allocators and the C library make to learn about the machine. Their callers can do without an
/// answer, so these calls are refused, and the process goes on.
const FUTILE: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    libc::SYS_openat,
    libc::SYS_faccessat,
    libc::SYS_readlinkat,
    libc::SYS_newfstatat,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_sched_getaffinity,
    libc::SYS_sysinfo,
    libc::SYS_getcpu,
    libc::SYS_mbind,
];

/// System calls that compiling needs and that are allowed with any arguments: memory, threads, time, exit.
const PLAIN: &[i64] = &[
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_gettid,
    // Another filter can only restrict further.
    libc::SYS_seccomp,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn allowed() -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = PLAIN.iter().chain(FUTILE).map(|call| (*call, Vec::new())).collect();
    // The socket and descriptors 1 and 2. The host may have inherited other open descriptors.
    for call in [libc::SYS_read, libc::SYS_write, libc::SYS_writev] {
        let standard = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Le, 2)?;
        rules.insert(call, vec![SeccompRule::new(vec![standard])?]);
    }
    // Memory must be private, so that its limit counts, and not executable.
    let own = without(3, libc::MAP_SHARED)?;
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![without(2, libc::PROT_EXEC)?, own])?]);
    rules.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![without(2, libc::PROT_EXEC)?])?]);
    // A process that runs out of memory ends itself with a signal.
    let itself = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, std::process::id().into())?;
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![itself])?]);
    Ok(rules)
}

/// The condition that an argument of a system call has none of these bits.
fn without(argument: u8, bits: i32) -> Result<SeccompCondition, seccompiler::BackendError> {
    let bits = u64::from(bits.unsigned_abs());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), 0)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::hint::black_box;
    use std::io::Write;
    use std::net::TcpStream;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus, Stdio, exit};

    use rustix::process::Signal;

    use super::{Bounds, confine};

    /// Environment variable with the action that a confined process of this test attempts.
    const ATTEMPT: &str = "ANNEX_CONFINED_ATTEMPT";
    const REFUSED: i32 = 40;
    const DONE: i32 = 41;
    const NOT_FILTERED: i32 = 42;

    /// Exit status of a confined process that attempts this action.
    fn attempt(what: &str) -> ExitStatus {
        let mut process = Command::new(std::env::current_exe().expect("the test binary"));
        let name = "load::compile::confine::tests::a_confined_process_makes_its_attempt";
        process.args([name, "--exact", "--nocapture"]).env_clear().env(ATTEMPT, what);
        process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        process.status().expect("the test binary runs")
    }

    /// Recurses endlessly.
    fn deeper(depth: u64) -> u64 {
        if black_box(depth) == u64::MAX { 0 } else { deeper(depth + 1) + black_box(1) }
    }

    /// Runs as a test, and in a separate process as the code that attempts an action.
    #[test]
    fn a_confined_process_makes_its_attempt() {
        let Ok(what) = std::env::var(ATTEMPT) else { return assert_eq!(attempt("nothing").code(), Some(DONE)) };
        let path = std::env::temp_dir().join(format!("annex-confined-{}", std::process::id()));
        let mut file = File::create(&path).expect("a file");
        fs::remove_file(&path).expect("the file was there");
        let filtered = confine(&Bounds { memory: 256 << 20, cpu_seconds: 1 }).expect("it is confined");
        if !filtered {
            exit(NOT_FILTERED);
        }
        let done = match what.as_str() {
            "open" => fs::read("/proc/self/status").is_ok(),
            "list" => fs::read_dir("/").is_ok(),
            "write" => file.write_all(b"more").is_ok(),
            "connect" => TcpStream::connect("127.0.0.1:9").is_ok(),
            "execute" => Command::new("/bin/true").status().is_ok(),
            "thread" => std::thread::Builder::new().spawn(|| ()).is_ok(),
            "kill" => {
                rustix::process::kill_process(rustix::process::getppid().expect("a parent"), Signal::USR1).is_ok()
            }
            "delete" => fs::remove_file("/nowhere").is_ok(),
            "stack" => {
                super::end_where_the_stack_ends();
                deeper(0) > 0
            }
            "memory" => Vec::<u8>::new().try_reserve_exact(257 << 20).is_ok(),
            "time" => loop {
                black_box(());
            },
            _ => Vec::<u8>::new().try_reserve_exact(200 << 20).is_ok(),
        };
        exit(if done { DONE } else { REFUSED });
    }

    #[test]
    fn a_confined_process_opens_no_files_and_stays_within_its_memory_limit() {
        for what in ["open", "list", "memory"] {
            assert_eq!(attempt(what).code(), Some(REFUSED), "{what}");
        }
    }

    #[test]
    fn a_confined_process_that_tries_more_is_killed() {
        for what in ["connect", "execute", "thread", "kill", "delete", "write"] {
            assert_eq!(attempt(what).signal(), Some(Signal::SYS.as_raw()), "{what}");
        }
        assert_eq!(attempt("time").signal(), Some(Signal::XCPU.as_raw()));
        assert_eq!(attempt("stack").signal(), Some(Signal::SEGV.as_raw()));
    }
}
