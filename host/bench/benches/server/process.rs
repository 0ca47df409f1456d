//! A server in another process: this program, started with `--serve KIND`.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

use crate::kind::Kind;

/// Stopped when dropped.
pub(crate) struct ServerProcess {
    process: Child,
    address: String,
    /// Its folder, where nobody else needs it.
    _folder: Option<TempDir>,
}

impl ServerProcess {
    /// Returns when it is ready.
    pub(crate) fn start(kind: Kind) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut server = Self::start_in(kind, folder.path())?;
        server._folder = Some(folder);
        Ok(server)
    }

    /// The same with a folder that may hold files already.
    pub(crate) fn start_in(kind: Kind, folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--serve", kind.name()]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let output = process.stdout.take().context("the server's output")?;
        let mut address = String::new();
        BufReader::new(output).read_line(&mut address)?;
        Ok(Self { process, address: address.trim().to_owned(), _folder: None })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// CPU time so far, user and system, all threads.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id()))?;
        let mut total = Duration::ZERO;
        for task in tasks {
            // Nanoseconds on the CPU stand first.
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
