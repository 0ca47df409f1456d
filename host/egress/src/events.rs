//! Cuts a stream into events (WHATWG HTML section 9.2) or lines. Only the data and the name of events matter here: neither A2A
//! nor models need ids or retries.

use std::collections::VecDeque;
use std::mem;

use memchr::{memchr, memchr2};

/// An event of a stream, or a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// What its field `event` says; empty without that field, and for lines.
    pub name: String,
    /// Its data, or the line.
    pub data: String,
}

/// Turns chunks of bytes, cut anywhere, into events.
#[derive(Default)]
pub(crate) struct Decoder {
    /// The current line so far. It is decoded when it is whole, so that a cut inside a character does no harm.
    line: Vec<u8>,
    /// The `data` lines of the current event, each with a line break at its end.
    data: String,
    /// The name of the current event so far.
    name: String,
    /// The last byte so far is a CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    /// The first line is over; only there a byte order mark is skipped.
    begun: bool,
}

impl Decoder {
    /// Takes the next bytes and adds the events that they complete to `events`. An event is complete at its blank line: one
    /// that the end of the stream cuts off is dropped. So is one whose data is blank: it only keeps the stream alive.
    pub(crate) fn push(&mut self, mut bytes: &[u8], events: &mut VecDeque<StreamEvent>) {
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
        self.line.len() + self.data.len() + self.name.len()
    }

    /// `end` is the line, or the end of one that began in an earlier chunk.
    fn end_line(&mut self, end: &[u8]) -> Option<StreamEvent> {
        if self.line.is_empty() {
            return self.take_line(end);
        }
        let mut line = mem::take(&mut self.line);
        line.extend_from_slice(end);
        self.take_line(&line)
    }

    fn take_line(&mut self, bytes: &[u8]) -> Option<StreamEvent> {
        // The standard wants bytes that are no UTF-8 replaced, not refused.
        let line = String::from_utf8_lossy(bytes);
        let was_begun = mem::replace(&mut self.begun, true);
        let line = if was_begun { &line } else { line.strip_prefix('\u{feff}').unwrap_or(&line) };
        if line.is_empty() {
            // Each `data` line has ended with a line break, and the last one is not part of the data.
            let mut data = mem::take(&mut self.data);
            data.pop();
            let name = mem::take(&mut self.name);
            return (!data.trim().is_empty()).then_some(StreamEvent { name, data });
        }
        // A comment is a line whose field name is empty.
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                self.data.reserve(value.len() + 1);
                self.data.push_str(value);
                self.data.push('\n');
            }
            "event" => value.clone_into(&mut self.name),
            _ => {}
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
    pub(crate) fn push(&mut self, mut bytes: &[u8], lines: &mut VecDeque<StreamEvent>) {
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
    pub(crate) fn end(&mut self) -> Option<StreamEvent> {
        let line = mem::take(&mut self.line);
        let text = String::from_utf8_lossy(line.trim_ascii());
        (!text.is_empty()).then(|| StreamEvent { name: String::new(), data: text.into_owned() })
    }
}

#[cfg(test)]
mod tests;
