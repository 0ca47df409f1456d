//! The log of the server while a case runs.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::{Mutex, Once};

/// Lines that the cases look for: faults with their ids, and what hostile extensions write themselves.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    /// All lines of a test that has one thread, whose runtime has no other.
    static OF_THREAD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Begins to listen, once for all tests of the process.
pub(crate) fn listen() {
    static SUBSCRIBER: Once = Once::new();
    SUBSCRIBER.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_target(false).without_time();
        let subscriber = subscriber.with_writer(|| Lines).finish();
        tracing::subscriber::set_global_default(subscriber).expect("the only subscriber");
    });
}

/// The lines of this thread since this was last asked.
pub(crate) fn of_thread() -> Vec<String> {
    OF_THREAD.take()
}

/// The log line of the fault with this id, without the id. The guest's lines about the fault come earlier and have the
/// id too. The line of the request comes later.
pub(super) fn of_fault(id: &str) -> String {
    let lines = LINES.lock().expect("no panic");
    let is_fault = |line: &&String| line.contains(id) && !line.contains("INFO request ");
    let line = lines.iter().rev().find(is_fault).cloned().unwrap_or_default();
    let line = line.trim().trim_start_matches("ERROR ");
    line.replace(&format!("error_id={id}"), "").trim().to_owned()
}

/// The number of lines that have all of these texts.
pub(super) fn count(texts: &[&str]) -> usize {
    let lines = LINES.lock().expect("no panic");
    lines.iter().filter(|line| texts.iter().all(|text| line.contains(text))).count()
}

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        OF_THREAD.with_borrow_mut(|lines| lines.push(text.trim().to_owned()));
        if text.contains("error_id") || text.contains("/hostile/") {
            LINES.lock().expect("no panic").push(text.into_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
