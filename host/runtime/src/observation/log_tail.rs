//! The last log lines of an extension, for its operator. The complete log is that of the process.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::hook::Hook;

/// Most kept lines per loaded component.
const MAX_LINES: usize = 200;
/// Most bytes of the kept lines per loaded component.
const MAX_BYTES: usize = 64 << 10;

/// A log line of an extension, with control characters escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Time of writing.
    pub at: SystemTime,
    /// `trace`, `debug`, `info`, `warn` or `error`.
    pub level: &'static str,
    /// Name that the extension gives to the writing part; may be empty.
    pub context: String,
    /// The text of the line.
    pub message: String,
    /// The hook that wrote the line.
    pub hook: Hook,
    /// Id of the task; `None` outside of a turn.
    pub task_id: Option<String>,
    /// Id of the conversation; `None` outside of a turn.
    pub context_id: Option<String>,
    /// The error id that a client gets if the extension fails in this turn.
    pub error_id: String,
}

/// The lines, oldest first. The oldest are dropped when there is no room.
#[derive(Default)]
pub(crate) struct LogTail {
    kept: Mutex<TailLines>,
}

#[derive(Default)]
struct TailLines {
    lines: VecDeque<LogLine>,
    bytes: usize,
}

impl LogTail {
    pub(crate) fn push(&self, line: LogLine) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += size(&line);
        kept.lines.push_back(line);
        while kept.lines.len() > MAX_LINES || kept.bytes > MAX_BYTES {
            let Some(oldest) = kept.lines.pop_front() else { break };
            kept.bytes -= size(&oldest);
        }
    }

    pub(crate) fn lines(&self) -> Vec<LogLine> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).lines.iter().cloned().collect()
    }
}

fn size(line: &LogLine) -> usize {
    // The ids are short, and a line has at most one of each.
    line.context.len() + line.message.len()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::{LogLine, LogTail, MAX_BYTES, MAX_LINES};
    use crate::hook::Hook;

    fn line(message: String) -> LogLine {
        LogLine {
            at: SystemTime::UNIX_EPOCH,
            level: "info",
            context: String::new(),
            message,
            hook: Hook::Message,
            task_id: None,
            context_id: None,
            error_id: String::new(),
        }
    }

    #[test]
    fn the_last_lines_are_kept_within_their_bounds() {
        let tail = LogTail::default();
        for number in 0..MAX_LINES * 2 {
            tail.push(line(number.to_string()));
        }
        let lines = tail.lines();
        assert_eq!(lines.len(), MAX_LINES);
        assert_eq!(lines.last().map(|line| line.message.clone()), Some((MAX_LINES * 2 - 1).to_string()));

        for _ in 0..MAX_LINES {
            tail.push(line("x".repeat(4 << 10)));
        }
        let bytes: usize = tail.lines().iter().map(|line| line.message.len()).sum();
        assert!(bytes > 0 && bytes <= MAX_BYTES, "{bytes}");
    }
}
