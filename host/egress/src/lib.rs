//! Which URLs of somebody else's choice may be called, and that nothing else is connected to (specification section
//! 13.2).
//!
//! Whatever sends a request to an address that it was given by a client or an extension has a [`Screen`] decide, once
//! when it learns of the address and again when a connection is made.

#![warn(missing_docs)]

mod resolver;
mod screen;

pub use resolver::{Resolver, SystemResolver};
pub use screen::{Allowed, InvalidAllowed, Refused, Screen, ScreenConfig};
