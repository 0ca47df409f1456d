//! A2A 1.0.1 as Rust types: the data model, the JSON-RPC envelope, the error table and the service parameters. [`v0_3`]
//! translates the wire format of A2A 0.3 from and to these types.
//!
//! Nothing here does I/O or knows about extensions beyond their declaration. Free-form JSON (metadata, data parts,
//! extension parameters) is kept byte for byte as [`Json`], so that numbers, key order and unknown fields of user data
//! are preserved.

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
