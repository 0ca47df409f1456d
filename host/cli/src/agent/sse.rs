//! Reads an event stream (WHATWG HTML section 9.2). Only `data` matters here: A2A uses no event names, ids or retries.

/// Turns chunks of bytes, cut anywhere, into the data of events.
#[derive(Default)]
pub(super) struct Decoder {
    /// The current line so far. It is decoded when it is whole, so that a cut inside a character does no harm.
    line: Vec<u8>,
    /// The `data` lines of the current event, each with a line break at its end.
    data: String,
    /// The last byte was CR, so that an LF right after it belongs to the same line end.
    after_cr: bool,
    /// The first line is over; only there a byte order mark is skipped.
    begun: bool,
}

impl Decoder {
    /// Takes the next bytes and returns the events that they complete. An event is complete at its blank line: one that
    /// the end of the stream cuts off is dropped.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut events = Vec::new();
        for &byte in bytes {
            let continues_cr = self.after_cr && byte == b'\n';
            self.after_cr = byte == b'\r';
            match byte {
                b'\n' if continues_cr => {}
                b'\n' | b'\r' => events.extend(self.end_line()),
                _ => self.line.push(byte),
            }
        }
        events
    }

    /// Bytes held for an event that is not complete.
    pub(super) fn pending(&self) -> usize {
        self.line.len() + self.data.len()
    }

    fn end_line(&mut self) -> Option<String> {
        let bytes = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&bytes);
        let was_begun = std::mem::replace(&mut self.begun, true);
        let line = if was_begun { &line } else { line.strip_prefix('\u{feff}').unwrap_or(&line) };
        if line.is_empty() {
            let mut data = std::mem::take(&mut self.data);
            return data.pop().map(|_| data);
        }
        // A comment is a line whose field name is empty.
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field == "data" {
            self.data.push_str(value.strip_prefix(' ').unwrap_or(value));
            self.data.push('\n');
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Decoder;

    /// The stream must mean the same wherever it is cut.
    fn check(stream: &str, expected: &[&str]) {
        let bytes = stream.as_bytes();
        for cut in 0..=bytes.len() {
            let mut decoder = Decoder::default();
            let (head, tail) = bytes.split_at(cut);
            let events = [decoder.push(head), decoder.push(tail)].concat();
            assert_eq!(events, expected, "cut at byte {cut}");
        }
        let mut decoder = Decoder::default();
        let events: Vec<String> = bytes.iter().flat_map(|byte| decoder.push(&[*byte])).collect();
        assert_eq!(events, expected, "byte by byte");
    }

    #[test]
    fn lines_end_with_lf_cr_or_both() {
        check("data: a\n\ndata: b\n\n", &["a", "b"]);
        check("data: a\r\rdata: b\r\r", &["a", "b"]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check("data: a\n\r\ndata: b\r\n\n", &["a", "b"]);
    }

    #[test]
    fn data_over_several_lines_is_joined_by_line_breaks() {
        check("data: {\ndata:  \"a\"\ndata:}\n\n", &["{\n \"a\"\n}"]);
        check("data\ndata\n\n", &["\n"]);
    }

    #[test]
    fn comments_other_fields_and_empty_events_are_skipped() {
        check(": keep-alive\n\n\nevent: message\nid: 1\nretry: 5\ndata: a\nunknown\n\nevent: x\n\n", &["a"]);
    }

    #[test]
    fn characters_of_several_bytes_survive_a_cut() {
        check("data: é€😀\n\n", &["é€😀"]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_at_the_start_only() {
        check("\u{feff}data: a\n\n\u{feff}data: b\n\n", &["a"]);
    }

    #[test]
    fn an_event_without_its_blank_line_is_dropped() {
        check("data: a\n\ndata: b\n", &["a"]);
        check("data: a\n\ndata: b", &["a"]);
    }

    #[test]
    fn bytes_of_an_incomplete_event_are_counted() {
        let mut decoder = Decoder::default();
        decoder.push(b"data: abc\ndata: d");
        assert_eq!(decoder.pending(), "abc\n".len() + "data: d".len());
        decoder.push(b"\n\n");
        assert_eq!(decoder.pending(), 0);
    }
}
