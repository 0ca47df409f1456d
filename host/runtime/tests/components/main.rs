//! The crate as the server uses it, with the real components: what is loaded, what is refused, what is confined.
#![cfg(test)]

mod bombs;
mod cache;
mod capabilities;
mod chain;
mod egress;
mod failures;
mod hostile;
mod inspection;
mod installing;
mod keyvalue;
mod limits;
mod metadata;
mod metrics;
mod peer;
mod pool;
mod refusals;
mod secrets;
mod support;
mod turn_services;
mod wasi;
