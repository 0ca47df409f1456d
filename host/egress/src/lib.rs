//! Decides which URLs of somebody else's choice may be called, and keeps clients from connecting to anything else
//! (specification section 13.2).
//!
//! A [`Screen`] decides about each address that a client or an extension has given, once when the address is learned
//! and again when a connection is made. [`whole`], [`beginning`] and [`Events`] read what a peer answers, within bounds.
//! [`retry_after()`] reads how long it asks clients to wait.

#![warn(missing_docs)]

mod answer;
mod events;
mod resolver;
mod retry_after;
mod screen;

pub use answer::{Body, Events, ReadError, StreamLimits, beginning, whole};
pub use events::StreamEvent;
pub use resolver::{Resolver, SystemResolver};
pub use retry_after::retry_after;
pub use screen::{Allowed, InvalidAllowed, Refused, Screen, ScreenConfig};
