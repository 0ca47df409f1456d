//! An A2A 1.0 client: finds an agent by its card and calls it over JSON-RPC, HTTP+JSON or gRPC. Agents that only speak
//! A2A 0.3 are called over JSON-RPC, with the same types.
//!
//! [`Client`] reads and caches cards. [`Agent`] is the remote agent, with a method for each operation. [`Interceptor`]s
//! see each call before it is sent, and each answer. [`ClientSession`] tracks the conversation and its latest task.
//! User data is preserved: numbers such as `1.0` and `9007199254740993` keep their text. gRPC has doubles only: there
//! `1.0` becomes `1`, and the second number is refused.
//!
//! The feature `components` adds `ComponentInterceptor`, which runs an extension's component on the client's side. It
//! links annex-runtime, and wasmtime with it. A program that only calls agents does not enable the feature and builds
//! no engine.
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
//! TLS is rustls with the provider that the process has installed; without one, [`Client::new`] panics as reqwest does.

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
pub use config::ClientConfig;
pub use error::ClientError;
pub use interceptor::{Incoming, Interceptor, InterceptorError, OutgoingCall};
pub use operation::{ExtensionMethod, Operation};
pub use parameters::{ParameterError, ServiceParameters};
pub use remote_error::{RemoteError, Violation};
pub use session::{ClientSession, SessionError};
pub use stream_room::StreamRoom;
