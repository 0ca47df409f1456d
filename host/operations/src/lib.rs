//! The operations of A2A, independent of the binding (A2A 1.0 section 3).
//!
//! The modules in the order in which a message passes them: [`service_parameters`], [`operation`], `send_message`,
//! `activation`, [`claims`], [`permits`], [`quota`], [`views`], `turn`, [`tasks`]. Further modules are
//! [`methods`] of extensions, the ids of a remote agent (`upstream_ids`), turns of processes that have ended
//! (`lost_turn`), and [`push`] notifications. This crate does not depend on HTTP servers, configs, files or databases;
//! `annex-server` brings those.

pub mod answer;
pub mod claims;
pub mod counters;
pub mod extension_set;
pub mod fault;
pub mod looks;
pub mod methods;
pub mod on_lost_turn;
pub mod operation;
pub mod permits;
pub mod process;
pub mod process_parts;
pub mod push;
pub mod quota;
pub mod request_handler;
pub mod send_message;
pub mod service_parameters;
pub mod tasks;
pub mod views;

mod activation;
mod keyed_locks;
mod lost_turn;
mod turn;
mod unknown_extensions;
mod upstream_ids;

pub(crate) use annex_telemetry::LOG_TARGET;
