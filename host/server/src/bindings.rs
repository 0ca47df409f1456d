//! The bindings of A2A: each translates requests into operations and results into answers.

pub(crate) mod answer_body;
pub(crate) mod grpc;
pub(crate) mod jsonrpc;
pub(crate) mod rest;
pub(crate) mod service_headers;
pub(crate) mod sse;
pub(crate) mod v0_3;
