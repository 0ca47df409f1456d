//! Push notifications: posting the events of a task to the addresses that its client has registered (specification
//! section 4.3), and the screening of those addresses (section 13.2).
//!
//! A [`Screen`] decides what may be called, at registration and again when a connection is made. A [`Notifier`] posts
//! events in the background: in order per config, with retries, within bounds. Nothing here stores configs; whoever
//! does passes them with each event.

#![warn(missing_docs)]

mod backoff;
mod delivery;
mod notifier;
mod queues;
mod resolver;
mod screen;
mod slots;
mod target;

pub use backoff::Backoff;
pub use notifier::{Counts, Event, Notifier, NotifierConfig, NotifierError};
pub use resolver::{Resolver, SystemResolver};
pub use screen::{Allowed, InvalidAllowed, Refused, Screen, ScreenConfig};
