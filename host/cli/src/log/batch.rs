//! Writes many lines of the access log at a time. On a busy server, a system call for each line would take several
//! times as long as making the line.

use std::io::{self, Stderr, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::Duration;

use annex_telemetry::ACCESS_TARGET;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The longest time that a line waits for the lines after it.
const DELAY: Duration = Duration::from_millis(50);

/// The number of waiting bytes at which the thread that adds a line writes the whole batch. If the reader of standard
/// error is too slow, requests wait during this write.
const FULL: usize = 64 << 10;

/// The lines that wait for standard error.
pub(super) static STANDARD_ERROR: Batch<StandardError> = Batch::new(StandardError, DELAY);

/// Standard error. [`io::stderr`] cannot be called in a constant.
pub(super) struct StandardError;

/// The lines that wait, in the order in which they were logged, and the writer that they go to.
pub(super) struct Batch<W> {
    waiting: Mutex<WaitingLines<W>>,
    /// Notified when a line arrives and no other line waits.
    begun: Condvar,
    /// The longest time that a line waits.
    delay: Duration,
}

struct WaitingLines<W> {
    lines: Vec<u8>,
    sink: W,
    /// True once the thread that writes the lines was started.
    has_writer: bool,
}

/// A writer that adds lines to a batch. Each write must be a whole line.
pub(super) struct LineWriter<W: 'static> {
    batch: &'static Batch<W>,
    /// True if the line may wait. Otherwise the line is written at once, with all lines before it.
    waits: bool,
}

impl<W: Write + Send> Batch<W> {
    pub(super) const fn new(sink: W, delay: Duration) -> Self {
        let waiting = WaitingLines { lines: Vec::new(), sink, has_writer: false };
        Self { waiting: Mutex::new(waiting), begun: Condvar::new(), delay }
    }

    /// Writes the waiting lines.
    pub(super) fn flush(&self) {
        // If the log cannot be written, these lines are lost, like any other line.
        let _ = self.lock().write();
    }

    fn lock(&self) -> MutexGuard<'_, WaitingLines<W>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&'static self, line: &[u8], waits: bool) -> io::Result<()> {
        let mut waiting = self.lock();
        let is_first = waiting.lines.is_empty();
        waiting.lines.extend_from_slice(line);
        if !waits || waiting.lines.len() >= FULL {
            return waiting.write();
        }
        if is_first {
            self.begun.notify_one();
        }
        if waiting.has_writer {
            return Ok(());
        }
        let started = Builder::new().name("annex-log".to_owned()).spawn(|| self.write_forever());
        waiting.has_writer = started.is_ok();
        if waiting.has_writer { Ok(()) } else { waiting.write() }
    }

    fn write_forever(&self) {
        loop {
            let waiting = self.begun.wait_while(self.lock(), |waiting| waiting.lines.is_empty());
            drop(waiting.unwrap_or_else(PoisonError::into_inner));
            thread::sleep(self.delay);
            self.flush();
        }
    }
}

impl<W: Write> WaitingLines<W> {
    fn write(&mut self) -> io::Result<()> {
        let written = self.sink.write_all(&self.lines);
        self.lines.clear();
        written
    }
}

impl<W: Write + Send> MakeWriter<'_> for &'static Batch<W> {
    type Writer = LineWriter<W>;

    fn make_writer(&self) -> Self::Writer {
        LineWriter { batch: self, waits: false }
    }

    fn make_writer_for(&self, line: &Metadata<'_>) -> Self::Writer {
        LineWriter { batch: self, waits: line.target() == ACCESS_TARGET && *line.level() == Level::INFO }
    }
}

impl<W: Write + Send> Write for LineWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.batch.add(line, self.waits)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Stderr::write(&mut io::stderr(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
