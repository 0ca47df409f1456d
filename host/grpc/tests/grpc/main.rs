//! Tests of the binding over a loopback socket, with the generated client.

#![cfg(test)]

mod cards;
mod client;
mod errors;
mod free_form;
mod hostile;
mod metadata;
mod push_configs;
mod services;
mod streams;
mod support;
mod tasks;
mod v0_3;
