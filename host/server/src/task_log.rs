//! The events of one live task, in order, for any number of readers.
//!
//! Append-only: a reader is an index, so that every reader sees the same events, none twice and none left out, however
//! slow it is. Each event is encoded at most once.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use annex_protocol::StreamResponse;
use tokio::sync::watch;

/// One event as it was stored.
pub(crate) struct LoggedEvent {
    event: Arc<StreamResponse>,
    encoded: OnceLock<Arc<str>>,
}

impl LoggedEvent {
    pub(crate) fn new(event: Arc<StreamResponse>) -> Self {
        Self { event, encoded: OnceLock::new() }
    }

    /// The event as one line of JSON, a StreamResponse.
    pub(crate) fn json(&self) -> &Arc<str> {
        // The data model has string keys only, so encoding cannot fail.
        self.encoded.get_or_init(|| serde_json::to_string(self.event.as_ref()).unwrap_or_default().into())
    }

    pub(crate) fn event(&self) -> &StreamResponse {
        &self.event
    }

    /// Whether the task now waits for somebody else.
    pub(crate) fn interrupts(&self) -> bool {
        matches!(self.event(), StreamResponse::StatusUpdate(update) if update.status.state.is_interrupted())
    }
}

/// The log of one live task.
pub(crate) struct TaskLog {
    events: Mutex<Vec<Arc<LoggedEvent>>>,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Copy, Default)]
struct Progress {
    written: usize,
    closed: bool,
}

impl TaskLog {
    pub(crate) fn new() -> Self {
        Self { events: Mutex::default(), progress: watch::Sender::default() }
    }

    pub(crate) fn append(&self, added: impl IntoIterator<Item = Arc<StreamResponse>>) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.extend(added.into_iter().map(|event| Arc::new(LoggedEvent::new(event))));
        self.progress.send_modify(|progress| progress.written = events.len());
    }

    /// Nothing more will come: the task has reached a final state, or cannot be stored.
    pub(crate) fn close(&self) {
        self.progress.send_modify(|progress| progress.closed = true);
    }

    /// A reader of what is appended from now on.
    pub(crate) fn tail(self: &Arc<Self>) -> LogReader {
        let progress = self.progress.subscribe();
        let next = progress.borrow().written;
        LogReader { log: Arc::clone(self), progress, next }
    }

    pub(crate) fn has_readers(&self) -> bool {
        self.progress.receiver_count() > 0
    }

    fn get(&self, index: usize) -> Option<Arc<LoggedEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).get(index).cloned()
    }
}

/// Reads a log from one place on.
#[derive(Clone)]
pub(crate) struct LogReader {
    log: Arc<TaskLog>,
    progress: watch::Receiver<Progress>,
    next: usize,
}

impl LogReader {
    /// The next event; `None` once the log is closed and read.
    pub(crate) async fn next(&mut self) -> Option<Arc<LoggedEvent>> {
        let next = self.next;
        let progress = self.progress.wait_for(|progress| progress.written > next || progress.closed).await.ok()?;
        let written = progress.written;
        drop(progress);
        if written <= self.next {
            return None;
        }
        self.next += 1;
        self.log.get(self.next - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use annex_protocol::{Message, StreamResponse};

    use super::TaskLog;

    #[tokio::test]
    async fn a_reader_gets_what_came_after_it_started_and_then_the_end() {
        let log = Arc::new(TaskLog::new());
        let event = |text| Arc::new(StreamResponse::Message(Message::user_text(text)));
        log.append([event("before")]);
        let mut reader = log.tail();
        log.append([event("after"), event("last")]);
        log.close();
        for text in ["after", "last"] {
            assert!(reader.next().await.expect("an event").json().contains(text));
        }
        assert!(reader.next().await.is_none());
    }
}
