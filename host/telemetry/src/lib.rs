//! Facts about a request while it is served: tenant, operation, outcome and time per stage; and histograms for
//! Prometheus.
//!
//! The request is stored in its tokio task, so that calls need not pass it on. This crate does not know the
//! operations of the server, the format of log lines, or the format of the metrics page.

#![warn(missing_docs)]

mod histogram;
mod outcome;
mod request;
mod scope;
mod stages;

pub use histogram::{Distribution, Histogram};
pub use outcome::{Outcome, OutcomeCounts};
pub use request::Request;
pub use scope::{Ids, enter, enter_at, ids, in_request, of_request, of_same_request, with};
pub use stages::{Spent, Stage, StageGuard};
