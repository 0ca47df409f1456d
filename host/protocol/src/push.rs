//! Push notification configs and the operations on them (specification sections 3.1.7 to 3.1.10 and 4.3).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::TaskId;
use crate::proto_json::{FieldValue, message};

/// A credential. Its `Debug` form hides it, so that it does not end up in a log with the request around it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes the credential as it is.
    pub fn new(credential: impl Into<String>) -> Self {
        Self(credential.into())
    }

    /// The credential itself, to be sent and nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A fixed text, which tells not even the length of the credential.
        formatter.write_str("Secret(hidden)")
    }
}

impl FieldValue for Secret {
    const EMPTY_IS_ABSENT: bool = true;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }

    fn is_default(&self) -> bool {
        self.0.is_empty()
    }
}

impl TaskPushNotificationConfig {
    /// The config with the fields of A2A 1.0 alone, as its clients may send and see it.
    #[must_use]
    pub fn of_client(self) -> Self {
        Self { receiver_is_v0_3: false, ..self }
    }
}

message! {
    /// The receiver of one task's updates, and the credentials for it. Also the request and the answer of
    /// CreateTaskPushNotificationConfig.
    pub struct TaskPushNotificationConfig {
        /// Routes the request; copied from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// Names the config within its task; the server makes one up when it is absent.
        pub id: Option<String> => "id",
        /// The task; absent inside SendMessage.
        pub task_id: Option<TaskId> => "taskId",
        /// The URL that the updates are posted to.
        pub url: String => "url" required,
        /// Lets the receiver recognise the sender.
        pub token: Option<Secret> => "token",
        /// The `Authorization` header that the receiver wants.
        pub authentication: Option<AuthenticationInfo> => "authentication",
        /// True if a client of 0.3 has registered the receiver, which then wants what 0.3 sends. It is stored with the config,
        /// taken from no client and shown to none: [`Self::of_client`].
        pub receiver_is_v0_3: bool => "annexReceiverIsV03",
    }

    /// The content of the `Authorization` header of a push notification.
    pub struct AuthenticationInfo {
        /// An HTTP authentication scheme such as `Bearer`; compared without regard to case.
        pub scheme: String => "scheme" required,
        /// The credentials in the form that the scheme wants.
        pub credentials: Option<Secret> => "credentials",
    }

    /// GetTaskPushNotificationConfig.
    pub struct GetTaskPushNotificationConfigRequest {
        /// Routes the request; copied from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// The task.
        pub task_id: TaskId => "taskId" required,
        /// The config.
        pub id: String => "id" required,
    }

    /// ListTaskPushNotificationConfigs.
    pub struct ListTaskPushNotificationConfigsRequest {
        /// Routes the request; copied from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// The task.
        pub task_id: TaskId => "taskId" required,
        /// At most so many configs; 0: the server's choice.
        pub page_size: i32 => "pageSize",
        /// The token of this page, from the previous answer.
        pub page_token: Option<String> => "pageToken",
    }

    /// The answer to ListTaskPushNotificationConfigs.
    pub struct ListTaskPushNotificationConfigsResponse {
        /// The configs.
        pub configs: Vec<TaskPushNotificationConfig> => "configs",
        /// The token of the next page; absent on the last page.
        pub next_page_token: Option<String> => "nextPageToken",
    }

    /// DeleteTaskPushNotificationConfig.
    pub struct DeleteTaskPushNotificationConfigRequest {
        /// Routes the request; copied from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// The task.
        pub task_id: TaskId => "taskId" required,
        /// The config.
        pub id: String => "id" required,
    }
}
