//! The operations that a client can call.

use std::fmt;

/// An operation of A2A (specification section 3.1), or a method of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Sends a message and waits for the answer.
    SendMessage,
    /// Sends a message and follows the answer.
    SendStreamingMessage,
    /// Reads a task.
    GetTask,
    /// Reads tasks, page by page.
    ListTasks,
    /// Cancels a task.
    CancelTask,
    /// Follows an existing task.
    SubscribeToTask,
    /// Registers a webhook for a task's updates.
    CreateTaskPushNotificationConfig,
    /// Reads one push notification config.
    GetTaskPushNotificationConfig,
    /// Reads the push notification configs of a task.
    ListTaskPushNotificationConfigs,
    /// Deletes a push notification config.
    DeleteTaskPushNotificationConfig,
    /// Reads the card for authenticated callers.
    GetExtendedAgentCard,
    /// A method of an extension.
    Method(ExtensionMethod),
}

/// A method of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionMethod {
    /// The extension's short name, which is part of the path on HTTP+JSON.
    pub extension: String,
    /// The name of the JSON-RPC method.
    pub name: String,
}

impl Operation {
    /// The name on JSON-RPC and gRPC.
    pub fn name(&self) -> &str {
        match self {
            Self::SendMessage => "SendMessage",
            Self::SendStreamingMessage => "SendStreamingMessage",
            Self::GetTask => "GetTask",
            Self::ListTasks => "ListTasks",
            Self::CancelTask => "CancelTask",
            Self::SubscribeToTask => "SubscribeToTask",
            Self::CreateTaskPushNotificationConfig => "CreateTaskPushNotificationConfig",
            Self::GetTaskPushNotificationConfig => "GetTaskPushNotificationConfig",
            Self::ListTaskPushNotificationConfigs => "ListTaskPushNotificationConfigs",
            Self::DeleteTaskPushNotificationConfig => "DeleteTaskPushNotificationConfig",
            Self::GetExtendedAgentCard => "GetExtendedAgentCard",
            Self::Method(method) => &method.name,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
