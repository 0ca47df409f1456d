//! Traces of requests for OpenTelemetry: spans, their context as W3C Trace Context defines it, and the queue of ended
//! spans. This crate does not send spans: the reader of the queue does.
//!
//! A span belongs to the request of the current tokio task. If the server has no tracer, or the trace is not sampled, a
//! span costs one branch.

mod context;
mod request_trace;
mod span;
mod tracer;

pub use context::{TRACEPARENT, TRACESTATE, TraceFields, parent_in, parent_of};
pub use opentelemetry::trace::{SpanContext, SpanKind};
pub use request_trace::{RequestTrace, TraceHandle};
pub(crate) use span::ActiveSpan;
pub use span::Span;
pub use tracer::{Tracer, TracerConfig};
