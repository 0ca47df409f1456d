//! Reads the parameters of the JSON-RPC methods of 0.3 into the requests of 1.0 (A2A 0.3 section 7).
//!
//! Every request is checked as in 1.0. All functions fail with [`A2aError::InvalidParams`], whose violations have the field
//! names of 0.3. `agent/getAuthenticatedExtendedCard` has no parameters.

use super::message::WireMessage;
use super::push::WirePushConfig;
use crate::jsonrpc::params;
use crate::proto_json::readable;
use crate::{
    A2aError, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    GetTaskRequest, Json, ListTaskPushNotificationConfigsRequest, Message, Metadata, Part, SendMessageConfiguration,
    SendMessageRequest, SubscribeToTaskRequest, TaskId, TaskPushNotificationConfig,
};

readable! {
    struct MessageSendParams {
        message: WireMessage => "message",
        configuration: MessageSendConfiguration => "configuration",
        metadata: Metadata => "metadata",
    }

    struct MessageSendConfiguration {
        accepted_output_modes: Vec<String> => "acceptedOutputModes",
        blocking: Option<bool> => "blocking",
        history_length: Option<i32> => "historyLength",
        push_notification_config: Option<WirePushConfig> => "pushNotificationConfig",
    }

    struct TaskQueryParams {
        id: TaskId => "id",
        history_length: Option<i32> => "historyLength",
    }

    struct TaskIdParams {
        id: TaskId => "id",
        metadata: Metadata => "metadata",
    }

    struct SetPushConfigParams {
        task_id: TaskId => "taskId",
        push_notification_config: WirePushConfig => "pushNotificationConfig",
    }

    struct PushConfigParams {
        id: TaskId => "id",
        push_notification_config_id: String => "pushNotificationConfigId",
    }
}

/// Reads the parameters of `message/send` and `message/stream`.
///
/// The client waits for the answer unless `blocking` is `false`. A missing `blocking` means `true`, as for the official servers
/// of 0.3.
///
/// ```
/// use annex_protocol::{Json, Role, v0_3};
///
/// let message = r#"{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"Who am I?"}]}"#;
/// let request = v0_3::request::send_message(&Json::parse(format!(r#"{{"message":{message}}}"#))?)?;
/// assert_eq!(request.message.role, Role::User);
/// assert_eq!(request.message.text(), "Who am I?");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`A2aError::InvalidParams`]
pub fn send_message(json: &Json) -> Result<SendMessageRequest, A2aError> {
    let sent: MessageSendParams = params(json.get())?;
    let configuration = SendMessageConfiguration {
        accepted_output_modes: sent.configuration.accepted_output_modes,
        task_push_notification_config: sent.configuration.push_notification_config.map(|config| config.of(None)),
        history_length: history_length(sent.configuration.history_length),
        // Only an explicit `false` counts. In HTTP+JSON of 0.3 the default is the opposite.
        return_immediately: sent.configuration.blocking == Some(false),
    };
    let message = with_a_part(sent.message.into());
    let request = SendMessageRequest { tenant: None, message, configuration, metadata: sent.metadata };
    // The rules are those of 1.0, but the client knows only the field names of 0.3, so errors use these.
    let validate = |request: &SendMessageRequest| request.validate().map_err(with_role_of_0_3);
    checked(request, validate, field_of_message)
}

/// Gives an answer to an extension an empty text if the answer has no parts: a message to a task, with an object under the URI
/// of an extension in its metadata. Version 0.3 allows a message without parts, and clients of agentstack send one to approve a
/// call of a tool. Version 1.0 requires a part, so any other message without parts is refused.
pub fn with_a_part(mut message: Message) -> Message {
    let is_object_of_extension = |(key, value): (&str, &Json)| is_uri(key) && value.get().starts_with('{');
    let answers = message.task_id.is_some() && message.metadata.iter().any(is_object_of_extension);
    if message.parts.is_empty() && answers {
        message.parts = vec![Part::text("")].into();
    }
    message
}

/// True for a metadata key that is the URI of an extension. A key without a scheme, such as that of a client's own note, is
/// none.
fn is_uri(key: &str) -> bool {
    let is_scheme = |scheme: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && scheme.bytes().all(is_part)
    };
    key.split_once(':').is_some_and(|(scheme, rest)| is_scheme(scheme) && !rest.is_empty())
}

fn field_of_message(field: &str) -> String {
    let field = field.replace("taskPushNotificationConfig", "pushNotificationConfig");
    field.replace("authentication.scheme", "authentication.schemes").replace(".raw", ".file.bytes")
}

/// Converts an error about a message that [`send_message`] has read: the fields in the error get the names that they
/// have in 0.3.
pub fn refusal_of_message(error: A2aError) -> A2aError {
    renamed(error, field_of_message)
}

/// Converts an error about a config that [`create_push_config`] has read: the fields in the error get the names that
/// they have in 0.3.
pub fn refusal_of_push_config(error: A2aError) -> A2aError {
    renamed(error, field_of_push_config)
}

/// The parameters of `tasks/get`.
///
/// # Errors
/// [`A2aError::InvalidParams`]
pub fn get_task(json: &Json) -> Result<GetTaskRequest, A2aError> {
    let sent: TaskQueryParams = params(json.get())?;
    let request = GetTaskRequest { tenant: None, id: sent.id, history_length: history_length(sent.history_length) };
    checked(request, GetTaskRequest::validate, str::to_owned)
}

/// The parameters of `tasks/cancel`.
///
/// # Errors
/// [`A2aError::InvalidParams`]
pub fn cancel_task(json: &Json) -> Result<CancelTaskRequest, A2aError> {
    let sent: TaskIdParams = params(json.get())?;
    let request = CancelTaskRequest { tenant: None, id: sent.id, metadata: sent.metadata };
    checked(request, CancelTaskRequest::validate, str::to_owned)
}

/// The parameters of `tasks/resubscribe`.
///
/// # Errors
/// [`A2aError::InvalidParams`]
pub fn subscribe_to_task(json: &Json) -> Result<SubscribeToTaskRequest, A2aError> {
    let sent: TaskIdParams = params(json.get())?;
    checked(SubscribeToTaskRequest { tenant: None, id: sent.id }, SubscribeToTaskRequest::validate, str::to_owned)
}

/// The parameters of `tasks/pushNotificationConfig/set`.
///
/// # Errors
/// [`A2aError::InvalidParams`]
pub fn create_push_config(json: &Json) -> Result<TaskPushNotificationConfig, A2aError> {
    let sent: SetPushConfigParams = params(json.get())?;
    // An empty id becomes no id, which the validation of 1.0 reports as missing.
    let request = sent.push_notification_config.of(Some(sent.task_id).filter(|id| !id.is_empty()));
    checked(request, TaskPushNotificationConfig::validate, field_of_push_config)
}

fn field_of_push_config(field: &str) -> String {
    match field {
        // The config of 0.3 has no tenant: the path of the request names it.
        "" | "taskId" | "tenant" => field.to_owned(),
        "authentication.scheme" => "pushNotificationConfig.authentication.schemes".to_owned(),
        _ => format!("pushNotificationConfig.{field}"),
    }
}

/// Reads the parameters of `tasks/pushNotificationConfig/get`.
///
/// The config's id is optional in 0.3. Without it the request's `id` is empty, which means the first config of the
/// task.
///
/// # Errors
/// [`A2aError::InvalidParams`]
pub fn get_push_config(json: &Json) -> Result<GetTaskPushNotificationConfigRequest, A2aError> {
    let sent: PushConfigParams = params(json.get())?;
    // The validation of 1.0 would require the config's id as well.
    if sent.id.is_empty() {
        return Err(A2aError::invalid_field("id", "is required"));
    }
    Ok(GetTaskPushNotificationConfigRequest { tenant: None, task_id: sent.id, id: sent.push_notification_config_id })
}

/// The parameters of `tasks/pushNotificationConfig/list`.
///
/// # Errors
/// [`A2aError::InvalidParams`]
pub fn list_push_configs(json: &Json) -> Result<ListTaskPushNotificationConfigsRequest, A2aError> {
    let sent: TaskIdParams = params(json.get())?;
    // 0.3 has no pages, so one page holds as many configs as the server gives at once: all that a task may have.
    let page_size = i32::MAX;
    let request = ListTaskPushNotificationConfigsRequest { task_id: sent.id, page_size, ..Default::default() };
    checked(request, ListTaskPushNotificationConfigsRequest::validate, push_config_field)
}

/// The parameters of `tasks/pushNotificationConfig/delete`.
///
/// # Errors
/// [`A2aError::InvalidParams`]
pub fn delete_push_config(json: &Json) -> Result<DeleteTaskPushNotificationConfigRequest, A2aError> {
    let sent: PushConfigParams = params(json.get())?;
    let request = DeleteTaskPushNotificationConfigRequest {
        tenant: None,
        task_id: sent.id,
        id: sent.push_notification_config_id,
    };
    checked(request, DeleteTaskPushNotificationConfigRequest::validate, push_config_field)
}

fn with_role_of_0_3(error: A2aError) -> A2aError {
    let A2aError::InvalidParams { mut violations } = error else { return error };
    for violation in &mut violations {
        violation.description = violation.description.replace("ROLE_USER", "user");
    }
    A2aError::InvalidParams { violations }
}

fn push_config_field(field: &str) -> String {
    let name = match field {
        "taskId" => "id",
        "id" => "pushNotificationConfigId",
        other => other,
    };
    name.to_owned()
}

/// Converts the history length of a request. In 0.3 the number 0 means no limit, and an empty history cannot be
/// requested.
pub fn history_length(sent: Option<i32>) -> Option<i32> {
    sent.filter(|length| *length != 0)
}

/// Validates the request by the rules of 1.0. `rename` converts the field names in errors.
pub(super) fn checked<T>(
    request: T,
    validate: impl Fn(&T) -> Result<(), A2aError>,
    rename: impl Fn(&str) -> String,
) -> Result<T, A2aError> {
    validate(&request).map_err(|error| renamed(error, rename))?;
    Ok(request)
}

pub(super) fn renamed(error: A2aError, rename: impl Fn(&str) -> String) -> A2aError {
    let A2aError::InvalidParams { mut violations } = error else { return error };
    for violation in &mut violations {
        violation.field = rename(&violation.field);
    }
    A2aError::InvalidParams { violations }
}
