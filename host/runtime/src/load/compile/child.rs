//! The compiling process: a process of the same program that reads one component, compiles it and ends.
//!
//! It drops all privileges that it does not need before it reads the first byte of the component. Only this file and
//! its modules parse components.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{self, AssertUnwindSafe};

use rustix::fs::FileType;
use wasmparser::BinaryReaderError;
use wasmtime::Engine;

use super::confine::{self, Bounds};
use super::wire::{self, Answer, JobOutcome, MAX_TEXT, Request, Task, VERSION};
use crate::confinement::engine::{self, EngineOptions};
use crate::digest::Digest;
use crate::error::LoadError;
use crate::load::inspect::MAX_COMPONENT_BYTES;

mod debug_info;
mod keeping;
mod outline;
mod structure;

/// The only argument of a process that compiles.
pub const COMPILE_ARGUMENT: &str = "annex_compile_component";

/// Exit status if the process was not started through a socket.
const NOT_ASKED: i32 = 2;

/// Compiles a component and ends the process, if a [`Runtime`](crate::Runtime) started this process for that purpose.
/// Otherwise does nothing.
///
/// A runtime compiles in processes of its own program. So `main` must call this function before anything else: before
/// it reads its arguments, starts threads or opens files. A program that does not call this function can only load
/// components from its compile cache. Test binaries use [`compile_in_tests!`](crate::compile_in_tests) instead.
pub fn compile_if_asked() {
    if asked() {
        std::process::exit(run());
    }
}

/// True if the process was started to compile.
pub(crate) fn asked() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == COMPILE_ARGUMENT)
}

fn run() -> i32 {
    let stdin = io::stdin();
    let pipe = stdin.as_fd();
    let is_socket = rustix::fs::fstat(pipe).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_socket());
    if !is_socket {
        let refusal = format!("{COMPILE_ARGUMENT} is for programs: there is nobody at descriptor 0 to compile for\n");
        // A failure to write cannot be reported.
        let _ = io::stderr().write_all(refusal.as_bytes());
        return NOT_ASKED;
    }
    // The exit status tells the host that there is no answer.
    serve(&mut Pipe(pipe)).map_or(1, |()| 0)
}

fn serve(pipe: &mut Pipe<'_>) -> io::Result<()> {
    // Called first, so that the compiler ends with the host at any later moment.
    confine::end_with_parent()?;
    pipe.write_all(wire::GREETING)?;
    let request: Request = wire::read_header(pipe)?;
    let ready = ready(&request);
    let filtered = ready.as_ref().is_ok_and(|(_, filtered)| *filtered);
    let Request { component, engine, task, length, options, .. } = request;
    let answer = |outcome| Answer { version: VERSION, component: component.clone(), engine, filtered, outcome };
    let engine = match ready {
        Ok((engine, _)) => engine,
        Err(reason) => {
            let reason = annex_text::line_within(&reason, MAX_TEXT);
            return wire::write_header(pipe, &answer(JobOutcome::Unfit { reason }));
        }
    };
    let bytes = wire::read_bytes(pipe, length)?;
    // The message of a panic would go to a closed descriptor, and formatting it would open files.
    panic::set_hook(Box::new(|_| {}));
    let inspected = outcome(|| inspect(&bytes, task));
    let is_refused = !matches!(inspected, JobOutcome::Inspected { .. });
    wire::write_header(pipe, &answer(inspected))?;
    let Task::Compile { keep } = task else { return Ok(()) };
    if is_refused {
        return Ok(());
    }
    let mut code = Vec::new();
    let compiled = outcome(|| compile((&engine, options), &bytes, keep, &mut code));
    wire::write_header(pipe, &answer(compiled))?;
    pipe.write_all(&code)
}

/// Creates an engine that matches the host's, and confines the process. Returns the engine and whether system calls
/// are filtered.
fn ready(request: &Request) -> Result<(Engine, bool), String> {
    // The length determines an allocation before the first byte is read.
    let too_long = usize::try_from(request.length).map_or(true, |length| length > MAX_COMPONENT_BYTES);
    if request.version != VERSION || too_long {
        return Err("the request is not one of this version".to_owned());
    }
    let engine =
        engine::for_compiling(request.options).map_err(|error| format!("its engine does not start: {error:#}"))?;
    // The host must not run code from an engine with another version or other settings.
    if engine::identity(&engine) != request.engine {
        return Err("its engine has another version or other settings than the host's".to_owned());
    }
    // Called after creating the engine, which installs its own handlers.
    confine::end_where_the_stack_ends();
    let bounds = Bounds { memory: request.memory, cpu_seconds: request.cpu_seconds };
    let filtered = confine::confine(&bounds).map_err(|error| format!("it cannot be confined: {error}"))?;
    Ok((engine, filtered))
}

/// Turns a panic into an answer. An abort then always means that the process ran out of memory.
fn outcome(work: impl FnOnce() -> Result<JobOutcome, JobOutcome>) -> JobOutcome {
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(outcome) | Err(outcome)) => outcome,
        Err(_) => JobOutcome::Panicked,
    }
}

fn inspect(bytes: &[u8], task: Task) -> Result<JobOutcome, JobOutcome> {
    let outline = Box::new(outline::of(bytes).map_err(refusal)?);
    let unkeepable = match task {
        Task::Compile { .. } => None,
        Task::Inspect => {
            let checked = structure::check(bytes).map_err(|error| error.to_string());
            checked.and_then(|()| keeping::keepable(bytes)).err()
        }
    };
    Ok(JobOutcome::Inspected {
        outline,
        unkeepable: unkeepable.map(|reason| annex_text::line_within(&reason, MAX_TEXT)),
    })
}

fn compile(
    (engine, options): (&Engine, EngineOptions),
    bytes: &[u8],
    keep: bool,
    code: &mut Vec<u8>,
) -> Result<JobOutcome, JobOutcome> {
    // Only an optimisation: refuses costly components earlier than the limits would.
    structure::check(bytes).map_err(refusal)?;
    let unkeepable = |reason: String| JobOutcome::Unkeepable { reason: annex_text::line_within(&reason, MAX_TEXT) };
    let kept = keep.then(|| keeping::keepable(bytes)).transpose().map_err(unkeepable)?;
    let bytes = kept.as_ref().map_or(bytes, |kept| kept.bytes.as_slice());
    let bytes =
        if options.debug_info { Cow::Borrowed(bytes) } else { debug_info::without(bytes).map_err(malformed)? };
    *code = engine.precompile_component(&bytes).map_err(|error| {
        if is_out_of_memory(&error) {
            return JobOutcome::OutOfMemory;
        }
        JobOutcome::Refused { reason: annex_text::line_within(&format!("{error:#}"), MAX_TEXT) }
    })?;
    let length = u64::try_from(code.len()).unwrap_or(u64::MAX);
    let functions = kept.map(|kept| kept.functions);
    Ok(JobOutcome::Compiled { length, code: Digest::of(code).hex(), functions })
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives errors away")]
fn malformed(error: BinaryReaderError) -> JobOutcome {
    JobOutcome::Refused { reason: annex_text::line_within(&error.to_string(), MAX_TEXT) }
}

fn refusal(error: LoadError) -> JobOutcome {
    let shown = |text: &str| annex_text::line_within(text, MAX_TEXT);
    match error {
        LoadError::TooComplex { what, found, limit } => {
            JobOutcome::TooComplex { what: what.into_owned(), found, limit }
        }
        LoadError::Manifest { reason } => JobOutcome::Manifest { reason: shown(&reason) },
        LoadError::NotAComponent { reason } => JobOutcome::NotAComponent { reason: shown(&reason) },
        other => JobOutcome::NotAComponent { reason: shown(&other.to_string()) },
    }
}

/// True if the engine reports a failed allocation. Most failed allocations abort the process instead.
fn is_out_of_memory(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| {
        let by_kernel =
            cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::OutOfMemory);
        by_kernel || cause.downcast_ref() == Some(&rustix::io::Errno::NOMEM)
    })
}

/// Reads and writes the socket at file descriptor 0, without the buffer of standard input.
struct Pipe<'fd>(BorrowedFd<'fd>);

impl Read for Pipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, buffer)?)
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lets the tests of a crate load components. A test binary has no `main` that could call
/// [`compile_if_asked`](crate::compile_if_asked), but runs the test that its argument names.
///
/// Use this once in each test binary that loads components. As a test, it checks that the process does nothing if it
/// was not started through a socket.
#[macro_export]
macro_rules! compile_in_tests {
    () => {
        #[test]
        fn annex_compile_component() {
            $crate::compile_if_asked();
            let program = ::std::env::current_exe().expect("the test binary");
            let mut unasked = ::std::process::Command::new(program);
            let unasked = unasked.arg($crate::COMPILE_ARGUMENT).stdin(::std::process::Stdio::null());
            let ended = unasked.output().expect("the test binary runs");
            assert_eq!(ended.status.code(), Some(2), "{ended:?}");
            assert!(::std::string::String::from_utf8_lossy(&ended.stderr).contains("descriptor 0"), "{ended:?}");
        }
    };
}
