//! Protects requests to URLs that strangers chose (specification section 13.2). This crate provides:
//!
//! - [`Screen`], which decides which addresses may be called. It checks each URL that a client or an extension has
//!   given, once when the URL is registered and again on each connection.
//! - [`whole`], [`beginning`] and [`Events`], which read answers within limits.
//! - [`client_builder`], which begins every HTTP client.
//! - [`retry_after()`], which reads how long a peer asks clients to wait.

#![warn(missing_docs)]

mod answer;
mod events;
mod http_client;
mod resolver;
mod retry_after;
mod screen;

pub use answer::{Body, Events, ReadError, StreamLimits, beginning, whole};
pub use events::StreamEvent;
pub use http_client::{client_builder, unverified_client_builder};
pub use resolver::{Resolver, SystemResolver};
pub use retry_after::retry_after;
pub use screen::{AllowedDestination, InvalidDestination, Screen, ScreenConfig, UrlRefusal};
