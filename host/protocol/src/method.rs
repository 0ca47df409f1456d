//! The operations of A2A 1.0 by their names.

/// An operation of A2A 1.0, by the name that JSON-RPC and gRPC call it by (A2A 1.0 section 5.3).
///
/// ```
/// use annex_protocol::Method;
///
/// assert_eq!(Method::from_name("GetTask"), Some(Method::GetTask));
/// assert_eq!(Method::GetTask.name(), "GetTask");
/// assert_eq!(Method::from_name("tasks/get"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Sends a message to the agent, and waits for the answer (section 3.1.1).
    SendMessage,
    /// Sends a message to the agent, and streams the events of the answer (section 3.1.2).
    SendStreamingMessage,
    /// Reads a task (section 3.1.3).
    GetTask,
    /// Lists the tasks of the caller (section 3.1.4).
    ListTasks,
    /// Cancels a task (section 3.1.5).
    CancelTask,
    /// Streams the events of an existing task (section 3.1.6).
    SubscribeToTask,
    /// Registers a receiver of push notifications for a task (section 3.1.7).
    CreateTaskPushNotificationConfig,
    /// Reads one push notification config of a task (section 3.1.8).
    GetTaskPushNotificationConfig,
    /// Lists the push notification configs of a task (section 3.1.9).
    ListTaskPushNotificationConfigs,
    /// Deletes a push notification config of a task (section 3.1.10).
    DeleteTaskPushNotificationConfig,
    /// Reads the card for authenticated callers (section 3.1.11).
    GetExtendedAgentCard,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 11] = [
        Self::SendMessage,
        Self::SendStreamingMessage,
        Self::GetTask,
        Self::ListTasks,
        Self::CancelTask,
        Self::SubscribeToTask,
        Self::CreateTaskPushNotificationConfig,
        Self::GetTaskPushNotificationConfig,
        Self::ListTaskPushNotificationConfigs,
        Self::DeleteTaskPushNotificationConfig,
        Self::GetExtendedAgentCard,
    ];

    /// The method with exactly this name; `None` if 1.0 has no such method.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// The name on the wire.
    pub fn name(self) -> &'static str {
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
        }
    }
}
