//! Answers on standard output, remarks about them on standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::Context;

/// Whoever read standard output has seen enough, as `annex card URL | head` does. No error worth a word.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
pub(crate) struct Closed;

/// Writes `text` as it is.
pub(crate) fn write(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Closed.into()),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes text that somebody else wrote.
pub(crate) fn show(text: &str) -> anyhow::Result<()> {
    write(&harmless(text))
}

/// A line on standard error, dim on a terminal. Losing it is no reason to stop.
pub(crate) fn note(text: &str) {
    let (text, mut lines) = (harmless(text), io::stderr().lock());
    let _ = if lines.is_terminal() { writeln!(lines, "\x1b[2m{text}\x1b[0m") } else { writeln!(lines, "{text}") };
}

/// What a person is asked, on standard error, with the answer to follow in the same line.
pub(crate) fn prompt(text: &str) {
    let mut line = io::stderr().lock();
    let _ = write!(line, "{text}").and_then(|()| line.flush());
}

/// Why the command failed.
pub(crate) fn error(text: &str) {
    let _ = writeln!(io::stderr(), "error: {}", harmless(text));
}

/// Without the characters that make a terminal do more than show text.
fn harmless(text: &str) -> String {
    text.chars().filter(|&character| !character.is_control() || matches!(character, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn text_from_elsewhere_cannot_steer_the_terminal() {
        assert_eq!(harmless("a\x1b[31mb\r\n\tc\u{9b}2J"), "a[31mb\n\tc2J");
    }
}
