//! The agent and its models, through the public interface.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "the functions that tests share may fail a test"
)]

mod cases;
mod generative;
mod hostile_models;
mod hostile_tools;
mod odd_tools;
mod script_agent;
mod script_costs;
mod scripted;
mod support;
mod template_agent;
mod templating;
mod tools;
