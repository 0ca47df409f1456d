//! Events of a task that were stored before somebody began to read it.

use std::collections::VecDeque;
use std::sync::Arc;

use annex_protocol::TaskId;
use annex_tasks::{StoreError, TaskEvent, TaskStore};

use crate::tasks::log::LoggedEvent;

/// Events that are read from the store at once: few, because each stream holds its own until its client has read them.
const BATCH: u64 = 8;
/// The most bytes of their JSON, unless one alone has more.
const BATCH_BYTES: usize = 256 << 10;

/// The stored events of a task from one number to another, read as they are wanted.
#[derive(Clone)]
pub(crate) struct Backlog {
    store: Arc<dyn TaskStore>,
    task: TaskId,
    /// The number of the last event that was read.
    after: u64,
    last: u64,
    read: VecDeque<Arc<LoggedEvent>>,
}

impl Backlog {
    /// The events behind number `after`, up to number `last`.
    pub(crate) fn new(store: &Arc<dyn TaskStore>, task: &TaskId, (after, last): (u64, u64)) -> Self {
        Self { store: Arc::clone(store), task: task.clone(), after, last, read: VecDeque::new() }
    }

    /// The next one; `None` behind the last. Giving up the wait loses none.
    pub(crate) async fn next(&mut self) -> Result<Option<Arc<LoggedEvent>>, StoreError> {
        while self.read.is_empty() && self.after < self.last {
            let count = usize::try_from(BATCH.min(self.last - self.after)).unwrap_or(usize::MAX);
            let stored = self.store.events_within(&self.task, self.after, (count, BATCH_BYTES)).await?;
            // The task was deleted meanwhile.
            let Some(newest) = stored.last() else { break };
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
        Ok(self.read.pop_front())
    }
}
