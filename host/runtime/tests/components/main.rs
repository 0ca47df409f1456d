//! The crate as the server uses it, with the real components: what is loaded, what is refused, what is confined.
#![cfg(test)]

mod cache;
mod capabilities;
mod chain;
mod egress;
mod inspection;
mod installing;
mod keyvalue;
mod limits;
mod metrics;
mod peer;
mod pool;
mod refusals;
mod secrets;
mod support;
mod wasi;
