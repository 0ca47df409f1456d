//! The events of one live task, in order, for any number of readers.
//!
//! Append-only: a reader is an index, so that every reader sees the same events, none twice and none left out, however
//! slow it is. Each event is encoded at most once.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use annex_protocol::{A2aError, StreamResponse};
use tokio::sync::Notify;

use crate::fault;
use crate::tasks::backlog::{Backlog, Read};

/// One event as it was stored.
pub struct LoggedEvent {
    event: Arc<StreamResponse>,
    /// 0 for what is no event of a task.
    seq: u64,
    encoded: OnceLock<Arc<str>>,
}

impl LoggedEvent {
    /// The event with its number among those of its task, or 0.
    pub(crate) fn new(event: Arc<StreamResponse>, seq: u64) -> Self {
        Self { event, seq, encoded: OnceLock::new() }
    }

    /// The number of the event among all of its task: a reader that comes back with it misses none and reads none twice.
    /// `None` for what is no event of a task.
    pub fn seq(&self) -> Option<u64> {
        Some(self.seq).filter(|seq| *seq > 0)
    }

    /// The event as one line of JSON, a StreamResponse.
    pub fn json(&self) -> &Arc<str> {
        // The data model has string keys only, so encoding cannot fail.
        self.encoded.get_or_init(|| serde_json::to_string(self.event.as_ref()).unwrap_or_default().into())
    }

    pub fn event(&self) -> &StreamResponse {
        &self.event
    }

    /// Tells whether the task is interrupted from this event on.
    pub(crate) fn interrupts(&self) -> bool {
        matches!(self.event(), StreamResponse::StatusUpdate(update) if update.status.state.is_interrupted())
    }
}

/// The log of one live task.
#[derive(Default)]
pub(crate) struct TaskLog {
    written: Mutex<Written>,
    /// Wakes readers when more is written, or nothing more will be.
    progress: Notify,
}

#[derive(Default)]
struct Written {
    events: Vec<Arc<LoggedEvent>>,
    end: Option<LogEnd>,
}

/// The reason why nothing more will come.
#[derive(Clone)]
enum LogEnd {
    /// The task has reached a final state.
    Finished,
    /// The events that come cannot be shown.
    Broken(A2aError),
}

impl TaskLog {
    /// Events with their numbers.
    pub(crate) fn append(&self, added: impl IntoIterator<Item = (u64, Arc<StreamResponse>)>) {
        let logged = |(seq, event)| Arc::new(LoggedEvent::new(event, seq));
        self.written().events.extend(added.into_iter().map(logged));
        self.progress.notify_waiters();
    }

    /// Nothing more will come: the task has reached a final state.
    pub(crate) fn close(&self) {
        self.end(LogEnd::Finished);
    }

    /// Nothing more will come although the task has not reached a final state. Readers are told why.
    pub(crate) fn break_off(&self, error: A2aError) {
        self.end(LogEnd::Broken(error));
    }

    fn end(&self, end: LogEnd) {
        self.written().end = Some(end);
        self.progress.notify_waiters();
    }

    /// A reader of what is appended from now on.
    pub(crate) fn tail(self: &Arc<Self>) -> LogReader {
        LogReader { log: Arc::clone(self), next: self.written().events.len(), backlog: None, failed: None }
    }

    /// Tells whether somebody reads. Whoever has the log besides its record is a reader. To be asked under the record's
    /// lock.
    pub(crate) fn has_readers(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a log from one place on.
#[derive(Clone)]
pub(crate) struct LogReader {
    log: Arc<TaskLog>,
    next: usize,
    /// The stored events that are read first.
    backlog: Option<Box<Backlog>>,
    failed: Option<Box<A2aError>>,
}

impl LogReader {
    /// A reader of stored events and of nothing else.
    pub(crate) fn of_stored(backlog: Backlog) -> Self {
        Self::of_nothing().behind(backlog)
    }

    fn of_nothing() -> Self {
        let log = Arc::new(TaskLog::default());
        log.close();
        log.tail()
    }

    /// The same reader behind stored events.
    pub(crate) fn behind(self, backlog: Backlog) -> Self {
        Self { backlog: Some(Box::new(backlog)), ..self }
    }

    /// The reason why the log broke off, if it did.
    pub(crate) fn broken(&self) -> Option<A2aError> {
        if let Some(failed) = &self.failed {
            return Some(A2aError::clone(failed));
        }
        match &self.log.written().end {
            Some(LogEnd::Broken(error)) => Some(error.clone()),
            Some(LogEnd::Finished) | None => None,
        }
    }

    /// True if an event is there, so that the next one need not be waited for. Messages of the client that are stored count,
    /// although they are none.
    pub(crate) fn has_next(&self) -> bool {
        let is_stored = self.backlog.as_ref().is_some_and(|backlog| backlog.has_next());
        self.failed.is_none() && (is_stored || self.next < self.log.written().events.len())
    }

    /// The next event; `None` once the log has ended and is read.
    pub(crate) async fn next(&mut self) -> Option<Arc<LoggedEvent>> {
        if self.failed.is_some() {
            return None;
        }
        if let Some(backlog) = &mut self.backlog {
            match backlog.next().await {
                Ok(Read::Event(event)) => return Some(event),
                Ok(Read::Whole(task)) => {
                    // Whatever is in the log is in the task.
                    *self = Self::of_nothing();
                    return Some(task);
                }
                Ok(Read::End) => self.backlog = None,
                Err(error) => {
                    self.failed = Some(Box::new(fault::of_store(error)));
                    return None;
                }
            }
        }
        loop {
            // Made before looking, so that no progress is missed.
            let progress = self.log.progress.notified();
            {
                let written = self.log.written();
                if let Some(event) = written.events.get(self.next) {
                    self.next += 1;
                    return Some(Arc::clone(event));
                }
                if written.end.is_some() {
                    return None;
                }
            }
            progress.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use annex_protocol::{Message, StreamResponse};

    use super::TaskLog;

    #[tokio::test]
    async fn a_reader_gets_what_came_after_it_started_and_then_the_end() {
        let log = Arc::new(TaskLog::default());
        let event = |text| Arc::new(StreamResponse::Message(Message::user_text(text)));
        log.append([(1, event("before"))]);
        let mut reader = log.tail();
        log.append([(2, event("after")), (4, event("last"))]);
        log.close();
        for (seq, text) in [(2, "after"), (4, "last")] {
            let read = reader.next().await.expect("an event");
            assert!(read.seq() == Some(seq) && read.json().contains(text));
        }
        assert!(reader.next().await.is_none());
    }
}
