//! Writes answers to standard output, and remarks about them to standard error.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

use crate::color::{self, Tint};
use crate::{progress, wrap};

/// The indent of the second and later lines of a remark, so that they do not look like separate remarks.
const INDENT: &str = "  ";

/// The error of a write to standard output whose reader is gone, as in `annex card URL | head`. The command then ends,
/// prints no error, and reports success.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
pub(crate) struct OutputClosed;

/// Writes `text` unchanged.
pub(crate) fn write(text: &str) -> anyhow::Result<()> {
    let _paused = progress::pause();
    let mut out = io::stdout().lock();
    // Each piece is flushed, so that an answer is seen as it streams.
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes text from an untrusted source, and keeps the line breaks in the text. A caller that inserts untrusted text
/// into a line of its own must first escape that text with [`annex_text::line`].
pub(crate) fn show(text: &str) -> anyhow::Result<()> {
    write(&annex_text::block(text))
}

/// Writes JSON and a line break.
pub(crate) fn json(text: &str) -> anyhow::Result<()> {
    write(&format!("{}\n", annex_text::json(text.trim_end())))
}

/// Prints a remark on standard error, dim where colours are used. Second and later lines are indented. A failed write
/// is ignored.
pub(crate) fn note(text: &str) {
    let text = annex_text::indented(text, INDENT);
    let _paused = progress::pause();
    // The lock keeps the log from writing between the lines of a remark.
    let mut lines = io::stderr().lock();
    let _ =
        if color::on_standard_error() { writeln!(lines, "\x1b[2m{text}\x1b[0m") } else { writeln!(lines, "{text}") };
}

/// Prints a question on standard error, without a line break, so that the person answers in the same line.
pub(crate) fn prompt(text: &str) {
    let _paused = progress::pause();
    let mut line = io::stderr().lock();
    let _ = write!(line, "{text}").and_then(|()| line.flush());
}

/// Prints the reason why the command failed on standard error.
pub(crate) fn error(text: &str) {
    labelled("error:", Tint::Bad, text);
}

/// Prints a warning on standard error. What it warns about does not make the command fail.
pub(crate) fn warning(text: &str) {
    labelled("warning:", Tint::Warning, text);
}

fn labelled(label: &str, tint: Tint, text: &str) {
    let _paused = progress::pause();
    let text = format!("{label} {}", annex_text::indented(text, INDENT));
    let text = wrap::hanging(&text, INDENT.len(), wrap::columns(&io::stderr()));
    let rest = text.strip_prefix(label).unwrap_or_default();
    let _ = writeln!(io::stderr(), "{}{rest}", tint.on_standard_error(label));
}

/// Breaks long lines so that they fit the terminal of standard output. The continuation of a line is indented by
/// `indent` columns more than the line.
pub(crate) fn hanging(text: &str, indent: usize) -> String {
    wrap::hanging(text, indent, wrap::columns(&io::stdout()))
}
