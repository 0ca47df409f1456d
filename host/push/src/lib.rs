//! Push notifications: posts the events of a task to the URLs that its client has registered (specification section 4.3).
//!
//! A [`Notifier`] posts events in the background. It posts the events of one config in order, retries failed attempts, keeps to
//! limits, and only calls addresses that its [`Screen`](annex_egress::Screen) allows. This crate does not store configs.
//! Callers pass them with each event.

#![warn(missing_docs)]

mod backoff;
mod delivery;
mod invalid;
mod notifier;
mod queues;
mod slots;
mod target;

pub use backoff::Backoff;
pub use delivery::PreparedScreen;
pub use invalid::InvalidConfig;
pub use notifier::{Counts, Event, Fate, Notifier, NotifierConfig, NotifierError};
