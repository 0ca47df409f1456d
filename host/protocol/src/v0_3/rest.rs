//! The HTTP+JSON binding of 0.3, whose paths begin with `/v1`.
//!
//! The bodies are ProtoJSON of the package `a2a.v1` (A2A 0.3 section 3.2.3): `content` instead of `parts`, wrappers
//! instead of `kind`, enums by their proto name. There is one exception: the body of `GET /v1/card` is an
//! [`AgentCard`](super::AgentCard). Values in the path or the query, such as task ids and `historyLength`, are read by
//! the caller of this module.

mod answer;
mod base64_text;
mod call;
mod part;
mod push;
mod request;
mod response;

pub use answer::{event, part, task};
pub use base64_text::{base64_of_bytes, bytes_of_base64};
pub use call::SendMessageRequest;
pub use part::Part;
pub use push::{ListTaskPushNotificationConfigsResponse, TaskPushNotificationConfig};
pub use request::{
    create_push_config, refusal_of_message, refusal_of_nested_push_config, refusal_of_push_config, send_message,
};
pub use response::{Artifact, Event, Message, Task, TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent};
