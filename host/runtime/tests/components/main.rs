//! The crate as the server uses it, with the real components: what is loaded, what is refused, what is confined.
#![cfg(test)]

mod cache;
mod chain;
mod inspection;
mod installing;
mod limits;
mod pool;
mod refusals;
mod support;
