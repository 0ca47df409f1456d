//! The other end: a process of the same program that reads one component, compiles it and ends.
//!
//! It gives up all that it does not need before it reads the first byte of the component. Nothing outside of this file and
//! its modules reads a component.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{self, AssertUnwindSafe};

use rustix::fs::FileType;
use wasmparser::BinaryReaderError;
use wasmtime::Engine;

use super::confine::{self, Bounds};
use super::wire::{self, Answer, MAX_TEXT, Outcome, Request, Task, VERSION};
use crate::confinement::engine::{self, EngineOptions};
use crate::digest::Digest;
use crate::error::LoadError;
use crate::load::inspect::MAX_COMPONENT_BYTES;

mod debug_info;
mod keeping;
mod outline;
mod structure;

/// The one argument with which a program is started to compile a component.
pub const COMPILE_ARGUMENT: &str = "annex_compile_component";

/// The exit status of a process that was started as one that compiles, and by nobody who waits for an answer.
const NOT_ASKED: i32 = 2;

/// Compiles a component and ends the process, when this is a process that a [`Runtime`](crate::Runtime) started to do
/// so; otherwise it does nothing.
///
/// A runtime compiles in processes of the program that it is part of. So the `main` of such a program calls this before
/// anything else: before it looks at its arguments, starts threads or opens files. A program that does not call it loads
/// only what is in its compile cache. Test binaries have [`compile_in_tests!`](crate::compile_in_tests) instead.
pub fn compile_if_asked() {
    if asked() {
        std::process::exit(run());
    }
}

/// True when the process was started to compile.
pub(crate) fn asked() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == COMPILE_ARGUMENT)
}

fn run() -> i32 {
    let stdin = io::stdin();
    let pipe = stdin.as_fd();
    let is_socket = rustix::fs::fstat(pipe).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_socket());
    if !is_socket {
        let refusal = format!("{COMPILE_ARGUMENT} is for programs: there is nobody at descriptor 0 to compile for\n");
        // There is nobody left to tell when this fails.
        let _ = io::stderr().write_all(refusal.as_bytes());
        return NOT_ASKED;
    }
    // The host learns from the exit status that there is no answer.
    serve(&mut Pipe(pipe)).map_or(1, |()| 0)
}

fn serve(pipe: &mut Pipe<'_>) -> io::Result<()> {
    // First of all, so that a host which dies at any later moment leaves no compiler behind.
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
            return wire::write_header(pipe, &answer(Outcome::Unfit { reason }));
        }
    };
    let bytes = wire::read_bytes(pipe, length)?;
    // The message of a panic would go to a descriptor that nobody reads, and making it would take files.
    panic::set_hook(Box::new(|_| {}));
    let inspected = outcome(|| inspect(&bytes, task));
    let is_refused = !matches!(inspected, Outcome::Inspected { .. });
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

/// An engine that makes code for the host that asks, and whether system calls are filtered from here on.
fn ready(request: &Request) -> Result<(Engine, bool), String> {
    // The length decides how much is allocated before the first byte is read.
    let too_long = usize::try_from(request.length).map_or(true, |length| length > MAX_COMPONENT_BYTES);
    if request.version != VERSION || too_long {
        return Err("the request is not one of this version".to_owned());
    }
    let engine =
        engine::for_compiling(request.options).map_err(|error| format!("its engine does not start: {error:#}"))?;
    // The host must not run code that an engine with another version or other settings has made.
    if engine::identity(&engine) != request.engine {
        return Err("its engine has another version or other settings than the host's".to_owned());
    }
    // After the engine, which has handlers of its own.
    confine::end_where_the_stack_ends();
    let bounds = Bounds { memory: request.memory, cpu_seconds: request.cpu_seconds };
    let filtered = confine::confine(&bounds).map_err(|error| format!("it cannot be confined: {error}"))?;
    Ok((engine, filtered))
}

/// A panic becomes an answer, so that the host takes an abort for what it is: no memory was left.
fn outcome(work: impl FnOnce() -> Result<Outcome, Outcome>) -> Outcome {
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(outcome) | Err(outcome)) => outcome,
        Err(_) => Outcome::Panicked,
    }
}

fn inspect(bytes: &[u8], task: Task) -> Result<Outcome, Outcome> {
    let outline = Box::new(outline::of(bytes).map_err(refusal)?);
    let unkeepable = match task {
        Task::Compile { .. } => None,
        Task::Inspect => {
            let checked = structure::check(bytes).map_err(|error| error.to_string());
            checked.and_then(|()| keeping::keepable(bytes)).err()
        }
    };
    Ok(Outcome::Inspected { outline, unkeepable: unkeepable.map(|reason| annex_text::line_within(&reason, MAX_TEXT)) })
}

fn compile(
    (engine, options): (&Engine, EngineOptions),
    bytes: &[u8],
    keep: bool,
    code: &mut Vec<u8>,
) -> Result<Outcome, Outcome> {
    // It proves nothing. It saves the time until a limit ends what is sure to cost too much.
    structure::check(bytes).map_err(refusal)?;
    let unkeepable = |reason: String| Outcome::Unkeepable { reason: annex_text::line_within(&reason, MAX_TEXT) };
    let kept = keep.then(|| keeping::keepable(bytes)).transpose().map_err(unkeepable)?;
    let bytes = kept.as_ref().map_or(bytes, |kept| kept.bytes.as_slice());
    let bytes =
        if options.debug_info { Cow::Borrowed(bytes) } else { debug_info::without(bytes).map_err(malformed)? };
    *code = engine.precompile_component(&bytes).map_err(|error| {
        if is_out_of_memory(&error) {
            return Outcome::OutOfMemory;
        }
        Outcome::Refused { reason: annex_text::line_within(&format!("{error:#}"), MAX_TEXT) }
    })?;
    let length = u64::try_from(code.len()).unwrap_or(u64::MAX);
    let functions = kept.map(|kept| kept.functions);
    Ok(Outcome::Compiled { length, code: Digest::of(code).hex(), functions })
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives errors away")]
fn malformed(error: BinaryReaderError) -> Outcome {
    Outcome::Refused { reason: annex_text::line_within(&error.to_string(), MAX_TEXT) }
}

fn refusal(error: LoadError) -> Outcome {
    let shown = |text: &str| annex_text::line_within(text, MAX_TEXT);
    match error {
        LoadError::TooComplex { what, found, limit } => Outcome::TooComplex { what: what.into_owned(), found, limit },
        LoadError::NotAComponent { reason } => Outcome::NotAComponent { reason: shown(&reason) },
        other => Outcome::NotAComponent { reason: shown(&other.to_string()) },
    }
}

/// Most allocations that fail abort the process; those that the engine makes itself are errors.
fn is_out_of_memory(error: &wasmtime::Error) -> bool {
    error.chain().any(|cause| {
        let by_kernel =
            cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::OutOfMemory);
        by_kernel || cause.downcast_ref() == Some(&rustix::io::Errno::NOMEM)
    })
}

/// Descriptor 0, without the buffer of standard input and in both directions.
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

/// Lets the tests of a crate load components: a test binary has no `main` that could call
/// [`compile_if_asked`](crate::compile_if_asked), but it runs the tests that its argument names.
///
/// Once in each test binary that loads components. Run as a test, it shows that the process does nothing when it is not
/// asked through a socket.
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
