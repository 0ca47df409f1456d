//! The record of a request while the request is served: who sent it, which operation it calls, how it ends, and how
//! long each stage takes. This crate also has the [`traces`] and [`timeline`]s of requests, logs [`fault`]s, and has
//! histograms for Prometheus.
//!
//! Code that works on a request finds the record in its tokio task, so that no call has to pass it on. This crate knows
//! neither the operations of the server nor the form of an access-log line or a page of metrics.

#![warn(missing_docs)]

pub mod fault;
mod histogram;
mod line;
mod outcome;
mod request;
mod scope;
mod stages;
pub mod timeline;
pub mod traces;

pub use histogram::{Distribution, Histogram};
pub use line::{ACCESS_TARGET, millis};
pub use outcome::{Outcome, OutcomeCounts};
pub use request::{Charge, Request};
pub use scope::{
    Ids, enter, enter_at, enter_store, fail, ids, in_request, in_span, measure, note, of_request, of_same_request,
    of_same_trace, span, trace_fields, trace_handle, turn_span, whole_within, with, within,
};
pub use stages::{Stage, StageGuard, StageTimes};

/// The target under which all crates of the server log. Filters name this target.
pub const LOG_TARGET: &str = "annex_server";
