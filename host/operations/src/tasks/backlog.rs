//! Events of a task that were stored before somebody began to read it.

use std::collections::VecDeque;
use std::sync::Arc;

use annex_protocol::{Owner, StreamResponse, TaskId};
use annex_tasks::{StoreError, TaskEvent, TaskStore};

use crate::tasks::log::LoggedEvent;
use crate::tasks::long_work::LongWork;

/// Events that are read from the store at once: few, because each stream holds its own until its client has read them.
const BATCH: u64 = 8;
/// The most bytes of their JSON, unless one alone has more.
const BATCH_BYTES: usize = 256 << 10;

/// The stored events of a task from one number to another, read as they are wanted.
#[derive(Clone)]
pub(crate) struct Backlog {
    store: Arc<dyn TaskStore>,
    owner: Owner,
    task: TaskId,
    /// The number of the last event that was read.
    after: u64,
    last: u64,
    read: VecDeque<Arc<LoggedEvent>>,
}

/// What is read of a backlog.
pub(crate) enum Read {
    Event(Arc<LoggedEvent>),
    /// The task with all that it will ever have, in place of events that are not kept: a store in memory keeps those of
    /// finished tasks no longer.
    Whole(Arc<LoggedEvent>),
    /// There is no more.
    End,
}

impl Backlog {
    /// The events of a task of this owner behind number `after`, up to number `last`.
    pub(crate) fn new(store: &Arc<dyn TaskStore>, (owner, task): (&Owner, &TaskId), (after, last): (u64, u64)) -> Self {
        let (store, owner, task) = (Arc::clone(store), owner.clone(), task.clone());
        Self { store, owner, task, after, last, read: VecDeque::new() }
    }

    /// True if more is stored that was not read.
    pub(crate) fn has_next(&self) -> bool {
        !self.read.is_empty() || self.after < self.last
    }

    /// The next one. Giving up the wait loses none.
    pub(crate) async fn next(&mut self) -> Result<Read, StoreError> {
        while self.read.is_empty() && self.after < self.last {
            let count = usize::try_from(BATCH.min(self.last - self.after)).unwrap_or(usize::MAX);
            let stored = self.store.events_within(&self.task, self.after, (count, BATCH_BYTES)).await?;
            let Some(newest) = stored.last() else { return self.whole().await };
            let newest = newest.seq;
            for event in stored {
                let unreadable = |source| StoreError::Unreadable { task: self.task.clone(), source };
                // A message of the client is no event of a stream.
                if let TaskEvent::Stream(content) = event.decode().map_err(unreadable)? {
                    self.read.push_back(Arc::new(LoggedEvent::new(content, event.seq)));
                }
            }
            self.after = newest;
        }
        Ok(self.read.pop_front().map_or(Read::End, Read::Event))
    }

    /// The task as it ended, or nothing where it was deleted meanwhile.
    async fn whole(&self) -> Result<Read, StoreError> {
        let Some(stored) = self.store.load(&self.owner, &self.task).await? else { return Ok(Read::End) };
        let long = LongWork::begin(stored.bytes()).await;
        let task = stored.decode()?.into_task();
        if !task.status.state.is_terminal() {
            return Ok(Read::End);
        }
        let whole = LoggedEvent::new(Arc::new(StreamResponse::Task(task)), stored.seq);
        if long.is_some() {
            // Encoded now, as the stream is read without the permit.
            whole.json();
        }
        Ok(Read::Whole(Arc::new(whole)))
    }
}
