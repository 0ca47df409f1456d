//! An agent whose turns another A2A server runs. To that server, this server looks like any other client.
//!
//! [`UpstreamAgent`] reads the other server's card, sends each message with the session's state as the config maps it,
//! and relays the answer. The upstream has its own ids of contexts and tasks; clients see only the ids of this server.
//! The agent's `UpstreamIds` store the pairs. This crate knows no HTTP server, no store and no extension.

#![warn(missing_docs)]

mod agent;
mod authorization;
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
pub use config::{ConfigError, Credentials, LostContext, StateMapping, StateSource, StateTarget, UpstreamConfig};
pub use upstream::ConnectError;
