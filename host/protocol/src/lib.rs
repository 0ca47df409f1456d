//! A2A 1.0.1 as Rust types: the data model, the JSON-RPC envelope, the table of errors and the service parameters.
//!
//! | types | purpose |
//! |---|---|
//! | [`Message`], [`Part`], [`Task`], [`Artifact`] | the data model |
//! | [`SendMessageRequest`] and the other requests | the parameters of each operation |
//! | [`SendMessageResponse`], [`StreamResponse`] | an answer, and one event of a stream |
//! | [`AgentCard`] | the agent's description of itself |
//! | [`A2aError`] | each error with its code on JSON-RPC, HTTP+JSON and gRPC |
//! | [`Json`], [`JsonObject`], [`Metadata`] | free-form JSON, kept byte for byte |
//! | [`jsonrpc`], [`http_json`], [`service`] | envelopes, paths and header fields |
//! | [`v0_3`] | translation from and to the wire format of A2A 0.3 |
//!
//! The crate does no I/O, and knows extensions only by their declaration on a card.
//!
//! # Requests and answers
//!
//! Serde encodes the types to the JSON of the specification, and decodes that JSON:
//!
//! ```
//! use annex_protocol::{Json, Message, SendMessageRequest, SendMessageResponse};
//!
//! let mut message = Message::user_text("Who am I?");
//! message.metadata.insert("example.com/ratio".to_owned(), Json::parse("1.0".to_owned())?);
//! let request = SendMessageRequest { message, ..Default::default() };
//! assert!(serde_json::to_string(&request)?.contains(r#""metadata":{"example.com/ratio":1.0}"#));
//!
//! let answer = r#"{"task":{"id":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_WORKING"}}}"#;
//! match serde_json::from_str(answer)? {
//!     SendMessageResponse::Task(task) => assert!(!task.status.state.is_terminal()),
//!     SendMessageResponse::Message(message) => println!("{}", message.text()),
//! }
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! # Events of a task
//!
//! A task is the result of its events in order:
//!
//! ```
//! use annex_protocol::{StreamResponse, Task, TaskState};
//!
//! let mut task: Task = serde_json::from_str(r#"{"id":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_WORKING"}}"#)?;
//! let event = r#"{"statusUpdate":{"taskId":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_COMPLETED"}}}"#;
//! if let StreamResponse::StatusUpdate(update) = serde_json::from_str(event)? {
//!     task.apply_status(&update);
//! }
//! assert_eq!(task.status.state, TaskState::Completed);
//! # Ok::<(), serde_json::Error>(())
//! ```

#![warn(missing_docs)]

mod base64;
mod card;
mod error;
mod error_details;
mod error_text;
mod event;
mod grpc_status;
pub mod http_json;
mod ids;
mod json;
mod json_object;
pub mod jsonrpc;
pub mod lenient;
mod message;
mod method;
mod operation;
mod owner;
mod part;
pub mod portable;
mod proto_json;
mod push;
mod security;
pub mod service;
mod task;
mod timestamp;
pub mod v0_3;
mod validate;

pub use card::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
};
pub use error::{A2aError, FieldViolation};
pub use event::{SendMessageResponse, StreamResponse, TaskArtifactUpdateEvent, TaskStatusUpdateEvent};
pub use grpc_status::GrpcStatus;
pub use ids::{ArtifactId, ContextId, ExtensionUri, MessageId, TaskId};
pub use json::Json;
pub use json_object::{JsonObject, Metadata};
pub use message::{Message, Role};
pub use method::Method;
pub use operation::{
    CancelTaskRequest, GetExtendedAgentCardRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse,
    SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest,
};
pub use owner::Owner;
pub use part::{Part, PartContent, Parts};
pub use push::{
    AuthenticationInfo, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse, Secret,
    TaskPushNotificationConfig,
};
pub use security::{
    ApiKeySecurityScheme, AuthorizationCodeOAuthFlow, ClientCredentialsOAuthFlow, DeviceCodeOAuthFlow,
    HttpAuthSecurityScheme, ImplicitOAuthFlow, MutualTlsSecurityScheme, OAuth2SecurityScheme, OAuthFlows,
    OpenIdConnectSecurityScheme, PasswordOAuthFlow, SecurityRequirement, SecurityScheme, StringList,
};
pub use task::{Artifact, Task, TaskState, TaskStatus};
pub use timestamp::{Timestamp, TimestampError};
