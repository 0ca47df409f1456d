//! The gRPC binding of A2A 1.0.1 (specification section 10), and that of A2A 0.3 for servers. It converts protobuf messages to
//! the types of `annex-protocol` and back, metadata to service parameters, and errors to `google.rpc.Status`.
//!
//! [`Client`] is the client's side. The crate only translates. The [`Operations`] decide which versions, extensions and
//! callers are accepted. The HTTP server that serves [`routes`] decides on connections, TLS and the number of streams.
//!
//! Protobuf limits free-form JSON. Numbers are doubles, so that `1.0` arrives as `1`, and keys arrive sorted. An
//! integer without an equal double, such as `9007199254740993`, fails the call instead of being rounded. The parameters
//! and results of extensions' methods are text, and keep their numbers.
//!
//! A request nests messages at most 100 deep. One level of a JSON object takes three messages, and one level of a JSON
//! array two. Bytes that are not such a message are refused with INVALID_ARGUMENT, before an operation is called.

#![warn(missing_docs)]

mod client;
mod codec;
mod convert;
mod exchange;
mod extension_service;
mod health;
mod operations;
mod parameters;
#[doc(hidden)]
pub mod pb;
mod routes;
mod service;
mod service_v0_3;
mod status;

pub use client::{CallError, Client, Events};
pub use operations::{CallParameters, EventStream, MethodReply, Operations, Reply, Results, ServiceVersion};
pub use routes::{
    Limits, is_grpc, is_operation, operation, refuse, routes, routes_of_both_versions, unknown_service, unread_body,
    with_details,
};
