//! Wake-ups between processes. After a process has stored an event of a task, it sends a hint, and the other processes read the
//! task at once.
//!
//! A hint contains no data and may be lost. Each reader of a task also polls the database, so after a lost hint the reader
//! waits until the next poll.

mod hints;
mod outbox;
mod postgres;

pub use hints::{Hint, Hints, LocalWake, Notice, Wake, WakeError};
pub use postgres::PostgresWake;
