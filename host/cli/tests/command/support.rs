//! Runs the command, and a server for the command to call.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) const STATE_URI: &str = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1";
pub(crate) const STATE: &str = r#"{"user_info":{"name":"Ada","role":"Engineer","email":"ada@example.com"}}"#;

const SPECIALIST: &str = include_str!("../../../../examples/specialist/annex.toml");

/// The most bytes of a server's log that a failing test shows.
const MAX_LOG_BYTES: usize = 4 << 10;

/// The outcome of a run.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The `annex` command with these arguments. All tests share a component cache, which is not the user's own, and nobody's
/// credentials for registries.
pub(crate) fn annex<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annex"));
    command.args(arguments);
    in_test(command)
}

fn in_test(mut command: Command) -> Command {
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).env("NO_PROXY", "127.0.0.1");
    command.env("DOCKER_CONFIG", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-docker")).env_remove("REGISTRY_AUTH_FILE");
    command
}

/// A free address of this machine.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

pub(crate) fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<Run> {
    let output = annex(arguments).output()?;
    let out = String::from_utf8(output.stdout)?;
    let err = String::from_utf8(output.stderr)?;
    Ok(Run { code: output.status.code(), out, err })
}

/// The config of `examples/specialist`, changed for tests: with a free port, with gRPC on its card, and with shorter
/// delays.
pub(crate) fn specialist() -> String {
    let specialist = SPECIALIST.replace("127.0.0.1:9999", "127.0.0.1:0").replace("delay_ms = 400", "delay_ms = 100");
    specialist.replacen("\"HTTP+JSON\"]", "\"HTTP+JSON\", \"GRPC\"]", 1)
}

/// A config of a template agent on a free port, which keeps its last answer in the state. `more` is the text of further
/// keys and tables of the model, and may continue with other tables.
pub(crate) fn template_agent(instruction: &str, more: &str) -> String {
    format!(
        r#"
        [server]
        listen = "127.0.0.1:0"
        [card]
        name = "Test agent"
        description = "For tests"
        [agent]
        kind = "template"
        name = "test_agent"
        output_key = "last_answer"
        instruction = {instruction:?}
        [agent.model.scripted]
        fallback = "nothing matched"
        {more}
        "#
    )
}

/// A config in a folder of its own.
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    _folder: TempDir,
}

impl ConfigFile {
    pub(crate) fn new(text: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("annex.toml");
        fs::write(&path, text)?;
        Ok(Self { path, _folder: folder })
    }
}

/// A running `annex serve`, which is killed at the end of the test.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) process: Child,
    pub(crate) config: ConfigFile,
    pub(crate) stdout: BufReader<ChildStdout>,
    /// The thread that reads the whole standard error of the server.
    log: Option<JoinHandle<String>>,
}

impl Server {
    /// Starts the server and waits for the line with its URL.
    ///
    /// # Errors
    /// When the server ends before that. The error contains its standard error.
    pub(crate) fn start(config: &str) -> Result<Self> {
        Self::start_with(config, &[])
    }

    /// Like [`Server::start`], with additional environment variables.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub(crate) fn start_with(config: &str, environment: &[(&str, &str)]) -> Result<Self> {
        let config = ConfigFile::new(config)?;
        let mut command = annex([OsStr::new("serve"), config.path.as_os_str()]);
        command.envs(environment.iter().copied());
        Self::start_by(command, config)
    }

    /// Like [`Server::start`], through a shell script. The arguments of the script are the command line of the server.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub(crate) fn start_in(script: &str, config: &str) -> Result<Self> {
        let config = ConfigFile::new(config)?;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_annex"), "serve"]).arg(&config.path);
        Self::start_by(in_test(command), config)
    }

    fn start_by(mut command: Command, config: ConfigFile) -> Result<Self> {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        // A pipe that nobody reads would be full at some time, and then each line of the log waits.
        let mut written = process.stderr.take().context("no standard error")?;
        let log = thread::spawn(move || {
            let mut log = Vec::new();
            // After an error the part that was read is all there is.
            let _ = written.read_to_end(&mut log);
            String::from_utf8_lossy(&log).into_owned()
        });
        let mut stdout = BufReader::new(process.stdout.take().context("no standard output")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let Some(card) = line.strip_prefix("Agent card  ") else {
            let code = process.wait()?.code();
            bail!("exit code {code:?}: {}", log.join().unwrap_or_default());
        };
        let url = card.trim().trim_end_matches("/.well-known/agent-card.json").to_owned();
        Ok(Self { url, process, config, stdout, log: Some(log) })
    }

    /// Sends a signal to the server. After SIGSTOP, waits until every thread has stopped.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.process), signal)?;
        let begin = Instant::now();
        while signal == Signal::STOP && !self.stands_still()? {
            ensure!(begin.elapsed() < Duration::from_secs(10), "it does not stop");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// True if every thread of the server is stopped. On a busy machine some threads continue for a moment after
    /// SIGSTOP.
    fn stands_still(&self) -> Result<bool> {
        for thread in fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let stat = fs::read_to_string(thread?.path().join("stat"))?;
            // The state comes after the name, which is in brackets.
            if !stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T')) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Kills the server and returns its whole standard error.
    pub(crate) fn kill_for_log(&mut self) -> Result<String> {
        self.process.kill()?;
        self.process.wait()?;
        let log = self.log.take().context("it was read already")?;
        log.join().ok().context("no log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let Some(Ok(log)) = self.log.take().map(JoinHandle::join) else { return };
        let last = log.ceil_char_boundary(log.len().saturating_sub(MAX_LOG_BYTES));
        eprintln!("log of {}: {}", self.url, &log[last..]);
    }
}
