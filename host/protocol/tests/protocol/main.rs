//! Tests of the crate's public interface.

// Lets the lints see helper functions, too, as test code.
#![cfg(test)]

mod enumerations;
mod errors;
mod free_form;
mod jsonrpc;
mod leniency;
mod samples;
mod service;
mod tasks;
mod timestamps;
mod v0_3;
mod validation;
mod wire_forms;
