//! Reads the bodies of requests. The body of `POST /v1/tasks/{id}:cancel` is ignored.

use super::part::Rest;
use crate::jsonrpc::params;
use crate::proto_json::readable;
use crate::v0_3::part::WirePart;
use crate::v0_3::push::WirePushConfig;
use crate::v0_3::request::{checked, history_length, renamed, with_a_part};
use crate::{
    A2aError, ContextId, ExtensionUri, Json, Message, MessageId, Metadata, Role, SendMessageConfiguration,
    SendMessageRequest, TaskId, TaskPushNotificationConfig,
};

readable! {
    struct WireSendMessage {
        message: WireMessage => "message",
        configuration: WireConfiguration => "configuration",
        metadata: Metadata => "metadata",
    }

    /// A message as clients and servers of 0.3 send it.
    pub(super) struct WireMessage {
        message_id: MessageId => "messageId",
        context_id: Option<ContextId> => "contextId",
        task_id: Option<TaskId> => "taskId",
        role: Role => "role",
        content: Vec<WirePart<Rest>> => "content",
        metadata: Metadata => "metadata",
        extensions: Vec<ExtensionUri> => "extensions",
    }

    struct WireConfiguration {
        accepted_output_modes: Vec<String> => "acceptedOutputModes",
        push_notification: Option<WirePushConfig> => "pushNotification",
        history_length: i32 => "historyLength",
        blocking: bool => "blocking",
    }

    struct WireCreatePushConfig {
        config_id: Option<String> => "configId",
        config: WireTaskPushConfig => "config",
        push_notification_config: Option<WirePushConfig> => "pushNotificationConfig",
    }

    struct WireTaskPushConfig {
        push_notification_config: WirePushConfig => "pushNotificationConfig",
    }
}

/// Reads the body of `POST /v1/message:send` and `POST /v1/message:stream`.
///
/// The client waits for the answer only if `blocking` is `true`, because a missing boolean is `false` in ProtoJSON. In JSON-RPC
/// a missing `blocking` means `true`. The official servers of 0.3 have the same difference.
///
/// # Errors
/// [`A2aError::InvalidParams`]
pub fn send_message(body: &Json) -> Result<SendMessageRequest, A2aError> {
    let sent: WireSendMessage = params(body.get())?;
    let configuration = SendMessageConfiguration {
        accepted_output_modes: sent.configuration.accepted_output_modes,
        task_push_notification_config: sent.configuration.push_notification.map(|config| config.of(None)),
        // A number that is absent is 0 in ProtoJSON, and 0 is no limit in 0.3.
        history_length: history_length(Some(sent.configuration.history_length)),
        return_immediately: !sent.configuration.blocking,
    };
    let message = with_a_part(sent.message.into());
    let request = SendMessageRequest { tenant: None, message, configuration, metadata: sent.metadata };
    checked(request, SendMessageRequest::validate, field_of_message)
}

fn field_of_message(field: &str) -> String {
    let field = field.replace("taskPushNotificationConfig", "pushNotification");
    let field = field.replace("authentication.scheme", "authentication.schemes");
    field.replace("message.parts", "message.content").replace(".raw", ".file.fileWithBytes")
}

/// Converts an error about a message that [`send_message`] has read: the fields in the error get the names that they
/// have in the body.
pub fn refusal_of_message(error: A2aError) -> A2aError {
    renamed(error, field_of_message)
}

impl From<WireMessage> for Message {
    fn from(message: WireMessage) -> Self {
        Self {
            message_id: message.message_id,
            context_id: message.context_id,
            task_id: message.task_id,
            role: message.role,
            parts: message.content.into_iter().map(WirePart::into_part).collect(),
            metadata: message.metadata,
            extensions: message.extensions,
            // `a2a.v1` has no field for references.
            reference_task_ids: Vec::new(),
        }
    }
}

/// Reads the body of `POST /v1/tasks/{id}/pushNotificationConfigs`, with the task from the path. The config is either
/// the whole body, as in the proto file, or its field `config`, as the official clients send it.
///
/// # Errors
/// [`A2aError::InvalidParams`]
pub fn create_push_config(task_id: TaskId, body: &Json) -> Result<TaskPushNotificationConfig, A2aError> {
    let sent: WireCreatePushConfig = params(body.get())?;
    let is_body = sent.push_notification_config.is_some();
    // The form of the proto file takes precedence over that of the official clients.
    let mut config = sent.push_notification_config.unwrap_or(sent.config.push_notification_config);
    config.id = config.id.or(sent.config_id);
    let request = config.of(Some(task_id).filter(|id| !id.is_empty()));
    checked(request, TaskPushNotificationConfig::validate, field_of_push_config(is_body))
}

/// Converts an error about a config that [`create_push_config`] has read from `body`: the fields in the error get the
/// names that they have in `body`.
pub fn refusal_of_push_config(error: A2aError, body: &Json) -> A2aError {
    let is_body = params(body.get()).is_ok_and(|sent: WireCreatePushConfig| sent.push_notification_config.is_some());
    renamed(error, field_of_push_config(is_body))
}

/// Converts an error about a config that is the field `config` of its request: the fields in the error get the names that they
/// have in the request.
pub fn refusal_of_nested_push_config(error: A2aError) -> A2aError {
    renamed(error, field_of_push_config(false))
}

/// Returns the function that renames the fields of a config in errors. `is_body` is true if the config is the whole
/// body, and false if it is the field `config`.
fn field_of_push_config(is_body: bool) -> impl Fn(&str) -> String {
    let prefix = if is_body { "pushNotificationConfig" } else { "config.pushNotificationConfig" };
    move |field: &str| match field {
        "" | "taskId" => field.to_owned(),
        "authentication.scheme" => format!("{prefix}.authentication.schemes"),
        _ => format!("{prefix}.{field}"),
    }
}
