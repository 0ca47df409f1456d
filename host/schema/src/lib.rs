//! Validates instances by JSON Schema, where neither the schemas nor the instances are trusted. The cost of all work is
//! bounded before the work begins.
//!
//! A schema is measured before it is compiled ([`Schemas::compile`]): a keyword without a bound is refused with the
//! reason, and the cost of all other keywords is counted. An instance is measured before it is validated. Work that is
//! not small runs on a limited number of worker threads, for as long as the caller allows.
//!
//! This crate reads nothing from the network: a reference to another document does not resolve. `format` is asserted.
//! The dialects are drafts 4 to 2020-12 of JSON Schema. The crate knows no extensions, no wasm and no A2A.

#![warn(missing_docs)]

mod budget;
mod cost;
mod measure;
mod pattern;
mod schema;
mod schemas;
mod size;
mod strict;

pub use budget::ValidatorBudget;
pub use schema::{Schema, Violation};
pub use schemas::{SchemaError, Schemas, Workers};
