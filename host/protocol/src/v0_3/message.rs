//! Messages (A2A 0.3 section 6.4).

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};

use super::part::{JsonRpc, Part, WirePart};
use crate::proto_json::{FieldValue, readable};
use crate::{ContextId, ExtensionUri, MessageId, Metadata, Role, TaskId};

/// A message, written as 0.3 JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Message<'a> {
    kind: &'static str,
    message_id: &'a MessageId,
    role: &'static str,
    parts: Vec<Part<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a ContextId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a TaskId>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    reference_task_ids: &'a [TaskId],
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    extensions: &'a [ExtensionUri],
}

impl<'a> From<&'a crate::Message> for Message<'a> {
    fn from(message: &'a crate::Message) -> Self {
        Self {
            kind: "message",
            message_id: &message.message_id,
            role: role_name(message.role),
            parts: message.parts.iter().map(Part).collect(),
            context_id: message.context_id.as_ref(),
            task_id: message.task_id.as_ref(),
            reference_task_ids: &message.reference_task_ids,
            metadata: &message.metadata,
            extensions: &message.extensions,
        }
    }
}

/// The name of the role. 0.3 knows only two roles. If a server's message has no role, it gets the role of the agent.
fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Agent | Role::Unspecified => "agent",
    }
}

readable! {
    /// A message as clients of 0.3 send it.
    pub(super) struct WireMessage {
        kind: MessageKind => "kind",
        message_id: MessageId => "messageId",
        role: WireRole => "role",
        parts: Vec<WirePart<JsonRpc>> => "parts",
        context_id: Option<ContextId> => "contextId",
        task_id: Option<TaskId> => "taskId",
        reference_task_ids: Vec<TaskId> => "referenceTaskIds",
        metadata: Metadata => "metadata",
        extensions: Vec<ExtensionUri> => "extensions",
    }
}

impl From<WireMessage> for crate::Message {
    fn from(message: WireMessage) -> Self {
        let WireRole(role) = message.role;
        Self {
            message_id: message.message_id,
            context_id: message.context_id,
            task_id: message.task_id,
            role,
            parts: message.parts.into_iter().map(WirePart::into_part).collect(),
            metadata: message.metadata,
            extensions: message.extensions,
            reference_task_ids: message.reference_task_ids,
        }
    }
}

/// The field `kind` of a message: `message`, or absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct MessageKind;

impl FieldValue for MessageKind {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            // Another kind is refused, because the object would be read as an empty message.
            "message" | "" => Ok(Self),
            _ => Err(D::Error::custom("must be `message`")),
        }
    }

    fn is_default(&self) -> bool {
        true
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct WireRole(Role);

impl FieldValue for WireRole {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "user" => Ok(Self(Role::User)),
            "agent" => Ok(Self(Role::Agent)),
            _ => Err(D::Error::custom("unknown role, expected one of `user`, `agent`")),
        }
    }

    fn is_default(&self) -> bool {
        self.0 == Role::Unspecified
    }
}
