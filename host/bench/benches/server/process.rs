//! A server in another process: this program, started with `--serve KIND`.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

use crate::kind::Kind;
use crate::orders::Order;

/// The kind of a server, and the settings for this run.
pub(crate) struct Setup<'a> {
    pub(crate) kind: Kind,
    /// The only core that the server may use; `None` for all cores.
    pub(crate) core: Option<usize>,
    /// The TOML of additional tables of the config.
    pub(crate) settings: &'a str,
}

impl Setup<'_> {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, core: None, settings: "" }
    }
}

/// A running server process, which is stopped on drop.
pub(crate) struct ServerProcess {
    process: Child,
    output: BufReader<ChildStdout>,
    address: String,
    /// The folder of the server. `None` if the caller owns the folder.
    _folder: Option<TempDir>,
}

impl ServerProcess {
    /// Starts a server and waits until it is ready.
    pub(crate) fn start(kind: Kind) -> anyhow::Result<Self> {
        Self::start_with(&Setup::new(kind))
    }

    /// Like [`Self::start`], with the server's files in `folder`.
    pub(crate) fn start_in(kind: Kind, folder: &Path) -> anyhow::Result<Self> {
        Self::spawn(&Setup::new(kind), folder)
    }

    /// Like [`Self::start`], with the given settings.
    pub(crate) fn start_with(setup: &Setup<'_>) -> anyhow::Result<Self> {
        Self::start_with_files(setup, tempfile::tempdir()?)
    }

    /// Like [`Self::start_with`], in a folder that already contains files.
    pub(crate) fn start_with_files(setup: &Setup<'_>, folder: TempDir) -> anyhow::Result<Self> {
        let mut server = Self::spawn(setup, folder.path())?;
        server._folder = Some(folder);
        Ok(server)
    }

    fn spawn(setup: &Setup<'_>, folder: &Path) -> anyhow::Result<Self> {
        let name = setup.kind.name();
        let mut command = this_program(setup.core)?;
        command.args(["--serve", name]).arg(folder).arg(setup.settings).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let mut output = BufReader::new(process.stdout.take().context("the server's output")?);
        let mut address = String::new();
        output.read_line(&mut address)?;
        anyhow::ensure!(!address.is_empty(), "the server {name} did not start");
        Ok(Self { process, output, address: address.trim().to_owned(), _folder: None })
    }

    /// Makes the server count its allocations from now on.
    pub(crate) fn count_allocations(&mut self) -> anyhow::Result<()> {
        self.order(Order::Count).map(drop)
    }

    /// Makes the server stop counting. Returns the number of allocations.
    pub(crate) fn counted_allocations(&mut self) -> anyhow::Result<u64> {
        self.order(Order::Counted)
    }

    fn order(&mut self, order: Order) -> anyhow::Result<u64> {
        let input = self.process.stdin.as_mut().context("the server's input")?;
        writeln!(input, "{}", order.name())?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        Ok(answer.trim().parse()?)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The CPU time of the server so far: user and system time of all its threads.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id()))?;
        let mut total = Duration::ZERO;
        for task in tasks {
            // The first number is the time on the CPU in nanoseconds.
            let statistics = fs::read_to_string(task?.path().join("schedstat"))?;
            let nanoseconds = statistics.split(' ').next().context("schedstat")?;
            total += Duration::from_nanos(nanoseconds.parse()?);
        }
        Ok(total)
    }

    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Forbids the calling thread to run on a core from now on.
pub(crate) fn keep_off(core: usize) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    let others: Vec<String> = (0..cores).filter(|other| *other != core).map(|other| other.to_string()).collect();
    anyhow::ensure!(!others.is_empty(), "the client needs a core of its own");
    // The main thread's id equals the process id, and the bench's parts run on the main thread.
    let pid = std::process::id().to_string();
    let status = Command::new("taskset")
        .args(["--pid", "--cpu-list", &others.join(","), &pid])
        .stdout(Stdio::null())
        .status()
        .context("taskset")?;
    anyhow::ensure!(status.success(), "taskset ended with {status}");
    Ok(())
}

/// The command that starts this program again, on one core if `core` is set.
pub(crate) fn this_program(core: Option<usize>) -> anyhow::Result<Command> {
    let program = env::current_exe()?;
    let Some(core) = core else { return Ok(Command::new(program)) };
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &core.to_string()]).arg(program);
    Ok(command)
}
