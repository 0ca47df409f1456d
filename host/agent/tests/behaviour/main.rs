//! What the agent and its models do, through the public interface.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "the functions that tests share may fail a test"
)]

mod generative;
mod script_agent;
mod scripted;
mod template_agent;
mod templating;
