//! The facts about one request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::outcome::{Outcome, OutcomeCounts};
use crate::stages::{StageTimes, Stages};
use crate::timeline::Timeline;
use crate::traces::{ActiveSpan, RequestTrace, Span, SpanContext, TraceHandle};

/// The facts about a request, or about a turn that continues without a request. The first code that learns a fact sets
/// it; later values are ignored.
pub struct Request {
    stages: Stages,
    is_logged: bool,
    /// The trace of the request. `None` if the server has no tracer.
    trace: Option<Arc<RequestTrace>>,
    /// The work for the request. `None` if no page shows the request.
    timeline: Option<Arc<Timeline>>,
    received: AtomicU64,
    is_over: AtomicBool,
    /// The tenant that the request names, whether it exists or not.
    pub tenant: OnceLock<Arc<str>>,
    /// The authenticated principal; not set for an anonymous caller.
    pub caller: OnceLock<Arc<str>>,
    /// The protocol binding, such as JSON-RPC or gRPC.
    pub binding: OnceLock<&'static str>,
    /// The protocol version of the request.
    pub version: OnceLock<&'static str>,
    /// The operation that the request calls.
    pub operation: OnceLock<&'static str>,
    /// The method of an extension that the request calls.
    pub method: OnceLock<Arc<str>>,
    /// The id of the conversation.
    pub context: OnceLock<Arc<str>>,
    /// The id of the task.
    pub task: OnceLock<Arc<str>>,
    /// The active extensions, in the format of the header `A2A-Extensions`.
    pub extensions: OnceLock<Box<str>>,
    /// The outcome and its reason in one word. Not set if the outcome is `Ok`.
    pub verdict: OnceLock<(Outcome, &'static str)>,
    /// The extensions that refused the request, failed in it, or were missing.
    pub blamed: OnceLock<Box<str>>,
    /// The name of the quota that the request exceeded.
    pub quota: OnceLock<&'static str>,
    /// The error id under which the log has the fault.
    pub error_id: OnceLock<Box<str>>,
    /// The request counters of the tenant.
    pub counts: OnceLock<Arc<OutcomeCounts>>,
    /// Charges CPU time of extensions to the caller. Not set if callers have no quota.
    pub charged: OnceLock<Charge>,
}

/// A function that charges CPU time to a caller.
pub type Charge = Arc<dyn Fn(Duration) + Send + Sync>;

impl Request {
    /// Begins a request at the current time. With `is_logged`, the time in each stage is measured for its log line.
    #[must_use]
    pub fn begin(is_logged: bool) -> Arc<Self> {
        Self::begin_traced(is_logged, None)
    }

    /// Begins a request as [`Self::begin`] does, with this trace.
    #[must_use]
    pub fn begin_traced(is_logged: bool, trace: Option<RequestTrace>) -> Arc<Self> {
        Self::begin_in(Instant::now(), is_logged, (trace.map(Arc::new), None))
    }

    /// Begins a request as [`Self::begin_traced`] does, with a timeline of its work.
    #[must_use]
    pub fn begin_with_timeline(is_logged: bool, trace: Option<RequestTrace>) -> Arc<Self> {
        let began = Instant::now();
        Self::begin_in(began, is_logged, (trace.map(Arc::new), Some(Timeline::new(began))))
    }

    /// Begins work in the trace of this request that the request does not wait for. It is not logged, and its spans count
    /// as spans of the request. `None` if there is no trace.
    pub(crate) fn begin_beside(&self) -> Option<Arc<Self>> {
        let trace = Arc::clone(self.trace.as_ref()?);
        Some(Self::begin_in(Instant::now(), false, (Some(trace), None)))
    }

    fn begin_in(
        began: Instant,
        is_logged: bool,
        (trace, timeline): (Option<Arc<RequestTrace>>, Option<Arc<Timeline>>),
    ) -> Arc<Self> {
        Arc::new(Self {
            stages: Stages::new(began),
            is_logged,
            trace,
            timeline,
            received: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            tenant: OnceLock::new(),
            caller: OnceLock::new(),
            binding: OnceLock::new(),
            version: OnceLock::new(),
            operation: OnceLock::new(),
            method: OnceLock::new(),
            context: OnceLock::new(),
            task: OnceLock::new(),
            extensions: OnceLock::new(),
            verdict: OnceLock::new(),
            blamed: OnceLock::new(),
            quota: OnceLock::new(),
            error_id: OnceLock::new(),
            counts: OnceLock::new(),
            charged: OnceLock::new(),
        })
    }

    /// True if the request gets a log line.
    #[must_use]
    pub fn is_logged(&self) -> bool {
        self.is_logged
    }

    /// True if the request gets a log line or has a timeline. The times of stages, the caller and the extensions are noted
    /// only then.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.is_logged || self.timeline.is_some()
    }

    /// The work that was done for the request. `None` if no page shows the request.
    #[must_use]
    pub fn timeline(&self) -> Option<&Arc<Timeline>> {
        self.timeline.as_ref()
    }

    /// The trace of the request. `None` if the server has no tracer.
    #[must_use]
    pub fn trace(&self) -> Option<&RequestTrace> {
        self.trace.as_deref()
    }

    /// The trace of the request and one of its spans, for work that the span causes later.
    pub(crate) fn trace_handle(&self, span: Arc<ActiveSpan>) -> Option<TraceHandle> {
        Some(TraceHandle::new(Arc::clone(self.trace.as_ref()?), span))
    }

    /// The span of the request, from its arrival until this value is dropped. `name` is the operation.
    pub fn span(&self, name: &'static str) -> Span {
        self.trace().map_or_else(Span::off, |trace| trace.request_span(name))
    }

    /// The context of the request's span. `None` if the trace is not recorded.
    #[must_use]
    pub fn sampled_span(&self) -> Option<SpanContext> {
        self.trace()?.root().filter(|root| root.is_sampled()).map(|root| root.context().clone())
    }

    /// The id of the request's trace, 32 hexadecimal digits. `None` if there is no trace.
    #[must_use]
    pub fn trace_id(&self) -> Option<String> {
        self.trace()?.root().map(|root| root.context().trace_id().to_string())
    }

    /// Marks the request as ended: its log line gets no further fields. Returns false if the request had ended before.
    pub fn end(&self) -> bool {
        !self.is_over.swap(true, Ordering::Relaxed)
    }

    /// True if the request has ended. Its turn may still run.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Adds `bytes` to the number of received bytes of the body.
    pub fn add_received(&self, bytes: usize) {
        self.received.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The number of received bytes of the body.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The time since the beginning, and the time in each stage. If the request is not measured, the times of stages
    /// are zero.
    #[must_use]
    pub fn spent(&self) -> (Duration, StageTimes) {
        let now = Instant::now();
        let all = now.saturating_duration_since(self.stages.began());
        (all, if self.is_measured() { self.stages.spent(now) } else { StageTimes::default() })
    }

    /// Sets the ids of the conversation and of the task. `None` sets nothing.
    pub fn is_about(&self, context: Option<Arc<str>>, task: Option<Arc<str>>) {
        // The first value stays, here and below.
        if let Some(context) = context {
            let _ = self.context.set(context);
        }
        if let Some(task) = task {
            let _ = self.task.set(task);
        }
    }

    /// Sets the outcome to `Refused`. `reason` is one word.
    pub fn refuse(&self, reason: &'static str) {
        let _ = self.verdict.set((Outcome::Refused, reason));
    }

    /// Sets the extensions that refused the request, failed in it, or were missing.
    pub fn blame(&self, extensions: impl Into<Box<str>>) {
        let _ = self.blamed.set(extensions.into());
    }

    /// Sets the error id of a fault that was logged. `cause` is the escaped text in the log.
    pub(crate) fn failed(&self, error_id: &str, cause: &str) {
        let _ = self.error_id.set(error_id.into());
        if let Some(timeline) = &self.timeline {
            timeline.failed(error_id, cause);
        }
    }

    pub(crate) fn stages(&self) -> &Stages {
        &self.stages
    }
}
