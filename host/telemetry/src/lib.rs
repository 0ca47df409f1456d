//! The record of a request while it is served: its sender, its operation, its end, and the time of each stage. Also
//! [`fault`]s in the log, and histograms for Prometheus.
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

pub use histogram::{Distribution, Histogram};
pub use line::{ACCESS_TARGET, millis};
pub use outcome::{Outcome, OutcomeCounts};
pub use request::Request;
pub use scope::{Ids, enter, enter_at, ids, in_request, of_request, of_same_request, with};
pub use stages::{Stage, StageGuard, StageTimes};

/// The target of the server's log lines, for filters. All crates of the server log under this target.
pub const LOG_TARGET: &str = "annex_server";
