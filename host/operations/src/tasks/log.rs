//! The log of one live task: its events in order, for any number of readers.
//!
//! The log is append-only and a reader is an index, so even a slow reader gets every event exactly once. Each event is encoded
//! at most once.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use annex_protocol::{A2aError, StreamResponse};
use tokio::sync::Notify;

use crate::fault;
use crate::tasks::backlog::{Backlog, Read};
use crate::tasks::long_work::LongWork;
use crate::tasks::shown::HiddenMetadata;

/// One stored event.
pub struct LoggedEvent {
    event: Arc<StreamResponse>,
    /// The number of the event. 0 for an item that is not an event of a task.
    seq: u64,
    encoded: OnceLock<Arc<str>>,
}

impl LoggedEvent {
    /// An event with its number within the task, or 0.
    pub(crate) fn new(event: Arc<StreamResponse>, seq: u64) -> Self {
        Self { event, seq, encoded: OnceLock::new() }
    }

    /// The number of the event within its task. A reader that resumes after this number misses no event and gets no event
    /// twice. `None` for an item that is not an event of a task.
    pub fn seq(&self) -> Option<u64> {
        Some(self.seq).filter(|seq| *seq > 0)
    }

    /// The event as a StreamResponse in one line of JSON.
    pub fn json(&self) -> &Arc<str> {
        // The data model only has string keys, so encoding cannot fail.
        self.encoded.get_or_init(|| serde_json::to_string(self.event.as_ref()).unwrap_or_default().into())
    }

    pub fn event(&self) -> &StreamResponse {
        &self.event
    }

    /// The event without the metadata that its reader does not see. It is encoded once more for this reader.
    async fn without(self: Arc<Self>, hidden: &HiddenMetadata) -> Arc<Self> {
        if !hidden.is_in(&self.event) {
            return self;
        }
        let long = LongWork::begin(self.json().len()).await;
        let mut event = StreamResponse::clone(&self.event);
        hidden.leave_out(&mut event);
        let shown = Self::new(Arc::new(event), self.seq);
        if long.is_some() {
            // Encoded here, because the stream reads the event without the permit.
            shown.json();
        }
        Arc::new(shown)
    }

    /// True if the event interrupts the task.
    pub(crate) fn interrupts(&self) -> bool {
        matches!(self.event(), StreamResponse::StatusUpdate(update) if update.status.state.is_interrupted())
    }
}

/// The log of one live task.
#[derive(Default)]
pub(crate) struct TaskLog {
    written: Mutex<Written>,
    /// Wakes readers after an append and at the end.
    progress: Notify,
}

#[derive(Default)]
struct Written {
    events: Vec<Arc<LoggedEvent>>,
    end: Option<LogEnd>,
}

/// The reason why the log has ended.
#[derive(Clone)]
enum LogEnd {
    /// The task has reached a final state.
    Finished,
    /// Readers cannot get further events, because of this error.
    Broken(A2aError),
}

impl TaskLog {
    /// Appends events with their numbers.
    pub(crate) fn append(&self, added: impl IntoIterator<Item = (u64, Arc<StreamResponse>)>) {
        let logged = |(seq, event)| Arc::new(LoggedEvent::new(event, seq));
        self.written().events.extend(added.into_iter().map(logged));
        self.progress.notify_waiters();
    }

    /// Ends the log of a finished task.
    pub(crate) fn close(&self) {
        self.end(LogEnd::Finished);
    }

    /// Ends the log of a task that is not finished. Readers get the error.
    pub(crate) fn break_off(&self, error: A2aError) {
        self.end(LogEnd::Broken(error));
    }

    fn end(&self, end: LogEnd) {
        self.written().end = Some(end);
        self.progress.notify_waiters();
    }

    /// A reader of the events that are appended from now on.
    pub(crate) fn tail(self: &Arc<Self>) -> LogReader {
        let next = self.written().events.len();
        LogReader { log: Arc::clone(self), next, backlog: None, failed: None, hidden: HiddenMetadata::default() }
    }

    /// True if the log has readers. Each reader holds a reference to the log. Must be called under the lock of the
    /// record, which holds one more reference.
    pub(crate) fn has_readers(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the events of a log in order, from a position in the log.
#[derive(Clone)]
pub(crate) struct LogReader {
    log: Arc<TaskLog>,
    next: usize,
    /// Stored events, which the reader returns before the events of the log.
    backlog: Option<Box<Backlog>>,
    failed: Option<Box<A2aError>>,
    /// The metadata that the events do not have for this reader.
    hidden: HiddenMetadata,
}

impl LogReader {
    /// A reader of stored events only.
    pub(crate) fn of_stored(backlog: Backlog) -> Self {
        Self::of_nothing().behind(backlog)
    }

    fn of_nothing() -> Self {
        let log = Arc::new(TaskLog::default());
        log.close();
        log.tail()
    }

    /// Adds stored events, which the reader returns before the events of the log.
    pub(crate) fn behind(self, backlog: Backlog) -> Self {
        Self { backlog: Some(Box::new(backlog)), ..self }
    }

    /// Makes the reader return events without this metadata.
    pub(crate) fn hiding(self, hidden: HiddenMetadata) -> Self {
        Self { hidden, ..self }
    }

    /// The error that ended the log, if there was one.
    pub(crate) fn broken(&self) -> Option<A2aError> {
        if let Some(failed) = &self.failed {
            return Some(A2aError::clone(failed));
        }
        match &self.log.written().end {
            Some(LogEnd::Broken(error)) => Some(error.clone()),
            Some(LogEnd::Finished) | None => None,
        }
    }

    /// True if the reader has unread events, so that [`next`](Self::next) returns without waiting for the task. There is one
    /// exception: if the only unread entry is a message of the client in the backlog, `next` skips it and may wait.
    pub(crate) fn has_next(&self) -> bool {
        let is_stored = self.backlog.as_ref().is_some_and(|backlog| backlog.has_next());
        self.failed.is_none() && (is_stored || self.next < self.log.written().events.len())
    }

    /// The next event. `None` at the end of the log.
    pub(crate) async fn next(&mut self) -> Option<Arc<LoggedEvent>> {
        let event = self.read().await?;
        Some(if self.hidden.is_empty() { event } else { event.without(&self.hidden).await })
    }

    async fn read(&mut self) -> Option<Arc<LoggedEvent>> {
        if self.failed.is_some() {
            return None;
        }
        if let Some(backlog) = &mut self.backlog {
            match backlog.next().await {
                Ok(Read::Event(event)) => return Some(event),
                Ok(Read::Whole(task)) => {
                    // The task contains all events of the log.
                    *self = Self::of_nothing().hiding(self.hidden.clone());
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
            // The future is created before the check, so that no notification is missed.
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
