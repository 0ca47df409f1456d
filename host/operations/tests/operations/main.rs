//! The operations of A2A at the door of this crate: no socket, no component, no database server. Extensions that are loaded from
//! components are tested over HTTP by `annex-server`.

// Lets the lints see helper functions, too, as test code.
#![cfg(test)]

mod agent;
mod fixture;
mod in_words;

mod cancellation;
mod conversations;
mod errors;
mod extensions;
mod limits;
mod lists;
mod lost;
mod permits;
mod push_configs;
mod queue;
mod quotas;
mod receipts;
mod repeats;
mod sending;
mod streaming;
mod subscription;
