//! What is known of a request while it is served: whose it is, what it asks for, how it ends and where its time goes; and
//! histograms for Prometheus.
//!
//! Whatever works on a request finds it in its tokio task, so that no call has to pass it on. What the operations of the
//! server are is not known here, nor how a line of the log or a page of metrics looks.

#![warn(missing_docs)]

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
pub use stages::{Entered, Spent, Stage};
