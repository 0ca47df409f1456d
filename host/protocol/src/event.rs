//! A server's answers to a message, whole or as a stream of events (specification sections 4.2 and 3.2.3).

use crate::proto_json::{message, one_of};
use crate::{Artifact, ContextId, Message, Metadata, Task, TaskId, TaskStatus};

message! {
    /// A task has changed its status.
    pub struct TaskStatusUpdateEvent {
        /// The id of the task that changed.
        pub task_id: TaskId => "taskId" required,
        /// The conversation of the task.
        pub context_id: ContextId => "contextId" required,
        /// The new status.
        pub status: TaskStatus => "status" required,
        /// Free-form metadata of the event.
        pub metadata: Metadata => "metadata",
    }

    /// A task has a new artifact or a new piece of one.
    pub struct TaskArtifactUpdateEvent {
        /// The id of the task that made the artifact.
        pub task_id: TaskId => "taskId" required,
        /// The conversation of the task.
        pub context_id: ContextId => "contextId" required,
        /// The artifact, or the new piece.
        pub artifact: Artifact => "artifact" required,
        /// True if the parts are added to the parts that were sent before under the same artifact id.
        pub append: bool => "append",
        /// True if no more pieces of the artifact follow.
        pub last_chunk: bool => "lastChunk",
        /// Free-form metadata of the event.
        pub metadata: Metadata => "metadata",
    }
}

one_of! {
    /// The answer to SendMessage.
    pub enum SendMessageResponse {
        /// The task that the message began or continued.
        Task(Task) => "task",
        /// A direct answer, without a task.
        Message(Message) => "message",
    }

    /// One event of a stream, and the body of a push notification.
    ///
    /// ```
    /// use annex_protocol::{StreamResponse, Task};
    ///
    /// let event = StreamResponse::Task(Task { id: "t-1".into(), ..Task::default() });
    /// let json = r#"{"task":{"id":"t-1","status":{"state":"TASK_STATE_UNSPECIFIED"}}}"#;
    /// assert_eq!(serde_json::to_string(&event)?, json);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub enum StreamResponse {
        /// The current state of the whole task.
        Task(Task) => "task",
        /// A direct answer, without a task.
        Message(Message) => "message",
        /// A change of the status.
        StatusUpdate(TaskStatusUpdateEvent) => "statusUpdate",
        /// A new artifact or a new piece of one.
        ArtifactUpdate(TaskArtifactUpdateEvent) => "artifactUpdate",
    }
}

/// An answer to SendMessage can be the first event of a stream too.
impl From<SendMessageResponse> for StreamResponse {
    fn from(response: SendMessageResponse) -> Self {
        match response {
            SendMessageResponse::Task(task) => Self::Task(task),
            SendMessageResponse::Message(message) => Self::Message(message),
        }
    }
}
