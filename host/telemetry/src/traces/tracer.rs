//! Begins traces and queues ended spans.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::SpanData;
use tokio::sync::mpsc;

/// Settings of a [`Tracer`].
#[derive(Clone, Copy, Debug)]
pub struct TracerConfig {
    /// The share of traces that are sampled, from 0 to 1.
    pub sample: f64,
    /// True if a request with a `traceparent` is sampled exactly if its caller has sampled it.
    pub follow_parent: bool,
    /// The maximum number of ended spans that wait to be sent. Further spans are lost.
    pub max_queued: usize,
}

/// Begins traces, and queues the spans that have ended. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Tracer(Arc<TracerCore>);

#[derive(Debug)]
struct TracerCore {
    spans: mpsc::Sender<SpanData>,
    sample: f64,
    follow_parent: bool,
    sent: AtomicU64,
    lost: AtomicU64,
    scope: InstrumentationScope,
}

impl Tracer {
    /// Creates a tracer, and the other end of its queue.
    #[must_use]
    pub fn new(config: &TracerConfig) -> (Self, mpsc::Receiver<SpanData>) {
        let TracerConfig { sample, follow_parent, max_queued } = *config;
        let (spans, queue) = mpsc::channel(max_queued.max(1));
        let scope = InstrumentationScope::builder("annex").with_version(env!("CARGO_PKG_VERSION")).build();
        let (sent, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        (Self(Arc::new(TracerCore { spans, sample, follow_parent, sent, lost, scope })), queue)
    }

    /// The number of spans that the collector has taken, and the number of spans that were lost.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.0.sent.load(Ordering::Relaxed), self.0.lost.load(Ordering::Relaxed))
    }

    /// Counts spans that the collector has taken.
    pub fn add_sent(&self, spans: usize) {
        self.0.sent.fetch_add(u64::try_from(spans).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Counts spans that were lost.
    pub fn add_lost(&self, spans: usize) {
        self.0.lost.fetch_add(u64::try_from(spans).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The context of the first span of this server in a trace. `parent` is the span of the caller.
    pub(crate) fn first(&self, parent: Option<&SpanContext>) -> SpanContext {
        // Drawn, and not computed from the trace id, which a stranger may have chosen.
        let draw = || fastrand::f64() < self.0.sample;
        let is_sampled = match parent {
            Some(parent) if self.0.follow_parent => parent.is_sampled(),
            _ => draw(),
        };
        let flags = if is_sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
        let trace = parent.map_or_else(|| TraceId::from(fastrand::u128(1..)), SpanContext::trace_id);
        let state = parent.map_or(TraceState::NONE, |parent| parent.trace_state().clone());
        SpanContext::new(trace, span_id(), flags, false, state)
    }

    /// The context of a span below `parent`.
    pub(crate) fn next(parent: &SpanContext) -> SpanContext {
        let state = parent.trace_state().clone();
        SpanContext::new(parent.trace_id(), span_id(), parent.trace_flags(), false, state)
    }

    pub(crate) fn scope(&self) -> InstrumentationScope {
        self.0.scope.clone()
    }

    /// Queues an ended span. The span is lost if the queue is full or nobody reads it.
    pub(crate) fn queue(&self, span: SpanData) {
        if self.0.spans.try_send(span).is_err() {
            self.add_lost(1);
        }
    }
}

fn span_id() -> SpanId {
    SpanId::from(fastrand::u64(1..))
}

#[cfg(test)]
mod tests {
    use super::{Tracer, TracerConfig};
    use crate::traces::parent_of;

    fn tracer(sample: f64, follow_parent: bool) -> Tracer {
        Tracer::new(&TracerConfig { sample, follow_parent, max_queued: 1 }).0
    }

    #[test]
    fn a_trace_is_sampled_by_the_config_or_as_its_caller_has_decided() {
        let parent = |flags| parent_of(&format!("00-{}-b7ad6b7169203331-{flags}", "a".repeat(32)), None);
        for (sample, follow_parent, parent, expected) in [
            (0.0, true, None, false),
            (1.0, true, None, true),
            (0.0, true, parent("01"), true),
            (1.0, true, parent("00"), false),
            (0.0, false, parent("01"), false),
            (1.0, false, parent("00"), true),
        ] {
            let first = tracer(sample, follow_parent).first(parent.as_ref());
            assert_eq!(first.is_sampled(), expected, "{sample} {follow_parent} {parent:?}");
            if let Some(parent) = parent {
                assert_eq!(first.trace_id(), parent.trace_id());
                assert_ne!(first.span_id(), parent.span_id());
            }
        }
    }
}
