//! The client against the real server on each binding, and against servers that misbehave.
#![cfg(test)]

mod bindings;
mod cards;
mod cases;
mod components;
mod connections;
mod dependencies;
mod foreign;
mod interceptors;
mod older;
mod screens;
mod sessions;
mod support;

annex_runtime::compile_in_tests!();
