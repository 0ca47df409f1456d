//! Writes the bodies of requests from the requests of 1.0.

use serde::Serialize;

use super::response::Message;
use crate::Metadata;

/// The body of `POST /v1/message:send` and `POST /v1/message:stream`. It contains no push notification config, because no caller
/// sends a config to a server of 0.3.
#[derive(Clone, Debug, Serialize)]
pub struct SendMessageRequest<'a> {
    message: Message<'a>,
    configuration: SendMessageConfiguration<'a>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SendMessageConfiguration<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    accepted_output_modes: &'a [String],
    blocking: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
}

impl<'a> From<&'a crate::SendMessageRequest> for SendMessageRequest<'a> {
    fn from(request: &'a crate::SendMessageRequest) -> Self {
        let configuration = &request.configuration;
        Self {
            message: (&request.message).into(),
            configuration: SendMessageConfiguration {
                accepted_output_modes: &configuration.accepted_output_modes,
                blocking: !configuration.return_immediately,
                history_length: configuration.history_length,
            },
            metadata: &request.metadata,
        }
    }
}
