//! The operations of A2A, independent of the binding (A2A 1.0 section 3).
//!
//! A message passes these modules in this order: [`service_parameters`], [`operation`], `send_message`, `activation`,
//! [`claims`], [`permits`], [`quota`], [`views`], `turn`, [`tasks`]. These modules do other work:
//!
//! - [`methods`] calls the methods of extensions.
//! - `extended_card` answers with the card for authenticated callers.
//! - `upstream_ids` stores the ids that a remote agent uses.
//! - `lost_turn` continues turns of processes that have ended.
//! - [`push`] sends notifications.
//! - [`receipts`] signs receipts of turns.
//!
//! This crate does not depend on HTTP servers, configs, files or databases. `annex-server` provides them.

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
pub mod receipts;
pub mod request_handler;
pub mod send_message;
pub mod service_parameters;
pub mod tasks;
pub mod views;

mod activation;
mod completed;
mod extended_card;
mod keyed_locks;
mod lost_turn;
mod turn;
mod unknown_extensions;
mod upstream_ids;

pub(crate) use annex_telemetry::LOG_TARGET;
