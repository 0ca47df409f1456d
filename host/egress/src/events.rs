//! Cuts a stream into events (WHATWG HTML section 9.2) or lines. Only the `data` of events matters here: neither A2A nor
//! models need names, ids or retries.

use std::collections::VecDeque;
use std::mem;

use memchr::{memchr, memchr2};

/// Turns chunks of bytes, cut anywhere, into the data of events.
#[derive(Default)]
pub(crate) struct Decoder {
    /// The current line so far. It is decoded when it is whole, so that a cut inside a character does no harm.
    line: Vec<u8>,
    /// The `data` lines of the current event, each with a line break at its end.
    data: String,
    /// The last byte so far is a CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    /// The first line is over; only there a byte order mark is skipped.
    begun: bool,
}

impl Decoder {
    /// Takes the next bytes and adds the events that they complete to `events`. An event is complete at its blank line: one
    /// that the end of the stream cuts off is dropped.
    pub(crate) fn push(&mut self, mut bytes: &[u8], events: &mut VecDeque<String>) {
        if !bytes.is_empty() && mem::take(&mut self.after_cr) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr2(b'\r', b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            events.extend(self.end_line(line));
            // Only a CR at the very end of a chunk leaves open whether an LF belongs to it.
            self.after_cr = rest == b"\r";
            bytes = rest.strip_prefix(b"\r\n").or_else(|| rest.get(1..)).unwrap_or_default();
        }
        self.line.extend_from_slice(bytes);
    }

    /// Bytes held for an event that is not complete.
    pub(crate) fn pending(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// `end` is the line, or the end of one that began in an earlier chunk.
    fn end_line(&mut self, end: &[u8]) -> Option<String> {
        if self.line.is_empty() {
            return self.take_line(end);
        }
        let mut line = mem::take(&mut self.line);
        line.extend_from_slice(end);
        self.take_line(&line)
    }

    fn take_line(&mut self, bytes: &[u8]) -> Option<String> {
        // The standard wants bytes that are no UTF-8 replaced, not refused.
        let line = String::from_utf8_lossy(bytes);
        let was_begun = mem::replace(&mut self.begun, true);
        let line = if was_begun { &line } else { line.strip_prefix('\u{feff}').unwrap_or(&line) };
        if line.is_empty() {
            // Each `data` line has ended with a line break, and the last one is not part of the data.
            let mut data = mem::take(&mut self.data);
            return data.pop().map(|_| data);
        }
        // A comment is a line whose field name is empty.
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field == "data" {
            let value = value.strip_prefix(' ').unwrap_or(value);
            self.data.reserve(value.len() + 1);
            self.data.push_str(value);
            self.data.push('\n');
        }
        None
    }
}

/// Turns chunks of bytes, cut anywhere, into the lines that are not empty.
#[derive(Default)]
pub(crate) struct Lines {
    line: Vec<u8>,
}

impl Lines {
    pub(crate) fn push(&mut self, mut bytes: &[u8], lines: &mut VecDeque<String>) {
        while let Some(end) = memchr(b'\n', bytes) {
            let (head, rest) = bytes.split_at(end);
            self.line.extend_from_slice(head);
            lines.extend(self.end());
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.line.extend_from_slice(bytes);
    }

    pub(crate) fn pending(&self) -> usize {
        self.line.len()
    }

    /// The line so far, unless it is empty.
    pub(crate) fn end(&mut self) -> Option<String> {
        let line = mem::take(&mut self.line);
        let text = String::from_utf8_lossy(line.trim_ascii());
        (!text.is_empty()).then(|| text.into_owned())
    }
}

#[cfg(test)]
mod tests;
