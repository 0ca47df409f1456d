//! A client for A2A agents. It finds an agent by its card and calls it over JSON-RPC, HTTP+JSON or gRPC. Agents that speak
//! only A2A 0.3 are called over JSON-RPC or HTTP+JSON of 0.3, with the same types.
//!
//! | type | purpose |
//! |---|---|
//! | [`Client`] | reads cards, checks their signatures and keeps them. A program needs one |
//! | [`Agent`] | has a method for each operation of A2A, and calls methods of extensions |
//! | [`ServiceParameters`] | the extensions to activate, and further header fields of a call |
//! | [`ClientSession`] | remembers the conversation and the task that waits for an answer |
//! | [`Interceptor`] | sees and changes each call before it is sent, and sees each answer |
//!
//! # A message and its answer
//!
//! ```no_run
//! use annex_client::{Client, ClientConfig, ServiceParameters};
//! use annex_protocol::{Message, SendMessageRequest, SendMessageResponse};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(ClientConfig::default())?;
//! let agent = client.agent("http://127.0.0.1:9999").await?;
//! let request = SendMessageRequest { message: Message::user_text("Who am I?"), ..Default::default() };
//! match agent.send_message(ServiceParameters::default(), request).await?.value {
//!     SendMessageResponse::Task(task) => println!("task {} is {}", task.id, task.status.state),
//!     SendMessageResponse::Message(message) => println!("{}", message.text()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # A stream, with an extension
//!
//! ```no_run
//! use annex_client::{Client, ClientConfig, ServiceParameters};
//! use annex_protocol::{ExtensionUri, Message, SendMessageRequest, StreamResponse};
//! use futures::StreamExt;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! # let agent = Client::new(ClientConfig::default())?.agent("http://127.0.0.1:9999").await?;
//! let mut parameters = ServiceParameters::default();
//! let uri = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1";
//! parameters.activate(ExtensionUri::new(uri))?;
//!
//! let request = SendMessageRequest { message: Message::user_text("Tell me more."), ..Default::default() };
//! let answer = agent.send_streaming_message(parameters, request).await?;
//! println!("active extensions: {:?}", answer.active);
//! let mut events = answer.value;
//! while let Some(event) = events.next().await {
//!     match event? {
//!         StreamResponse::StatusUpdate(update) => println!("the task is {}", update.status.state),
//!         StreamResponse::ArtifactUpdate(update) => println!("{:?}", update.artifact.metadata),
//!         StreamResponse::Task(task) => println!("the task is {}", task.id),
//!         StreamResponse::Message(message) => println!("{}", message.text()),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # An interceptor
//!
//! ```
//! use std::sync::Arc;
//!
//! use annex_client::{ClientConfig, Interceptor, InterceptorError, OutgoingCall};
//! use async_trait::async_trait;
//! use http::{HeaderName, HeaderValue};
//!
//! /// Names the program to the agent.
//! struct Named;
//!
//! #[async_trait]
//! impl Interceptor for Named {
//!     async fn before(&self, call: &mut OutgoingCall<'_>) -> Result<(), InterceptorError> {
//!         let name = HeaderName::from_static("x-program");
//!         Ok(call.parameters.set_field(name, HeaderValue::from_static("reporter"))?)
//!     }
//! }
//!
//! let config = ClientConfig { interceptors: vec![Arc::new(Named)], ..ClientConfig::default() };
//! # let _ = config;
//! ```
//!
//! # Notes
//!
//! JSON of users keeps its text in both directions: numbers such as `1.0` and `9007199254740993` are not changed. gRPC has
//! only doubles: there `1.0` becomes `1`, and `9007199254740993` is refused.
//!
//! The feature `components` adds `ComponentInterceptor`, which runs the client's half of an extension's component. It links
//! annex-runtime and with it wasmtime. A program that only calls agents leaves the feature off and builds no engine.
//!
//! TLS is rustls with the provider that the process has installed. Without a provider [`Client::new`] installs ring's.

#![warn(missing_docs)]

mod agent;
mod answer;
mod binding;
mod card;
mod client;
#[cfg(feature = "components")]
mod component;
mod config;
mod error;
mod http;
mod interceptor;
mod operation;
mod parameters;
mod remote_error;
mod session;
mod stream_room;
mod transport;

pub use agent::Agent;
pub use answer::{Answer, EventStream, ResultStream};
pub use binding::Binding;
pub use card::AgentCardDocument;
pub use client::Client;
#[cfg(feature = "components")]
pub use component::{ComponentInterceptor, NoClientHook};
pub use config::{ClientConfig, ClientTls};
pub use error::ClientError;
pub use interceptor::{Incoming, Interceptor, InterceptorError, OutgoingCall};
pub use operation::{ExtensionMethod, Operation};
pub use parameters::{ParameterError, ServiceParameters};
pub use remote_error::{RemoteError, Violation};
pub use session::{ClientSession, SessionError};
pub use stream_room::StreamRoom;
