//! Reads the stored events of a task that are older than a reader of the task.

use std::collections::VecDeque;
use std::sync::Arc;

use annex_conversation::{ConversationStore, Entry, StoreError};
use annex_protocol::{StreamResponse, TaskId};

use crate::tasks::log::LoggedEvent;
use crate::tasks::long_work::LongWork;

/// The number of events that one query reads from the store. The number is small, because each stream keeps these
/// events in memory until its client has read them.
const BATCH: u64 = 8;
/// The maximum number of bytes of JSON that one query reads. A larger event is read alone.
const BATCH_BYTES: usize = 256 << 10;

/// A range of a task's stored events, which are read when they are needed.
#[derive(Clone)]
pub(crate) struct Backlog {
    store: Arc<dyn ConversationStore>,
    task: TaskId,
    /// The number of the entry that was read last.
    after: u64,
    last: u64,
    read: VecDeque<Arc<LoggedEvent>>,
}

/// One item of a backlog.
pub(crate) enum Read {
    Event(Arc<LoggedEvent>),
    /// The final task, in place of events that were not kept: the store in memory drops the events of finished tasks.
    Whole(Arc<LoggedEvent>),
    /// The end of the backlog.
    End,
}

impl Backlog {
    /// The events of a task with numbers above `after`, up to `last`.
    pub(crate) fn new(store: &Arc<dyn ConversationStore>, task: &TaskId, (after, last): (u64, u64)) -> Self {
        Self { store: Arc::clone(store), task: task.clone(), after, last, read: VecDeque::new() }
    }

    /// True if there are unread events.
    pub(crate) fn has_next(&self) -> bool {
        !self.read.is_empty() || self.after < self.last
    }

    /// The next event. No event is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Read, StoreError> {
        while self.read.is_empty() && self.after < self.last {
            let count = usize::try_from(BATCH.min(self.last - self.after)).unwrap_or(usize::MAX);
            let stored = self.store.entries_after(&self.task, self.after, (count, BATCH_BYTES)).await?;
            let Some(newest) = stored.last() else { return self.whole().await };
            let newest = newest.number;
            for entry in stored {
                let unreadable = |source| StoreError::Unreadable { what: format!("task {}", self.task), source };
                // Other entries are no part of the stream.
                if let Entry::Update(update) = entry.decode().map_err(unreadable)?
                    && entry.number <= self.last
                {
                    self.read.push_back(Arc::new(LoggedEvent::new(update, entry.number)));
                }
            }
            self.after = newest;
        }
        Ok(self.read.pop_front().map_or(Read::End, Read::Event))
    }

    /// The final task. [`Read::End`] if the task was deleted or is not finished.
    async fn whole(&self) -> Result<Read, StoreError> {
        let Some(stored) = self.store.task(&self.task).await? else { return Ok(Read::End) };
        let long = LongWork::begin(stored.bytes()).await;
        let task = stored.decode()?.into_task();
        if !task.status.state.is_terminal() {
            return Ok(Read::End);
        }
        let whole = LoggedEvent::new(Arc::new(StreamResponse::Task(task)), stored.number);
        if long.is_some() {
            // Encoded here, because the stream reads the event without the permit.
            whole.json();
        }
        Ok(Read::Whole(Arc::new(whole)))
    }
}
