//! An agent that lives elsewhere: turns are run by another A2A server, which does not know that it is not called directly.
//!
//! [`UpstreamAgent`] finds it by its card, sends it each message with the state of the session as the config wants it,
//! and relays the answer. Ids of contexts and tasks are the upstream's inside and the server's own outside. The agent's
//! `UpstreamIds` hold the pairs. This crate knows no HTTP server, no task store and no extension.

#![warn(missing_docs)]

mod agent;
mod breaker;
mod config;
mod failure;
mod follow;
mod links;
mod outgoing;
mod relay;
mod state;
mod upstream;

pub use agent::UpstreamAgent;
pub use config::{ConfigError, Credentials, LostContext, Received, Sent, StateMapping, UpstreamConfig};
pub use upstream::ConnectError;
