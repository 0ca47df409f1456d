//! Wake-ups between processes: after a process stored an event of a task, a hint makes the other processes read the task at once.
//!
//! A hint is never data and may be lost. Each reader of a task also polls the database, so a lost hint costs the time until the
//! next poll.

mod hints;
mod outbox;
mod postgres;

pub use hints::{Hint, Hints, LocalWake, Notice, Wake, WakeError};
pub use postgres::PostgresWake;
