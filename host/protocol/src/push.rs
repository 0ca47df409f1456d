//! Push notification configs and their operations (specification sections 3.1.7 to 3.1.10 and 4.3).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::TaskId;
use crate::proto_json::{FieldValue, message};

/// A credential. `Debug` hides the value, so that a logged request does not reveal the credential.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps the credential.
    pub fn new(credential: impl Into<String>) -> Self {
        Self(credential.into())
    }

    /// The credential's value. Use it only to send the credential.
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
    /// Removes the fields that Annex adds to A2A 1.0. Clients must neither set nor see these fields.
    #[must_use]
    pub fn of_client(self) -> Self {
        Self { receiver_is_v0_3: false, ..self }
    }
}

message! {
    /// The webhook for the updates of one task, with its credentials. CreateTaskPushNotificationConfig has this type as
    /// its request and as its answer.
    pub struct TaskPushNotificationConfig {
        /// The tenant that the request goes to. Clients copy it from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// Names the config within its task. If absent, the server creates an id.
        pub id: Option<String> => "id",
        /// The task of the config. Absent in a config inside SendMessage.
        pub task_id: Option<TaskId> => "taskId",
        /// The URL that the updates are posted to.
        pub url: String => "url" required,
        /// A token that the server repeats in each notification, so that the receiver recognises the sender.
        pub token: Option<Secret> => "token",
        /// The `Authorization` header that the receiver requires.
        pub authentication: Option<AuthenticationInfo> => "authentication",
        /// True if a client of 0.3 registered the receiver, which then gets notifications in the format of 0.3. Stored
        /// with the config. Clients can neither set nor see the field: [`Self::of_client`] removes it.
        pub receiver_is_v0_3: bool => "annexReceiverIsV03",
    }

    /// The content of the `Authorization` header of a push notification.
    pub struct AuthenticationInfo {
        /// An HTTP authentication scheme such as `Bearer`; compared without regard to case.
        pub scheme: String => "scheme" required,
        /// The credentials, in the scheme's own form.
        pub credentials: Option<Secret> => "credentials",
    }

    /// The parameters of GetTaskPushNotificationConfig.
    pub struct GetTaskPushNotificationConfigRequest {
        /// The tenant that the request goes to. Clients copy it from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// The id of the task that has the config.
        pub task_id: TaskId => "taskId" required,
        /// The id of the config within its task.
        pub id: String => "id" required,
    }

    /// The parameters of ListTaskPushNotificationConfigs.
    pub struct ListTaskPushNotificationConfigsRequest {
        /// The tenant that the request goes to. Clients copy it from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// The id of the task whose configs are listed.
        pub task_id: TaskId => "taskId" required,
        /// The most configs on a page. 0: the server decides.
        pub page_size: i32 => "pageSize",
        /// The token of this page, from the previous answer.
        pub page_token: Option<String> => "pageToken",
    }

    /// The answer to ListTaskPushNotificationConfigs.
    pub struct ListTaskPushNotificationConfigsResponse {
        /// The configs of this page.
        pub configs: Vec<TaskPushNotificationConfig> => "configs",
        /// The token of the next page; absent on the last page.
        pub next_page_token: Option<String> => "nextPageToken",
    }

    /// The parameters of DeleteTaskPushNotificationConfig.
    pub struct DeleteTaskPushNotificationConfigRequest {
        /// The tenant that the request goes to. Clients copy it from the agent's interface.
        pub tenant: Option<String> => "tenant",
        /// The id of the task that has the config.
        pub task_id: TaskId => "taskId" required,
        /// The id of the config within its task.
        pub id: String => "id" required,
    }
}
