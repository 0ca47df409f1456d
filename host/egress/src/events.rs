//! Splits a stream into server-sent events (WHATWG HTML section 9.2) or lines. Only data and names of events are
//! kept: neither A2A nor models need ids or retry times.

use std::collections::VecDeque;
use std::mem;

use memchr::{memchr, memchr2};

/// An event or a line of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// Value of the field `event`; empty without that field, and for lines.
    pub name: String,
    /// Data of the event, or the line.
    pub data: String,
}

/// Decodes chunks of bytes, split anywhere, into events.
#[derive(Default)]
pub(crate) struct Decoder {
    /// Bytes of the current line. They are decoded when the line is complete, because a chunk may end inside a
    /// character.
    line: Vec<u8>,
    /// The `data` lines of the current event, each with a line break at its end.
    data: String,
    /// Name of the current event.
    name: String,
    /// True if the last byte was a CR. If the next byte is an LF, it belongs to the same line break as the CR.
    after_cr: bool,
    /// True after the first line. Only the first line may begin with a byte order mark.
    begun: bool,
}

impl Decoder {
    /// Decodes the next bytes and appends completed events to `events`. A blank line completes an event, so an event
    /// that the end of the stream cuts off is dropped. Events with blank data are dropped too: they only keep the
    /// stream alive.
    pub(crate) fn push(&mut self, mut bytes: &[u8], events: &mut VecDeque<StreamEvent>) {
        if !bytes.is_empty() && mem::take(&mut self.after_cr) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr2(b'\r', b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            events.extend(self.end_line(line));
            // Only after a CR at the very end of a chunk is it unknown whether an LF follows.
            self.after_cr = rest == b"\r";
            bytes = rest.strip_prefix(b"\r\n").or_else(|| rest.get(1..)).unwrap_or_default();
        }
        self.line.extend_from_slice(bytes);
    }

    /// Bytes stored for the incomplete event.
    pub(crate) fn pending(&self) -> usize {
        self.line.len() + self.data.len() + self.name.len()
    }

    /// Ends the current line. `end` is the whole line, or the end of a line that began in an earlier chunk.
    fn end_line(&mut self, end: &[u8]) -> Option<StreamEvent> {
        if self.line.is_empty() {
            return self.take_line(end);
        }
        let mut line = mem::take(&mut self.line);
        line.extend_from_slice(end);
        self.take_line(&line)
    }

    fn take_line(&mut self, bytes: &[u8]) -> Option<StreamEvent> {
        // The standard replaces invalid UTF-8 instead of rejecting it.
        let line = String::from_utf8_lossy(bytes);
        let was_begun = mem::replace(&mut self.begun, true);
        let line = if was_begun { &line } else { line.strip_prefix('\u{feff}').unwrap_or(&line) };
        if line.is_empty() {
            // Each `data` line was stored with a line break. The last one is not part of the data.
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

/// Splits chunks of bytes into lines, and skips empty lines.
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

    /// The current line, unless it is empty.
    pub(crate) fn end(&mut self) -> Option<StreamEvent> {
        let line = mem::take(&mut self.line);
        let text = String::from_utf8_lossy(line.trim_ascii());
        (!text.is_empty()).then(|| StreamEvent { name: String::new(), data: text.into_owned() })
    }
}

#[cfg(test)]
mod tests;
