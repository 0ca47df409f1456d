//! Wake-ups between processes: one tells the others which task it has stored something of, so that they read on at once.
//!
//! A hint is never data and may be lost. Whoever waits for one also looks by itself from time to time, so that a lost one
//! costs the time to the next look.

mod hints;
#[cfg(feature = "nats")]
mod nats;
mod outbox;
mod postgres;
mod shared;

pub use hints::{Heard, Hint, Hints, Local, Wake, WakeError};
pub use shared::SharedWake;
