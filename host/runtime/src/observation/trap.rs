//! A guest's trap in readable form: the reason and the guest's stack, with names and source positions if the
//! component has them.
//!
//! Names and positions come from the guest, so each is cut before it is processed.

use std::error::Error;
use std::fmt::{self, Write};

use wasmtime::{FrameInfo, WasmBacktrace};

/// Most stack frames that are shown, the innermost first. The frame that explains the trap is usually among the first.
const MAX_FRAMES: usize = 12;
/// Longest reason in bytes.
const MAX_REASON: usize = 4 << 10;
/// Longest name in bytes, before and after demangling. A mangled name may expand to one of any length.
const MAX_NAME: usize = 256;

/// A trap of a guest.
#[derive(Debug)]
pub struct Trap {
    reason: String,
    /// `None` if no guest code was running.
    stack: Option<Stack>,
}

/// The stack, innermost function first.
#[derive(Debug)]
struct Stack(String);

impl Trap {
    pub(crate) fn of(error: &wasmtime::Error) -> Self {
        // One of the causes is the engine's own backtrace, which has many lines and any length.
        let reasons = error.chain().map(|cause| bounded(MAX_REASON, format_args!("{cause}")));
        let reasons = reasons.filter(|cause| !cause.starts_with("error while executing at"));
        Self {
            reason: reasons.collect::<Vec<_>>().join(": "),
            stack: error.downcast_ref::<WasmBacktrace>().and_then(|trace| Stack::of(trace.frames())),
        }
    }
}

impl Stack {
    fn of(frames: &[FrameInfo]) -> Option<Self> {
        // A panic starts in Rust's standard library, whose frames do not show the origin.
        let start = frames.iter().position(|frame| !is_of_the_runtime(&name(frame))).unwrap_or(0);
        let told: Vec<String> = frames.iter().skip(start).take(MAX_FRAMES).map(told).collect();
        if told.is_empty() {
            return None;
        }
        let further = frames.len().saturating_sub(start + told.len());
        let further = if further > 0 { format!(" < {further} more") } else { String::new() };
        Some(Self(told.join(" < ") + &further))
    }
}

/// Name of the function, with file and line if the component has them.
fn told(frame: &FrameInfo) -> String {
    let name = name(frame);
    // The innermost inlined function comes first; its line is the relevant one.
    let place = frame.symbols().iter().find_map(|symbol| Some((symbol.file()?, symbol.line()?)));
    match place {
        Some((file, line)) => format!("{name} at {}:{line}", within(file)),
        None => name,
    }
}

fn name(frame: &FrameInfo) -> String {
    let Some(name) = frame.func_name() else { return format!("wasm function {}", frame.func_index()) };
    let name = within(name);
    let Ok(demangled) = rustc_demangle::try_demangle(name) else { return name.to_owned() };
    bounded(MAX_NAME, format_args!("{demangled:#}"))
}

/// Formats a text of at most `most` bytes.
fn bounded(most: usize, text: fmt::Arguments<'_>) -> String {
    let mut bounded = BoundedWriter { text: String::new(), most };
    // Formatting stops when the text is long enough.
    let _ = bounded.write_fmt(text);
    bounded.text
}

/// The text cut to [`MAX_NAME`] bytes.
fn within(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_NAME)).unwrap_or(text)
}

fn is_of_the_runtime(name: &str) -> bool {
    const CRATES: [&str; 3] = ["std::", "core::", "alloc::"];
    let path = name.trim_start_matches('<');
    CRATES.iter().any(|name| path.starts_with(name))
        || name.starts_with("__rust")
        || name.starts_with("rust_")
        || name == "abort"
}

/// A writer that accepts at most `most` bytes and then fails, which stops formatting.
struct BoundedWriter {
    text: String,
    most: usize,
}

impl Write for BoundedWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.most.saturating_sub(self.text.len());
        self.text.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
        if text.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.reason)
    }
}

impl Error for Trap {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.stack.as_ref().map(|stack| stack as _)
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "in {}", self.0)
    }
}

impl Error for Stack {}

#[cfg(test)]
mod tests {
    use super::{MAX_NAME, bounded, is_of_the_runtime};

    #[test]
    fn a_text_that_is_too_long_ends_the_writing() {
        let text = bounded(MAX_NAME, format_args!("{}", "ä".repeat(1_000)));
        assert!(text.len() <= MAX_NAME && text.len() > MAX_NAME - 2);
    }

    #[test]
    fn frames_of_a_panic_are_of_the_runtime() {
        for name in
            ["core::panicking::panic_fmt", "<alloc::string::String as core::fmt::Write>::write_str", "rust_panic"]
        {
            assert!(is_of_the_runtime(name), "{name}");
        }
        assert!(!is_of_the_runtime("<hello::Hello as annex_sdk::Response>::respond"));
    }
}
