//! Starts a compiling process, checks its answers, and explains how it ended if it did not answer.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::time::Duration;

use rustix::process::Signal;

use super::child::COMPILE_ARGUMENT;
use super::wire::{self, Answer, JobOutcome, MAX_TEXT, Request, Task, VERSION};
use crate::confinement::engine::EngineOptions;
use crate::confinement::grants::Grants;
use crate::digest::Digest;
use crate::error::LoadError;
use crate::load::inspect::{Inspection, Outline};
use crate::load::keep_functions::KeepFunctions;
use crate::load::source::Source;

/// Maximum wait for the greeting of the process.
const GREETING_TIME: Duration = Duration::from_secs(10);

/// Maximum size of the compiled code of a component, in bytes.
const MAX_CODE_BYTES: u64 = 256 << 20;

/// The program that compiles components for a [`Runtime`](crate::Runtime).
#[derive(Clone, Debug)]
pub struct CompilerProcess {
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments. The program must call [`compile_if_asked`](crate::compile_if_asked).
    pub arguments: Vec<OsString>,
}

impl Default for CompilerProcess {
    /// The program that is running now, even if its file was replaced or removed.
    fn default() -> Self {
        Self { program: PathBuf::from("/proc/self/exe"), arguments: vec![COMPILE_ARGUMENT.into()] }
    }
}

/// A component to inspect or compile.
pub(super) struct Job {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: Digest,
    pub(super) task: Task,
    /// The grants of the operator. The component is compiled only if they cover its imports.
    pub(super) grants: Grants,
    /// Identity of the engine that runs the code.
    pub(super) engine: u64,
    /// CPU limit, rounded up to seconds.
    pub(super) time: Duration,
    /// Memory limit in bytes.
    pub(super) memory: u64,
    pub(super) options: EngineOptions,
}

/// The answers of the process.
pub(super) struct CompilerOutput {
    pub(super) outline: Outline,
    /// Why instances cannot be kept. Only set by an inspection.
    pub(super) unkeepable: Option<String>,
    /// Compiled code; empty for an inspection.
    pub(super) code: Vec<u8>,
    /// Number of added functions, in code for kept instances.
    pub(super) functions: Option<KeepFunctions>,
}

/// Why a job has no result.
enum Failure {
    /// The process refused the component, or the host refused the answer.
    Refused(LoadError),
    /// The program did not send the greeting.
    NoGreeting(io::Error),
    /// The process ended or was killed.
    Ended,
    /// The process sent an invalid answer.
    Nonsense(String),
}

impl CompilerProcess {
    /// Executes the job. Blocks the thread until the process has ended. Shutting down the other side of `pipe` ends
    /// the process.
    pub(super) fn run(&self, job: &Job, pipe: &UnixStream, stdin: UnixStream) -> Result<CompilerOutput, LoadError> {
        let start = |error: io::Error| LoadError::CompilerStart { reason: error.into() };
        let process = ChildGuard(self.start(stdin).map_err(start)?);
        let made = ask(job, pipe);
        // By now the process has answered, or its answer is useless. If it has ended by itself, its exit status is
        // kept.
        let status = process.end().map_err(start)?;
        made.map_err(|failure| match failure {
            Failure::Refused(error) => error,
            Failure::NoGreeting(error) => LoadError::CompilerStart { reason: no_greeting(&error, status) },
            Failure::Ended => ended(job, status),
            Failure::Nonsense(reason) => LoadError::CompilerAnswer { digest: job.digest, reason },
        })
    }

    fn start(&self, stdin: UnixStream) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            // The host's environment contains keys and secrets.
            .env_clear()
            // Otherwise the allocator of the `annex` command reserves a gigabyte, which would count as used.
            .env("MIMALLOC_ARENA_EAGER_COMMIT", "0")
            .current_dir("/")
            .stdin(OwnedFd::from(stdin))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn()
    }
}

/// A running process. It is killed when this value is dropped.
struct ChildGuard(Child);

impl ChildGuard {
    fn end(mut self) -> io::Result<ExitStatus> {
        self.0.kill()?;
        self.0.wait()
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Fails if the process has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(job: &Job, mut pipe: &UnixStream) -> Result<CompilerOutput, Failure> {
    greeted(pipe).map_err(Failure::NoGreeting)?;
    let request = Request {
        version: VERSION,
        memory: job.memory,
        cpu_seconds: whole_seconds(job.time),
        engine: job.engine,
        options: job.options,
        task: job.task,
        component: job.digest.hex(),
        length: wide(job.bytes.len()),
    };
    wire::write_header(&mut pipe, &request)?;
    io::Write::write_all(&mut pipe, &job.bytes)?;
    let inspected = judge(job, wire::read_header(&mut pipe)?)?;
    let JobOutcome::Inspected { outline, unkeepable } = inspected else { return Err(out_of_turn()) };
    if job.task == Task::Inspect {
        return Ok(CompilerOutput { outline: *outline, unkeepable, code: Vec::new(), functions: None });
    }
    // Checked before the compiler, which takes most of the time, has got far. A refusal ends the process.
    let inspection = Inspection::of(job.digest, job.bytes.len(), Outline::clone(&outline)).map_err(Failure::Refused)?;
    inspection.check_manifest().map_err(Failure::Refused)?;
    inspection.check_grants(&job.grants).map_err(Failure::Refused)?;
    let compiled = judge(job, wire::read_header(&mut pipe)?)?;
    let JobOutcome::Compiled { length, code: digest, functions } = compiled else { return Err(out_of_turn()) };
    let code = wire::read_bytes(&mut pipe, length)?;
    if Digest::of(&code).hex() != digest {
        return Err(Failure::Nonsense("the code does not match its digest".to_owned()));
    }
    Ok(CompilerOutput { outline: *outline, unkeepable: None, code, functions })
}

fn out_of_turn() -> Failure {
    Failure::Nonsense("the answer does not fit the task".to_owned())
}

fn greeted(mut pipe: &UnixStream) -> io::Result<()> {
    pipe.set_read_timeout(Some(GREETING_TIME))?;
    let mut greeting = vec![0; wire::GREETING.len()];
    pipe.read_exact(&mut greeting)?;
    if greeting != wire::GREETING {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it sent something other than the greeting"));
    }
    // From here on the timeout of the load applies, which shuts down the pipe.
    pipe.set_read_timeout(None)
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Nonsense(annex_text::line_within(&error.to_string(), MAX_TEXT)),
            _ => Self::Ended,
        }
    }
}

fn no_greeting(error: &io::Error, status: ExitStatus) -> Source {
    let what = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("it sent nothing for {} s", GREETING_TIME.as_secs())
        }
        io::ErrorKind::UnexpectedEof => format!("it ended ({status}) before it sent anything"),
        _ => error.to_string(),
    };
    format!("{what}; the program's main function has to call annex_runtime::compile_if_asked() before all else").into()
}

/// Checks that an answer belongs to this job. Text of the process is cut. A refusal becomes an error.
fn judge(job: &Job, answer: Answer) -> Result<JobOutcome, Failure> {
    let digest = job.digest;
    if answer.version != VERSION || answer.component != digest.hex() || answer.engine != job.engine {
        return Err(Failure::Nonsense("the answer is for another request".to_owned()));
    }
    let shown = |text: &str| annex_text::line_within(text, MAX_TEXT);
    Err(Failure::Refused(match answer.outcome {
        // Code that is too long is not read.
        JobOutcome::Compiled { length, .. } if length > MAX_CODE_BYTES => {
            LoadError::TooComplex { what: "bytes of compiled code".into(), found: length, limit: MAX_CODE_BYTES }
        }
        JobOutcome::Compiled { .. } => {
            warn_unless(answer.filtered);
            return Ok(answer.outcome);
        }
        JobOutcome::Inspected { outline, unkeepable } => {
            return Ok(JobOutcome::Inspected { outline, unkeepable: unkeepable.map(|reason| shown(&reason)) });
        }
        JobOutcome::TooComplex { what, found, limit } => {
            LoadError::TooComplex { what: shown(&what).into(), found, limit }
        }
        JobOutcome::Unkeepable { reason } => LoadError::Unkeepable { reason: shown(&reason) },
        JobOutcome::Manifest { reason } => LoadError::Manifest { reason: shown(&reason) },
        JobOutcome::NotAComponent { reason } => LoadError::NotAComponent { reason: shown(&reason) },
        JobOutcome::Refused { reason } => LoadError::Compile { digest, source: shown(&reason).into() },
        JobOutcome::OutOfMemory => LoadError::CompileMemory { digest, limit: job.memory },
        JobOutcome::Panicked => LoadError::CompilerCrash { digest, how: "a panic".to_owned() },
        JobOutcome::Unfit { reason } => LoadError::CompilerStart { reason: shown(&reason).into() },
    }))
}

/// Explains how a process ended without an answer.
fn ended(job: &Job, status: ExitStatus) -> LoadError {
    let digest = job.digest;
    let is = |signal: Signal| status.signal() == Some(signal.as_raw());
    if is(Signal::XCPU) {
        LoadError::CompileTime { digest, limit: Duration::from_secs(whole_seconds(job.time)) }
    } else if is(Signal::ABORT) {
        // In a compiler only a failed allocation aborts: panics are caught.
        LoadError::CompileMemory { digest, limit: job.memory }
    } else if is(Signal::SYS) {
        LoadError::CompilerForbidden { digest }
    } else if is(Signal::SEGV) {
        let how = format!("{status}; it ran out of stack, as on parts that nest too deep");
        LoadError::CompilerCrash { digest, how }
    } else {
        LoadError::CompilerCrash { digest, how: status.to_string() }
    }
}

fn warn_unless(filtered: bool) {
    static SAID: Once = Once::new();
    if !filtered {
        SAID.call_once(|| {
            tracing::warn!("the kernel filters no system calls, so only limits confine the processes that compile");
        });
    }
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)).max(1)
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Answer, Failure, Job, JobOutcome, MAX_CODE_BYTES, Task, VERSION, judge};
    use crate::confinement::engine::EngineOptions;
    use crate::confinement::grants::Grants;
    use crate::digest::Digest;
    use crate::error::LoadError;

    fn job() -> Job {
        let bytes = b"component".to_vec();
        let digest = Digest::of(&bytes);
        Job {
            digest,
            bytes,
            task: Task::Compile { keep: false },
            grants: Grants::default(),
            engine: 7,
            time: Duration::from_secs(1),
            memory: 1 << 20,
            options: EngineOptions::default(),
        }
    }

    fn compiled(length: u64) -> JobOutcome {
        JobOutcome::Compiled { length, code: Digest::of(b"code").hex(), functions: None }
    }

    fn answer(outcome: JobOutcome) -> Answer {
        Answer { version: VERSION, component: job().digest.hex(), engine: 7, filtered: true, outcome }
    }

    /// The error of a load in which the process sends this refusal.
    fn refused(outcome: JobOutcome) -> LoadError {
        match judge(&job(), answer(outcome)) {
            Err(Failure::Refused(error)) => error,
            _ => unreachable!("it is taken"),
        }
    }

    #[test]
    fn an_answer_to_another_question_is_nonsense() {
        let good = || answer(compiled(4));
        assert!(judge(&job(), good()).is_ok());
        for wrong in [
            Answer { version: VERSION + 1, ..good() },
            Answer { component: Digest::of(b"another").hex(), ..good() },
            Answer { engine: 8, ..good() },
        ] {
            assert!(matches!(judge(&job(), wrong), Err(Failure::Nonsense(_))));
        }
    }

    #[test]
    fn more_code_than_the_host_takes_is_refused() {
        let error = refused(compiled(MAX_CODE_BYTES + 1));
        assert!(matches!(error, LoadError::TooComplex { .. }), "{error:?}");
    }

    #[test]
    fn words_of_the_process_are_cut_and_printable() {
        let reason = format!("a\u{1b}[31m{}", "x".repeat(100_000));
        let error = refused(JobOutcome::NotAComponent { reason });
        let LoadError::NotAComponent { reason } = error else { unreachable!("{error:?}") };
        assert!(reason.starts_with("a\\u{1b}[31mx") && reason.len() <= 4 << 10, "{reason}");
    }
}
