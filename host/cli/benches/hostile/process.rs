//! The server under attack: its process, its children, and the kernel's counters of their CPU time and memory.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::{decisions, peer};

/// The interval between two readings of the children's memory.
const LOOK: Duration = Duration::from_millis(10);
/// Ticks of the kernel's clock in a second. Linux reports 100 to user space on every machine.
const TICKS: u64 = 100;

pub(crate) struct Server {
    pub(crate) address: String,
    process: Child,
    folder: TempDir,
    peaks: Arc<Peaks>,
    watching: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Peaks {
    child: AtomicU64,
    stops: AtomicBool,
}

/// The CPU time of the server and of its ended children, and the memory of the server in MiB.
pub(crate) struct Sample {
    pub(crate) cpu: Duration,
    pub(crate) memory: u64,
}

/// The largest memory of the server and of any child, in MiB.
pub(crate) struct Peak {
    pub(crate) server: u64,
    pub(crate) child: u64,
}

impl Server {
    pub(crate) fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("extensions"))?;
        let component = annex_components::TEST_EXTENSION;
        let mut config = format!("{}\n[[extension]]\ncomponent = {component:?}\n", include_str!("annex.toml"));
        let address = peer::start()?;
        for name in peer::MODELS.into_iter().chain([peer::TOOLS]) {
            fs::write(folder.path().join(format!("{name}.toml")), peer::tenant(name, &address))?;
            config.push_str(&format!("[[tenant]]\nname = {name:?}\nconfig = \"{name}.toml\"\n"));
        }
        fs::write(folder.path().join("searching.toml"), tenant("[ab]*a[ab]{100}[xy]", 40))?;
        fs::write(folder.path().join("refused.toml"), tenant(&format!("(?i){}", r"\pL".repeat(80_000)), 1))?;
        fs::write(folder.path().join("steered.toml"), decisions::tenant())?;
        config.push_str(&format!("[[tenant]]\nname = {:?}\nconfig = \"steered.toml\"\n", decisions::TENANT));
        let path = folder.path().join("annex.toml");
        fs::write(&path, config)?;
        let executable = std::env::var("ANNEX").unwrap_or_else(|_| env!("CARGO_BIN_EXE_annex").to_owned());
        let mut process = Command::new(executable)
            .arg("serve")
            .arg(&path)
            .env("XDG_CACHE_HOME", folder.path().join("cache"))
            .env("ANNEX_LOG", "error")
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.path().join("log"))?)
            .spawn()
            .context("start annex serve")?;
        let mut stdout = BufReader::new(process.stdout.take().context("its output")?);
        let mut said = String::new();
        stdout.read_line(&mut said)?;
        let address = said.split_once("http://").and_then(|(_, rest)| rest.split('/').next()).map(ToOwned::to_owned);
        let address = address.with_context(|| fs::read_to_string(folder.path().join("log")).unwrap_or_default())?;
        // What it says further is not for the table.
        std::thread::spawn(move || stdout.lines().for_each(drop));
        let peaks = Arc::new(Peaks::default());
        let watching = Some(watch(process.id(), &peaks));
        Ok(Self { address, process, folder, peaks, watching })
    }

    /// The managed folder of extensions.
    pub(crate) fn extensions(&self) -> PathBuf {
        self.folder.path().join("extensions")
    }

    pub(crate) fn sample(&self) -> Sample {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let ticks: u64 =
            after_name.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
        Sample { cpu: Duration::from_millis(ticks * 1_000 / TICKS), memory: memory(self.process.id(), "VmRSS") }
    }

    pub(crate) fn peak(&self) -> Peak {
        let server = memory(self.process.id(), "VmHWM");
        Peak { server, child: self.peaks.child.load(Ordering::Relaxed) }
    }

    /// Sends SIGTERM, and returns the time until the server has ended.
    pub(crate) fn stop(mut self) -> Result<Duration> {
        let began = Instant::now();
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.process.wait()?;
        self.peaks.stops.store(true, Ordering::Relaxed);
        self.watching.take().map(JoinHandle::join);
        Ok(began.elapsed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.peaks.stops.store(true, Ordering::Relaxed);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The config of a tenant with `rules` rules, each with the pattern `pattern`.
fn tenant(pattern: &str, rules: usize) -> String {
    let rule = format!("[[agent.model.scripted.rules]]\nwhen = '{pattern}'\nanswer = ''\n");
    format!("{}\n{}", include_str!("tenant.toml"), rule.repeat(rules))
}

/// Starts a thread that records the largest memory of any child. It reads often, because a child lives only briefly.
fn watch(server: u32, peaks: &Arc<Peaks>) -> JoinHandle<()> {
    let peaks = Arc::clone(peaks);
    std::thread::spawn(move || {
        while !peaks.stops.load(Ordering::Relaxed) {
            for child in children(server) {
                peaks.child.fetch_max(memory(child, "VmHWM"), Ordering::Relaxed);
            }
            std::thread::sleep(LOOK);
        }
    })
}

fn children(server: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{server}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(Path::new(&task.path()).join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// A field of `/proc/PID/status`, in MiB.
fn memory(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() / 1_024
}
