//! The trace of a request.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use opentelemetry::trace::{SpanContext, SpanKind};

use super::span::{ActiveSpan, Span};
use super::tracer::Tracer;

/// The maximum number of spans of one request, its turn, and their notifications. Further spans are lost.
const MAX_SPANS: u32 = 1_000;

/// The trace of a request, or of work without a request.
#[derive(Debug)]
pub struct RequestTrace {
    tracer: Tracer,
    began: SystemTime,
    /// True for the request of a client. Its span is the parent of all other spans.
    is_served: bool,
    /// The span of the caller.
    parent: OnceLock<SpanContext>,
    /// The span of the request, or the first span of work without a request. The span of a request is set when it is first
    /// needed, because the body of the request may name the parent.
    root: OnceLock<Arc<ActiveSpan>>,
    left: AtomicU32,
}

/// The span in which some later work was caused.
#[derive(Clone, Debug, Default)]
pub struct TraceHandle(Option<(Arc<RequestTrace>, Arc<ActiveSpan>)>);

impl TraceHandle {
    pub(crate) fn new(trace: Arc<RequestTrace>, active: Arc<ActiveSpan>) -> Self {
        Self(Some((trace, active)))
    }

    /// Begins a span below the span of this handle.
    pub fn span(&self, kind: SpanKind, name: &'static str) -> Span {
        self.0.as_ref().map_or_else(Span::off, |(trace, parent)| trace.begin(Some(parent), kind, name))
    }
}

impl RequestTrace {
    /// The trace of a client's request that has just arrived.
    #[must_use]
    pub fn served(tracer: Tracer) -> Self {
        Self::new(tracer, true)
    }

    /// The trace of work that no request waits for. It begins with the first turn.
    #[must_use]
    pub fn background(tracer: Tracer) -> Self {
        Self::new(tracer, false)
    }

    fn new(tracer: Tracer, is_served: bool) -> Self {
        let (parent, root, left) = (OnceLock::new(), OnceLock::new(), AtomicU32::new(MAX_SPANS));
        Self { tracer, began: SystemTime::now(), is_served, parent, root, left }
    }

    /// Sets the span of the caller. Only the first parent counts, and none after the first span has begun.
    pub fn continues(&self, parent: impl FnOnce() -> Option<SpanContext>) {
        if self.root.get().is_none()
            && self.parent.get().is_none()
            && let Some(parent) = parent()
        {
            let _ = self.parent.set(parent);
        }
    }

    /// The span of the request. For work without a request: its first span, and `None` before that span has begun.
    pub(crate) fn root(&self) -> Option<Arc<ActiveSpan>> {
        if self.is_served { Some(self.begun_root()) } else { self.root.get().cloned() }
    }

    fn begun_root(&self) -> Arc<ActiveSpan> {
        Arc::clone(self.root.get_or_init(|| Arc::new(ActiveSpan::new(self.tracer.first(self.parent.get())))))
    }

    /// The ended span of the request, which began when the request arrived.
    pub(crate) fn request_span(&self, name: &'static str) -> Span {
        match self.root() {
            Some(root) => Span::of(&self.tracer, root, self.parent.get(), SpanKind::Server, name, self.began),
            None => Span::off(),
        }
    }

    /// Begins a span below `parent`, or the first span of a new trace.
    pub(crate) fn begin(&self, parent: Option<&Arc<ActiveSpan>>, kind: SpanKind, name: &'static str) -> Span {
        let Some(parent) = parent else {
            return Span::of(&self.tracer, self.begun_root(), None, kind, name, SystemTime::now());
        };
        let take_one = |left: u32| left.checked_sub(1);
        if parent.is_sampled() && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one).is_err() {
            self.tracer.add_lost(1);
            return Span::passing(Arc::clone(parent));
        }
        Span::below(&self.tracer, parent, kind, name)
    }
}
