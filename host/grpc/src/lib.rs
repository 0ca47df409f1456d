//! The gRPC binding of A2A 1.0.1 (specification section 10). It converts protobuf messages to the types of
//! `annex-protocol` and back, metadata to service parameters, and errors to `google.rpc.Status`.
//!
//! [`Client`] is the other end. The crate translates only. The [`Operations`] behind it decide which versions,
//! extensions and callers are let in. The HTTP server that [`routes`] are merged into decides on connections, TLS and
//! the number of streams.
//!
//! Limits of protobuf: numbers in free-form JSON are doubles, so that `1.0` arrives as `1`, and keys arrive sorted. An
//! integer that no double is equal to, such as `9007199254740993`, fails the call instead of being rounded; the
//! parameters and results of extensions' methods are text and keep theirs. A request nests messages at most 100 deep,
//! of which one level of a JSON object takes three and one of a JSON array two. Bytes that are no such message are
//! answered with INVALID_ARGUMENT, before any of this is asked.

#![warn(missing_docs)]

mod client;
mod codec;
mod convert;
mod extension_service;
mod health;
mod operations;
mod parameters;
#[doc(hidden)]
pub mod pb;
mod routes;
mod service;
mod status;

pub use client::{CallError, Client, Events};
pub use operations::{CallParameters, EventStream, MethodReply, Operations, Reply, Results};
pub use routes::{Limits, is_grpc, is_operation, refuse, routes, unknown_service, unread_body, with_details};
