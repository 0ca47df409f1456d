//! Messages of a conversation (specification section 4.1.4).

use crate::proto_json::{message, proto_enum};
use crate::{ContextId, ExtensionUri, MessageId, Metadata, Part, PartContent, Parts, TaskId};

proto_enum! {
    /// The sender of a message.
    pub enum Role {
        /// Missing; never valid in a request.
        #[default]
        Unspecified => "ROLE_UNSPECIFIED",
        /// The client.
        User => "ROLE_USER",
        /// The server.
        Agent => "ROLE_AGENT",
    }
}

message! {
    /// A message of a conversation, from the client or from the server.
    ///
    /// ```
    /// use annex_protocol::{Message, Role};
    ///
    /// let json = r#"{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"Who am I?"}],"metadata":{"n":1.0}}"#;
    /// let message: Message = serde_json::from_str(json)?;
    /// assert_eq!(message.role, Role::User);
    /// assert_eq!(message.text(), "Who am I?");
    /// assert_eq!(serde_json::to_string(&message)?, json);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct Message {
        /// The id of the message, which its sender creates.
        pub message_id: MessageId => "messageId" required,
        /// The conversation of the message. A message of a server always has one.
        pub context_id: Option<ContextId> => "contextId",
        /// The task of the message, if there is one.
        pub task_id: Option<TaskId> => "taskId",
        /// The sender.
        pub role: Role => "role" required,
        /// The content; at least one part.
        pub parts: Parts => "parts" required,
        /// Free-form metadata, mostly of extensions.
        pub metadata: Metadata => "metadata",
        /// The extensions that contributed to the message. A client activates extensions with the header, not with this
        /// field.
        pub extensions: Vec<ExtensionUri> => "extensions",
        /// Other tasks that the message refers to for context.
        pub reference_task_ids: Vec<TaskId> => "referenceTaskIds",
    }
}

impl Message {
    /// A message of the server in `context`, with a new id. `task` is the task of the message, if there is one.
    pub fn agent(context: ContextId, task: Option<TaskId>, parts: impl Into<Parts>) -> Self {
        Self {
            message_id: MessageId::generate(),
            context_id: Some(context),
            task_id: task,
            role: Role::Agent,
            parts: parts.into(),
            ..Self::default()
        }
    }

    /// A client's message of one text part, with a new id and without a context.
    pub fn user_text(text: &str) -> Self {
        Self {
            message_id: MessageId::generate(),
            role: Role::User,
            parts: vec![Part::text(text)].into(),
            ..Self::default()
        }
    }

    /// The text parts, joined by line breaks.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match &part.content {
            PartContent::Text(text) => Some(text.as_str()),
            PartContent::Raw(_) | PartContent::Url(_) | PartContent::Data(_) => None,
        });
        // With line breaks, as in the official SDK. ADK sends a user's text as several text parts.
        texts.collect::<Vec<_>>().join("\n")
    }
}
