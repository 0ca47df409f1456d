//! A2A 0.3 on the wire, translated from and to the types of 1.0.
//!
//! For servers: [`request`] reads the parameters of the JSON-RPC methods in [`Method`]. The views ([`Task`], [`Message`],
//! [`Event`], …) borrow values of 1.0 and write 0.3 JSON. [`rest`] does both for the HTTP+JSON binding, whose bodies are
//! ProtoJSON of the package `a2a.v1` and differ from JSON-RPC. Free-form JSON stays byte for byte. The gRPC binding is in
//! `annex-grpc`, and uses [`interfaces`], [`part_metadata`], [`data_object`], [`read_data_marks`], [`grpc_status`] and
//! [`grpc_text`].
//!
//! For clients of a 0.3 server: [`call`] writes parameters, [`answer`] reads answers, [`read_card`] reads a card. For HTTP+JSON
//! [`rest::SendMessageRequest`] writes a body, and [`rest::event`] and [`rest::task`] read answers.
//!
//! Gaps of 0.3 are filled as in the compatibility layer of the official Python SDK, so that clients of that SDK see no
//! difference. Nothing here does I/O.

pub mod answer;
pub mod call;
mod card;
mod card_reader;
mod error;
mod event;
mod message;
mod method;
mod names;
mod part;
mod push;
pub mod request;
pub mod rest;
mod security;
mod task;

pub use card::{AgentCard, Interfaces, MergedAgentCard, interfaces};
pub use card_reader::read_card;
pub use error::{code, failure, grpc_status, grpc_text, text};
pub use event::{Event, TaskArtifactUpdateEvent, TaskStatusUpdateEvent};
pub use message::Message;
pub use method::Method;
pub use names::{CARD_VERSION, VERSION, X_A2A_EXTENSIONS};
pub use part::{Part, data_object, part_metadata, read_data_marks};
pub use push::{TaskPushNotificationConfig, push_configs};
pub use security::{OAuthFlow, SecurityScheme};
pub use task::{Artifact, Task, TaskStatus};
