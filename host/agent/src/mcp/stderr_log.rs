//! Logs the standard error of a program. Long lines are cut, and lines beyond a rate limit are only counted.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// The maximum size of a line, in bytes. The rest of a longer line is dropped.
const MAX_LINE: usize = 4 << 10;
/// The maximum number of lines that are logged within [`TIME`]. The number of dropped lines is logged at the end of
/// that time.
const MAX_LINES: u64 = 200;
const TIME: Duration = Duration::from_secs(10);

/// Logs the lines until the program ends. Returns the last line.
pub(super) async fn log_lines(server: String, mut words: impl AsyncRead + Unpin) -> String {
    let mut log = Log { server, last: String::new(), line: Vec::new(), since: Instant::now(), lines: 0 };
    let mut buffer = vec![0; 8 << 10];
    while let Ok(read @ 1..) = words.read(&mut buffer).await {
        log.take(buffer.get(..read).unwrap_or_default());
    }
    log.end_line();
    log.tell_rest();
    log.last
}

struct Log {
    server: String,
    last: String,
    line: Vec<u8>,
    since: Instant,
    lines: u64,
}

impl Log {
    fn take(&mut self, bytes: &[u8]) {
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        self.add(pieces.next().unwrap_or_default());
        for piece in pieces {
            self.end_line();
            self.add(piece);
        }
    }

    fn add(&mut self, piece: &[u8]) {
        let room = MAX_LINE - self.line.len();
        self.line.extend_from_slice(piece.get(..room).unwrap_or(piece));
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(self.line.trim_ascii_end()).into_owned();
        self.line.clear();
        if line.trim().is_empty() {
            return;
        }
        if self.since.elapsed() >= TIME {
            self.tell_rest();
            self.since = Instant::now();
            self.lines = 0;
        }
        self.lines += 1;
        if self.lines <= MAX_LINES {
            tracing::info!(server = self.server, line, "an MCP server says");
        }
        self.last = line;
    }

    fn tell_rest(&self) {
        let left_out = self.lines.saturating_sub(MAX_LINES);
        if left_out > 0 {
            tracing::info!(server = self.server, left_out, "an MCP server writes more lines than are logged");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINE, log_lines};

    #[tokio::test]
    async fn a_line_of_any_length_is_cut_and_the_last_one_is_known() {
        let long = "x".repeat(10 * MAX_LINE);
        let last = |words: String| async move { log_lines("s".to_owned(), words.as_bytes()).await };
        assert_eq!(last(format!("a\n{long}")).await, "x".repeat(MAX_LINE));
        assert_eq!(last(format!("{long}\nlast words\r\n\n  \n")).await, "last words");
        assert_eq!(last(String::new()).await, "");
    }
}
