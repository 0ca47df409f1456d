//! Writes the parameters of the JSON-RPC methods of 0.3 from the requests of 1.0 (A2A 0.3 section 7).

use serde::Serialize;

use super::Message;
use crate::{CancelTaskRequest, GetTaskRequest, Metadata, SendMessageRequest, SubscribeToTaskRequest, TaskId};

/// The parameters of `message/send` and `message/stream`. They contain no push notification config, because no caller sends a
/// config to a server of 0.3.
#[derive(Clone, Debug, Serialize)]
pub struct MessageSendParams<'a> {
    message: Message<'a>,
    configuration: MessageSendConfiguration<'a>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageSendConfiguration<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    accepted_output_modes: &'a [String],
    blocking: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
}

impl<'a> From<&'a SendMessageRequest> for MessageSendParams<'a> {
    fn from(request: &'a SendMessageRequest) -> Self {
        let configuration = &request.configuration;
        Self {
            message: (&request.message).into(),
            configuration: MessageSendConfiguration {
                accepted_output_modes: &configuration.accepted_output_modes,
                // Always written: the text of 0.3 makes waiting opt-in, while its official servers wait unless told
                // otherwise.
                blocking: !configuration.return_immediately,
                history_length: configuration.history_length,
            },
            metadata: &request.metadata,
        }
    }
}

/// The parameters of `tasks/get`, `tasks/cancel` and `tasks/resubscribe`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskParams<'a> {
    id: &'a TaskId,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Metadata>,
}

impl<'a> From<&'a GetTaskRequest> for TaskParams<'a> {
    fn from(request: &'a GetTaskRequest) -> Self {
        Self { id: &request.id, history_length: request.history_length, metadata: None }
    }
}

impl<'a> From<&'a CancelTaskRequest> for TaskParams<'a> {
    fn from(request: &'a CancelTaskRequest) -> Self {
        let metadata = Some(&request.metadata).filter(|metadata| !metadata.is_empty());
        Self { id: &request.id, history_length: None, metadata }
    }
}

impl<'a> From<&'a SubscribeToTaskRequest> for TaskParams<'a> {
    fn from(request: &'a SubscribeToTaskRequest) -> Self {
        Self { id: &request.id, history_length: None, metadata: None }
    }
}
