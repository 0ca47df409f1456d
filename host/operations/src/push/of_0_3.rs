//! What receivers of 0.3 are posted: the whole task as it is now, which is all that 0.3 posts.
//!
//! A task has up to eight megabytes, and its events are many and small. So one post stands for all events that wait to be read.

use annex_protocol::{Owner, StreamResponse, TaskId, v0_3};
use annex_push::Event;
use annex_tasks::TaskStore;

use crate::fault;
use crate::push::{event_of, rests};
use crate::tasks::log::{LogReader, LoggedEvent};
use crate::tasks::long_work::LongWork;

/// Tells at which events of one reader the task is posted.
#[derive(Default)]
pub(super) struct Posts {
    /// True if an event was read of which receivers are to be told, and the task was not posted since.
    is_owed: bool,
}

impl Posts {
    /// Tells whether the task is posted at this event, which was just read: where the task rests, and where no other event can
    /// be read yet.
    pub(super) fn is_due(&mut self, event: &LoggedEvent, reader: &LogReader) -> bool {
        self.is_owed |= is_told(event);
        let is_due = self.is_owed && (rests(event) || !reader.has_next());
        self.is_owed &= !is_due;
        is_due
    }
}

/// Receivers are not told of pieces: a task that is streamed in a thousand pieces is not posted a thousand times.
fn is_told(event: &LoggedEvent) -> bool {
    match event.event() {
        StreamResponse::ArtifactUpdate(update) => update.last_chunk,
        StreamResponse::Task(_) | StreamResponse::Message(_) | StreamResponse::StatusUpdate(_) => true,
    }
}

/// The task as it is now, under the number of the event. `None` when it cannot be read.
pub(super) async fn outgoing_0_3(
    store: &dyn TaskStore,
    (owner, task): (&Owner, &TaskId),
    event: &LoggedEvent,
) -> Option<Event> {
    // The store has the task with this event, and perhaps with later ones.
    let loaded = store.load(owner, task).await;
    let stored = loaded.inspect_err(|error| fault::log(error)).ok()??;
    let _long = LongWork::begin(stored.bytes()).await;
    let decoded = stored.decode().inspect_err(|error| fault::log(error)).ok()?;
    let json = serde_json::to_string(&v0_3::Task::from(&decoded.into_task())).ok()?;
    Some(event_of(task, event, json.into()).of_0_3())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use annex_protocol::{StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent};

    use super::Posts;
    use crate::tasks::log::TaskLog;

    fn status(state: TaskState) -> Arc<StreamResponse> {
        let status = TaskStatus { state, message: None, timestamp: None };
        Arc::new(StreamResponse::StatusUpdate(TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() }))
    }

    fn piece() -> Arc<StreamResponse> {
        Arc::new(StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent::default()))
    }

    /// The numbers of the events at which the task is posted, when all of them wait to be read.
    async fn posted(events: Vec<Arc<StreamResponse>>) -> Vec<u64> {
        let log = Arc::new(TaskLog::default());
        let mut reader = log.tail();
        log.append((1..).zip(events));
        log.close();
        let mut posts = Posts::default();
        let mut posted = Vec::new();
        while let Some(event) = reader.next().await {
            if posts.is_due(&event, &reader) {
                posted.extend(event.seq());
            }
        }
        posted
    }

    #[tokio::test]
    async fn events_of_0_3_that_wait_together_are_one_post_and_each_rest_of_the_task_is_another() {
        let many = vec![status(TaskState::Working); 1_000];
        assert_eq!(posted(many).await, [1_000]);
        let rests = [TaskState::Working, TaskState::InputRequired, TaskState::Working, TaskState::Completed];
        assert_eq!(posted(rests.map(status).into()).await, [2, 4]);
        assert!(posted(vec![piece(), piece()]).await.is_empty());
        assert_eq!(
            posted(vec![status(TaskState::Working), piece()]).await,
            [2],
            "the state that a piece hid is posted"
        );
    }
}
