//! Starts a process that compiles, asks it, believes only an answer to what was asked, and says how it ended otherwise.

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
use super::wire::{self, Answer, MAX_TEXT, Outcome, Request, VERSION};
use crate::confinement::engine::EngineOptions;
use crate::digest::Digest;
use crate::error::LoadError;
use crate::load::source::Source;

/// The longest that a process may take to greet.
const GREETING_TIME: Duration = Duration::from_secs(10);

/// Bytes of code that the host takes, whatever the component.
const MAX_CODE_BYTES: u64 = 256 << 20;

/// The program that compiles components for a [`Runtime`](crate::Runtime).
#[derive(Clone, Debug)]
pub struct CompilerProcess {
    /// Its file.
    pub program: PathBuf,
    /// Its arguments. The program calls [`compile_if_asked`](crate::compile_if_asked).
    pub arguments: Vec<OsString>,
}

impl Default for CompilerProcess {
    /// The program that runs, also when its file has been replaced or removed meanwhile.
    fn default() -> Self {
        Self { program: PathBuf::from("/proc/self/exe"), arguments: vec![COMPILE_ARGUMENT.into()] }
    }
}

/// A component to compile.
pub(super) struct Job {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: Digest,
    /// The engine that runs the code.
    pub(super) engine: u64,
    /// CPU time that it may cost, rounded up to seconds.
    pub(super) time: Duration,
    /// Bytes of memory that it may cost.
    pub(super) memory: u64,
    pub(super) options: EngineOptions,
}

/// The reason for a missing answer.
enum Failure {
    /// The program is none that compiles.
    NoGreeting(io::Error),
    /// The process ended, or was given up.
    Ended,
    /// The process says something else than an answer.
    Nonsense(String),
}

impl CompilerProcess {
    /// Compiled code of the component. It blocks the thread until the process has ended, and the process ends when the
    /// other side of `pipe` is shut down.
    pub(super) fn compile(&self, job: &Job, pipe: &UnixStream, stdin: UnixStream) -> Result<Vec<u8>, LoadError> {
        let start = |error: io::Error| LoadError::CompilerStart { reason: error.into() };
        let process = Running(self.start(stdin).map_err(start)?);
        let answered = ask(job, pipe);
        // By now it has answered, or its answer is of no use. One that ended by itself keeps the status of its end.
        let status = process.end().map_err(start)?;
        match answered {
            Ok((answer, code)) => judge(job, answer, code),
            Err(Failure::NoGreeting(error)) => Err(LoadError::CompilerStart { reason: no_greeting(&error, status) }),
            Err(Failure::Ended) => Err(ended(job, status)),
            Err(Failure::Nonsense(reason)) => Err(LoadError::CompilerAnswer { digest: job.digest, reason }),
        }
    }

    fn start(&self, stdin: UnixStream) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            // The environment of the host holds keys and secrets, which the process does not need.
            .env_clear()
            // The allocator of the `annex` command sets a gigabyte aside otherwise, which would count as used.
            .env("MIMALLOC_ARENA_EAGER_COMMIT", "0")
            .current_dir("/")
            .stdin(OwnedFd::from(stdin))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn()
    }
}

/// A process that is killed when this is dropped.
struct Running(Child);

impl Running {
    fn end(mut self) -> io::Result<ExitStatus> {
        self.0.kill()?;
        self.0.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It fails when the process has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(job: &Job, mut pipe: &UnixStream) -> Result<(Answer, Vec<u8>), Failure> {
    greeted(pipe).map_err(Failure::NoGreeting)?;
    let request = Request {
        version: VERSION,
        memory: job.memory,
        cpu_seconds: whole_seconds(job.time),
        engine: job.engine,
        options: job.options,
        component: job.digest.hex(),
        length: wide(job.bytes.len()),
    };
    wire::write_header(&mut pipe, &request)?;
    io::Write::write_all(&mut pipe, &job.bytes)?;
    let answer: Answer = wire::read_header(&mut pipe)?;
    let length = match answer.outcome {
        Outcome::Compiled { length, .. } => length,
        _ => 0,
    };
    // Code that is too long is refused by `judge`, so none of it is read.
    let code = if length <= MAX_CODE_BYTES { wire::read_bytes(&mut pipe, length)? } else { Vec::new() };
    Ok((answer, code))
}

fn greeted(mut pipe: &UnixStream) -> io::Result<()> {
    pipe.set_read_timeout(Some(GREETING_TIME))?;
    let mut greeting = vec![0; wire::GREETING.len()];
    pipe.read_exact(&mut greeting)?;
    if greeting != wire::GREETING {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it says something else"));
    }
    // From here on the load's time holds, which ends with the pipe being shut.
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
            format!("it said nothing for {} s", GREETING_TIME.as_secs())
        }
        io::ErrorKind::UnexpectedEof => format!("it ended ({status}) before it said anything"),
        _ => error.to_string(),
    };
    format!("{what}; the program's main function has to call annex_runtime::compile_if_asked() before all else").into()
}

/// An answer counts when it is one to this job, and its parts are what they should be.
fn judge(job: &Job, answer: Answer, code: Vec<u8>) -> Result<Vec<u8>, LoadError> {
    let digest = job.digest;
    let nonsense = |reason: &str| Err(LoadError::CompilerAnswer { digest, reason: reason.to_owned() });
    if answer.version != VERSION || answer.component != digest.hex() || answer.engine != job.engine {
        return nonsense("it answers something else than it was asked");
    }
    let shown = |text: &str| annex_text::line_within(text, MAX_TEXT);
    match answer.outcome {
        Outcome::Compiled { length, .. } if length > MAX_CODE_BYTES => {
            let what = "bytes of compiled code".into();
            Err(LoadError::TooComplex { what, found: length, limit: MAX_CODE_BYTES })
        }
        Outcome::Compiled { code: expected, .. } if Digest::of(&code).hex() != expected => {
            nonsense("the code is not what its digest says")
        }
        Outcome::Compiled { .. } => {
            warn_unless(answer.filtered);
            Ok(code)
        }
        Outcome::TooComplex { what, found, limit } => {
            Err(LoadError::TooComplex { what: shown(&what).into(), found, limit })
        }
        Outcome::NotAComponent { reason } => Err(LoadError::NotAComponent { reason: shown(&reason) }),
        Outcome::Refused { reason } => Err(LoadError::Compile { digest, source: shown(&reason).into() }),
        Outcome::OutOfMemory => Err(LoadError::CompileMemory { digest, limit: job.memory }),
        Outcome::Panicked => Err(LoadError::CompilerCrash { digest, how: "a panic".to_owned() }),
        Outcome::Unfit { reason } => Err(LoadError::CompilerStart { reason: shown(&reason).into() }),
    }
}

/// The end of a process that did not answer.
fn ended(job: &Job, status: ExitStatus) -> LoadError {
    let digest = job.digest;
    let is = |signal: Signal| status.signal() == Some(signal.as_raw());
    if is(Signal::XCPU) {
        LoadError::CompileTime { digest, limit: Duration::from_secs(whole_seconds(job.time)) }
    } else if is(Signal::ABORT) {
        // Nothing else in a compiler ends it so: panics are answers.
        LoadError::CompileMemory { digest, limit: job.memory }
    } else if is(Signal::SYS) {
        LoadError::CompilerForbidden { digest }
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

    use super::{Answer, Job, MAX_CODE_BYTES, Outcome, VERSION, judge};
    use crate::confinement::engine::EngineOptions;
    use crate::digest::Digest;
    use crate::error::LoadError;

    const CODE: &[u8] = b"code";

    fn job() -> Job {
        let bytes = b"component".to_vec();
        let digest = Digest::of(&bytes);
        Job {
            digest,
            bytes,
            engine: 7,
            time: Duration::from_secs(1),
            memory: 1 << 20,
            options: EngineOptions::default(),
        }
    }

    fn compiled(length: u64, code: &[u8]) -> Outcome {
        Outcome::Compiled { length, code: Digest::of(code).hex() }
    }

    fn answer(outcome: Outcome) -> Answer {
        Answer { version: VERSION, component: job().digest.hex(), engine: 7, filtered: true, outcome }
    }

    fn judged(answer: Answer) -> Result<Vec<u8>, LoadError> {
        judge(&job(), answer, CODE.to_vec())
    }

    #[test]
    fn code_is_taken_when_all_of_the_answer_fits_the_question() {
        assert_eq!(judged(answer(compiled(4, CODE))).expect("it fits"), CODE);
    }

    #[test]
    fn an_answer_to_another_question_is_nonsense() {
        let good = || answer(compiled(4, CODE));
        for wrong in [
            Answer { version: VERSION + 1, ..good() },
            Answer { component: Digest::of(b"another").hex(), ..good() },
            Answer { engine: 8, ..good() },
            answer(compiled(4, b"other code")),
        ] {
            let error = judged(wrong).expect_err("it does not fit");
            assert!(matches!(error, LoadError::CompilerAnswer { .. }), "{error:?}");
        }
    }

    #[test]
    fn more_code_than_the_host_takes_is_refused() {
        let error = judged(answer(compiled(MAX_CODE_BYTES + 1, CODE))).expect_err("it is too long");
        assert!(matches!(error, LoadError::TooComplex { .. }), "{error:?}");
    }

    #[test]
    fn words_of_the_process_are_cut_and_printable() {
        let reason = format!("a\u{1b}[31m{}", "x".repeat(100_000));
        let error = judged(answer(Outcome::NotAComponent { reason })).expect_err("it is refused");
        let LoadError::NotAComponent { reason } = error else { unreachable!("{error:?}") };
        assert!(reason.starts_with("a\\u{1b}[31mx") && reason.len() <= 4 << 10, "{reason}");
    }
}
