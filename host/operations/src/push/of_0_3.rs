//! Notifications for receivers of 0.3. Each notification contains the whole current task, because 0.3 defines no other
//! kind.
//!
//! A task has up to eight megabytes and may have many small events. Therefore one notification stands for all events
//! that are ready to be read.

use annex_conversation::ConversationStore;
use annex_protocol::{StreamResponse, TaskId, v0_3};
use annex_push::Event;

use crate::fault;
use crate::push::{event_of, rests};
use crate::tasks::log::{LogReader, LoggedEvent};
use crate::tasks::long_work::LongWork;

/// Decides after which events of one reader the task is sent.
#[derive(Default)]
pub(super) struct Posts {
    /// True if an event since the last notification requires a notification.
    is_owed: bool,
}

impl Posts {
    /// True if the task is sent now, after this event was read. Two conditions must hold: an event since the last
    /// notification required one, and this event ends or interrupts the task or no further event is ready.
    pub(super) fn is_due(&mut self, event: &LoggedEvent, reader: &LogReader) -> bool {
        self.is_owed |= is_told(event);
        let is_due = self.is_owed && (rests(event) || !reader.has_next());
        self.is_owed &= !is_due;
        is_due
    }
}

/// True if the event requires a notification. A chunk of an artifact requires no notification, so a task that streams a
/// thousand chunks is not sent a thousand times.
fn is_told(event: &LoggedEvent) -> bool {
    match event.event() {
        StreamResponse::ArtifactUpdate(update) => update.last_chunk,
        StreamResponse::Task(_) | StreamResponse::Message(_) | StreamResponse::StatusUpdate(_) => true,
    }
}

/// The current task as a notification with the number of the event. `None` if the task cannot be read.
pub(super) async fn outgoing_0_3(store: &dyn ConversationStore, task: &TaskId, event: &LoggedEvent) -> Option<Event> {
    // The stored task includes this event, and perhaps later ones.
    let loaded = store.task(task).await;
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

    /// The numbers of the events after which the task is sent, if all events are ready at once.
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
