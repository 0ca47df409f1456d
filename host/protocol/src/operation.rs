//! Requests and responses of the operations on messages, tasks and cards (specification section 3.1). The module `push` has the
//! requests and responses of the operations on push notifications.

use crate::proto_json::message;
use crate::{ContextId, Message, Metadata, Task, TaskId, TaskPushNotificationConfig, TaskState, Timestamp};

impl SendMessageRequest {
    /// Removes the fields that Annex adds to A2A 1.0. Called on each request of a client, because clients must not set
    /// these fields.
    #[must_use]
    pub fn of_client(mut self) -> Self {
        let config = self.configuration.task_push_notification_config.take();
        self.configuration.task_push_notification_config = config.map(TaskPushNotificationConfig::of_client);
        self
    }
}

message! {
    /// The parameters of SendMessage and SendStreamingMessage.
    pub struct SendMessageRequest {
        /// The tenant that the request goes to. Clients copy it from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// The message for the agent.
        pub message: Message => "message" required,
        /// The client's settings for the answer.
        pub configuration: SendMessageConfiguration => "configuration",
        /// Free-form metadata of the request.
        pub metadata: Metadata => "metadata",
    }

    /// The settings of SendMessage and SendStreamingMessage for the answer.
    pub struct SendMessageConfiguration {
        /// Media types that the client can take in parts.
        pub accepted_output_modes: Vec<String> => "acceptedOutputModes",
        /// The webhook that receives the task's updates.
        pub task_push_notification_config: Option<TaskPushNotificationConfig> => "taskPushNotificationConfig",
        /// The maximum number of messages of history in the answer. Absent: all messages that the server sends by default.
        pub history_length: Option<i32> => "historyLength",
        /// True if the answer is sent as soon as the task exists. False if the answer is sent when the task has ended
        /// or is interrupted.
        pub return_immediately: bool => "returnImmediately",
    }

    /// The parameters of GetTask.
    pub struct GetTaskRequest {
        /// The tenant that the request goes to. Clients copy it from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// The id of the wanted task.
        pub id: TaskId => "id" required,
        /// The maximum number of messages of history in the answer. Absent: all messages that the server sends by default.
        pub history_length: Option<i32> => "historyLength",
    }

    /// The parameters of ListTasks.
    pub struct ListTasksRequest {
        /// The tenant that the request goes to. Clients copy it from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// The conversation of the listed tasks. Absent: tasks of all conversations.
        pub context_id: Option<ContextId> => "contextId",
        /// The state of the listed tasks. Unspecified: tasks in any state.
        pub status: TaskState => "status",
        /// The maximum number of tasks on a page, 1 to 100. Absent: 50.
        pub page_size: Option<i32> => "pageSize",
        /// The token of this page, from the previous answer.
        pub page_token: Option<String> => "pageToken",
        /// The maximum number of messages of history per task. Absent: all messages that the server sends by default.
        pub history_length: Option<i32> => "historyLength",
        /// Lists only tasks whose status has this timestamp or a later one. Absent: tasks with any timestamp.
        pub status_timestamp_after: Option<Timestamp> => "statusTimestampAfter",
        /// True if the answer contains the artifacts of the tasks. Absent counts as false.
        pub include_artifacts: Option<bool> => "includeArtifacts",
    }

    /// The answer to ListTasks.
    pub struct ListTasksResponse {
        /// The tasks. The task whose status changed last comes first.
        pub tasks: Vec<Task> => "tasks" required,
        /// The token of the next page; empty on the last page.
        pub next_page_token: String => "nextPageToken" required,
        /// The page size that was used.
        pub page_size: i32 => "pageSize" required,
        /// The number of matching tasks on all pages.
        pub total_size: i32 => "totalSize" required,
    }

    /// The parameters of CancelTask.
    pub struct CancelTaskRequest {
        /// The tenant that the request goes to. Clients copy it from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// The id of the task to cancel.
        pub id: TaskId => "id" required,
        /// Free-form metadata of the request.
        pub metadata: Metadata => "metadata",
    }

    /// The parameters of SubscribeToTask.
    pub struct SubscribeToTaskRequest {
        /// The tenant that the request goes to. Clients copy it from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// The id of the task to follow.
        pub id: TaskId => "id" required,
    }

    /// The parameters of GetExtendedAgentCard.
    pub struct GetExtendedAgentCardRequest {
        /// The tenant that the request goes to. Clients copy it from the agent's interface.
        pub tenant: Option<String> => "tenant",
    }
}
