//! The JSON-RPC methods of 0.3 (A2A 0.3 section 7). No method of 1.0 has the same name, so the name decides the version
//! of a request.

use crate::method;

/// A JSON-RPC method of 0.3. Each variant has the name of its operation in 1.0. 0.3 has no ListTasks.
///
/// ```
/// use annex_protocol::v0_3::Method;
///
/// assert_eq!(Method::from_name("message/send"), Some(Method::SendMessage));
/// assert_eq!(Method::from_name("SendMessage"), None);
/// assert_eq!(Method::SendMessage.of_1_0(), annex_protocol::Method::SendMessage);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `message/send`
    SendMessage,
    /// `message/stream`
    SendStreamingMessage,
    /// `tasks/get`
    GetTask,
    /// `tasks/cancel`
    CancelTask,
    /// `tasks/resubscribe`
    SubscribeToTask,
    /// `tasks/pushNotificationConfig/set`
    CreateTaskPushNotificationConfig,
    /// `tasks/pushNotificationConfig/get`
    GetTaskPushNotificationConfig,
    /// `tasks/pushNotificationConfig/list`
    ListTaskPushNotificationConfigs,
    /// `tasks/pushNotificationConfig/delete`
    DeleteTaskPushNotificationConfig,
    /// `agent/getAuthenticatedExtendedCard`
    GetExtendedAgentCard,
}

impl Method {
    /// All methods.
    pub const ALL: &'static [Self] = &[
        Self::SendMessage,
        Self::SendStreamingMessage,
        Self::GetTask,
        Self::CancelTask,
        Self::SubscribeToTask,
        Self::CreateTaskPushNotificationConfig,
        Self::GetTaskPushNotificationConfig,
        Self::ListTaskPushNotificationConfigs,
        Self::DeleteTaskPushNotificationConfig,
        Self::GetExtendedAgentCard,
    ];

    /// The method with exactly this name; `None` if 0.3 has no such name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.name() == name)
    }

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::SendMessage => "message/send",
            Self::SendStreamingMessage => "message/stream",
            Self::GetTask => "tasks/get",
            Self::CancelTask => "tasks/cancel",
            Self::SubscribeToTask => "tasks/resubscribe",
            Self::CreateTaskPushNotificationConfig => "tasks/pushNotificationConfig/set",
            Self::GetTaskPushNotificationConfig => "tasks/pushNotificationConfig/get",
            Self::ListTaskPushNotificationConfigs => "tasks/pushNotificationConfig/list",
            Self::DeleteTaskPushNotificationConfig => "tasks/pushNotificationConfig/delete",
            Self::GetExtendedAgentCard => "agent/getAuthenticatedExtendedCard",
        }
    }

    /// Tells whether the method's answer is a stream of events.
    pub fn streams(self) -> bool {
        matches!(self, Self::SendStreamingMessage | Self::SubscribeToTask)
    }

    /// The method of 1.0 for the same operation.
    pub fn of_1_0(self) -> method::Method {
        match self {
            Self::SendMessage => method::Method::SendMessage,
            Self::SendStreamingMessage => method::Method::SendStreamingMessage,
            Self::GetTask => method::Method::GetTask,
            Self::CancelTask => method::Method::CancelTask,
            Self::SubscribeToTask => method::Method::SubscribeToTask,
            Self::CreateTaskPushNotificationConfig => method::Method::CreateTaskPushNotificationConfig,
            Self::GetTaskPushNotificationConfig => method::Method::GetTaskPushNotificationConfig,
            Self::ListTaskPushNotificationConfigs => method::Method::ListTaskPushNotificationConfigs,
            Self::DeleteTaskPushNotificationConfig => method::Method::DeleteTaskPushNotificationConfig,
            Self::GetExtendedAgentCard => method::Method::GetExtendedAgentCard,
        }
    }
}
