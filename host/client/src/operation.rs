//! The operations that a client can ask an agent for.

use std::fmt;

/// An operation of A2A (specification section 3.1), or a method that an extension defines.
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
    /// Follows a task that somebody has begun.
    SubscribeToTask,
    /// Asks for push notifications about a task.
    CreateTaskPushNotificationConfig,
    /// Reads one push notification config.
    GetTaskPushNotificationConfig,
    /// Reads the push notification configs of a task.
    ListTaskPushNotificationConfigs,
    /// Ends push notifications.
    DeleteTaskPushNotificationConfig,
    /// Reads the card for authenticated callers.
    GetExtendedAgentCard,
    /// A method that an extension defines.
    Method(ExtensionMethod),
}

/// A method that an extension defines.
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
