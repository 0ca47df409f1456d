//! What every session store must do, through the public interface.

#![expect(clippy::unwrap_used, reason = "the functions that tests share may fail a test")]

mod bounds;
mod concurrency;
mod events;
mod scopes;
mod support;
mod turns;
