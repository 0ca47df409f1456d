//! The life of the process: it listens, gets ready, serves its routes, drains and ends.

pub(crate) mod cross_origin;
pub(crate) mod descriptors;
pub(crate) mod hosts;
pub(crate) mod listeners_tls;
mod metrics_task;
pub(crate) mod readiness_gate;
pub(crate) mod routes;
pub(crate) mod serve;
pub(crate) mod store_probe;
