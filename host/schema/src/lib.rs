//! JSON Schema for schemas and instances of strangers: all work that they make the host do has a bound that is known
//! before it is done.
//!
//! A schema is measured before it is compiled ([`Schemas::compile`]): keywords whose work has no bound where they stand are
//! refused with the reason, and what the others cost is counted. An instance is measured before it is validated. Work that
//! is not small is done by a bounded number of workers, for as long as the caller allows.
//!
//! Offline: a reference to another document does not resolve. `format` is asserted. The dialects are drafts 4 to 2020-12
//! of JSON Schema. The crate knows no extensions, no wasm and no A2A.

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
