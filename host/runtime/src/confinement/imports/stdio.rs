//! Standard output and error of a guest, written to its log line by line.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::contract::LogLevel;
use crate::observation::log::Log;

/// Most bytes of one write.
const MAX_WRITE: usize = 64 << 10;

/// Standard output or standard error. Clones write to the same stream.
#[derive(Clone)]
pub(super) struct LogStream(Arc<Mutex<Lines>>);

struct Lines {
    log: Log,
    level: LogLevel,
    name: &'static str,
    /// The current line, cut to the length that the log accepts.
    line: Vec<u8>,
    /// True if the current line was cut.
    is_cut: bool,
}

impl LogStream {
    pub(super) fn new(log: Log, level: LogLevel, name: &'static str) -> Self {
        Self(Arc::new(Mutex::new(Lines { log, level, name, line: Vec::new(), is_cut: false })))
    }
}

impl Lines {
    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n");
            // Bytes beyond the length of a log line are dropped, so that an endless line takes no memory.
            let room = self.log.taken_bytes().saturating_sub(self.line.len());
            let text_or_rest = text.unwrap_or(piece);
            self.line.extend(text_or_rest.iter().take(room));
            self.is_cut |= text_or_rest.len() > room;
            if text.is_some() {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        if self.is_cut {
            self.log.write_cut(self.level, self.name, &line);
        } else {
            self.log.write(self.level, self.name, &line);
        }
        self.line.clear();
        self.is_cut = false;
    }
}

/// Logs the last line if it has no line break.
impl Drop for Lines {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
    }
}

impl OutputStream for LogStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        // Always ready: the log drops and counts lines beyond its limits, and never blocks a guest.
        Ok(MAX_WRITE)
    }
}

#[async_trait]
impl Pollable for LogStream {
    async fn ready(&mut self) {}
}

impl IsTerminal for LogStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LogStream {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    /// Only WASI 0.3 uses this function, and the host does not support that version.
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        Box::new(MemoryOutputPipe::new(0))
    }
}
