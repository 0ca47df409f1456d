//! A line on the terminal that names a slow operation, and how long this operation has run so far. If standard error is
//! not a terminal, no line is written.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use annex_runtime::compilations;

/// The time between two updates of the line.
const INTERVAL: Duration = Duration::from_millis(100);
/// An operation that ends within this time gets no line.
const PATIENCE: Duration = Duration::from_millis(500);
/// The maximum size of a name in the line, in bytes.
const MAX_NAME: usize = 40;

/// Moves to the first column and erases the line.
const CLEAR: &[u8] = b"\r\x1b[2K";

/// True while a line is on the terminal.
static SHOWN: Mutex<bool> = Mutex::new(false);

/// A line on the terminal that tells which operation is running. Dropping this value
/// erases the line.
pub(crate) struct Progress(Option<(Arc<AtomicBool>, JoinHandle<()>)>);

/// Shows that the operation `what` is running.
pub(crate) fn of(what: &str) -> Progress {
    let what = what.to_owned();
    let since = Instant::now();
    Progress::start(move || Some((what.clone(), since.elapsed())))
}

/// Shows a line whenever a component is being compiled. The line names the component.
pub(crate) fn of_compiling() -> Progress {
    Progress::start(|| {
        let first = compilations().into_iter().next()?;
        let name = if first.name.is_empty() { "the component" } else { &*first.name };
        Some((format!("compiling {}", annex_text::line_within(name, MAX_NAME)), first.since.elapsed()))
    })
}

/// Erases the line. The line does not come back until the returned guard is dropped. Callers hold the guard while they
/// write.
pub(crate) fn pause() -> MutexGuard<'static, bool> {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *shown) {
        let _ = io::stderr().write_all(CLEAR);
    }
    shown
}

impl Progress {
    /// Starts a thread that shows the line. `what` returns the text of the line, and how long the operation has run. If
    /// it returns `None`, no line is shown.
    fn start(what: impl Fn() -> Option<(String, Duration)> + Send + 'static) -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ended);
        // A thread of its own, because the workers may be busy with the work whose progress is shown.
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                show(what());
                thread::park_timeout(INTERVAL);
            }
        });
        Self(Some((ended, thread)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let Some((ended, thread)) = self.0.take() else { return };
        ended.store(true, Ordering::Relaxed);
        thread.thread().unpark();
        // It only writes a line, so that this does not take long.
        let _ = thread.join();
        drop(pause());
    }
}

fn show(what: Option<(String, Duration)>) {
    let mut shown = pause();
    let Some((what, took)) = what.filter(|(_, took)| *took >= PATIENCE) else { return };
    // The last sign goes back to the first column, so that a tool which writes meanwhile writes over this line.
    let line = format!("{what}, {} s\r", took.as_secs());
    *shown = io::stderr().write_all(line.as_bytes()).is_ok();
}
