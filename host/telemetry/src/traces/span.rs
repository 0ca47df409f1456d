//! Spans: a piece of work with its attributes.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;
use std::{fmt, mem};

use http::HeaderMap;
use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::context::TraceFields;
use super::tracer::Tracer;

/// The maximum size of a text in a span, in bytes. A longer text is cut.
const MAX_TEXT: usize = 256;
/// The maximum number of attributes of a span. Further attributes are dropped.
const MAX_ATTRIBUTES: usize = 32;

/// A span. Dropping it ends the span.
pub struct Span(SpanState);

enum SpanState {
    /// There is no trace.
    Off,
    /// The trace is not recorded here. Its context is passed on.
    Passing(Arc<ActiveSpan>),
    Recording(Box<Recording>),
}

struct Recording {
    tracer: Tracer,
    active: Arc<ActiveSpan>,
    /// `None` after the end of the span.
    data: Option<SpanData>,
}

/// The part of a span that code within the span reads and adds to.
#[derive(Debug)]
pub(crate) struct ActiveSpan {
    context: SpanContext,
    notes: Mutex<Vec<KeyValue>>,
    /// The kind of the failure of the work, if code within the span has found one.
    failure: OnceLock<&'static str>,
}

impl ActiveSpan {
    pub(crate) fn new(context: SpanContext) -> Self {
        Self { context, notes: Mutex::default(), failure: OnceLock::new() }
    }

    pub(crate) fn context(&self) -> &SpanContext {
        &self.context
    }

    pub(crate) fn is_sampled(&self) -> bool {
        self.context.is_sampled()
    }

    /// Adds an attribute to the span. Ignored if the trace is not sampled.
    pub(crate) fn note(&self, key: &'static str, value: Value) {
        if self.is_sampled() {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            if notes.len() < MAX_ATTRIBUTES {
                notes.push(KeyValue::new(key, value));
            }
        }
    }

    /// Marks the work of the span as failed. Only the first failure counts.
    pub(crate) fn fail(&self, kind: &'static str) {
        let _ = self.failure.set(kind);
    }
}

impl Span {
    /// A span that records nothing and has no context.
    #[must_use]
    pub const fn off() -> Self {
        Self(SpanState::Off)
    }

    pub(crate) fn passing(active: Arc<ActiveSpan>) -> Self {
        Self(SpanState::Passing(active))
    }

    pub(crate) fn below(tracer: &Tracer, parent: &Arc<ActiveSpan>, kind: SpanKind, name: &'static str) -> Self {
        if !parent.is_sampled() {
            return Self::passing(Arc::clone(parent));
        }
        let active = Arc::new(ActiveSpan::new(Tracer::next(parent.context())));
        Self::of(tracer, active, Some(parent.context()), kind, name, SystemTime::now())
    }

    pub(crate) fn of(
        tracer: &Tracer,
        active: Arc<ActiveSpan>,
        parent: Option<&SpanContext>,
        span_kind: SpanKind,
        name: &'static str,
        start_time: SystemTime,
    ) -> Self {
        if !active.is_sampled() {
            return Self::passing(active);
        }
        let data = SpanData {
            span_context: active.context().clone(),
            parent_span_id: parent.map_or(SpanId::INVALID, SpanContext::span_id),
            parent_span_is_remote: parent.is_some_and(SpanContext::is_remote),
            span_kind,
            name: Cow::Borrowed(name),
            start_time,
            end_time: start_time,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: tracer.scope(),
        };
        Self(SpanState::Recording(Box::new(Recording { tracer: tracer.clone(), active, data: Some(data) })))
    }

    /// The span, as the parent of other spans. `None` if nothing is recorded.
    pub(crate) fn active(&self) -> Option<&Arc<ActiveSpan>> {
        match &self.0 {
            SpanState::Recording(recording) => Some(&recording.active),
            SpanState::Off | SpanState::Passing(_) => None,
        }
    }

    /// True if the span is recorded. Attributes whose values cost something are computed only then.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.active().is_some()
    }

    /// The ids of the trace and of the span, as hexadecimal digits. `None` if nothing is recorded.
    #[must_use]
    pub fn ids(&self) -> Option<(String, String)> {
        let context = self.active()?.context();
        Some((context.trace_id().to_string(), context.span_id().to_string()))
    }

    /// The context of the span for a request to another server. `None` if there is no trace.
    #[must_use]
    pub fn fields(&self) -> Option<TraceFields> {
        match &self.0 {
            SpanState::Off => None,
            SpanState::Passing(active) => Some(TraceFields::of(active.context())),
            SpanState::Recording(recording) => Some(TraceFields::of(recording.active.context())),
        }
    }

    /// Adds the context of the span to the header fields of a request to another server.
    pub fn insert_into(&self, headers: &mut HeaderMap) {
        if let Some(fields) = self.fields() {
            fields.insert_into(headers);
        }
    }

    /// Appends a text to the name of the span, after a space.
    pub fn extend_name(&mut self, text: &str) {
        if let Some(data) = self.data() {
            data.name = Cow::Owned(format!("{} {}", data.name, annex_text::line_within(text, MAX_TEXT)));
        }
    }

    /// Sets an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(data) = self.data() {
            push(data, KeyValue::new(key, value));
        }
    }

    /// Sets an attribute to a number. Nothing is set for a number beyond 63 bits.
    pub fn set_number(&mut self, key: &'static str, number: impl TryInto<i64>) {
        if let (Some(data), Ok(number)) = (self.data(), number.try_into()) {
            push(data, KeyValue::new(key, number));
        }
    }

    /// Sets an attribute to a text that others may have written: escapes it and cuts it to 256 bytes.
    pub fn set_text(&mut self, key: &'static str, text: &str) {
        if let Some(data) = self.data() {
            push(data, KeyValue::new(key, annex_text::line_within(text, MAX_TEXT)));
        }
    }

    /// Marks the work as failed. `kind` is one word.
    pub fn fail(&mut self, kind: &'static str) {
        if let Some(active) = self.active() {
            active.fail(kind);
        }
    }

    /// Links the span to a span of another trace.
    pub fn link(&mut self, other: SpanContext) {
        if let Some(data) = self.data() {
            data.links.links.push(Link::with_context(other));
        }
    }

    fn data(&mut self) -> Option<&mut SpanData> {
        match &mut self.0 {
            SpanState::Recording(recording) => recording.data.as_mut(),
            SpanState::Off | SpanState::Passing(_) => None,
        }
    }
}

fn push(data: &mut SpanData, attribute: KeyValue) {
    if data.attributes.len() < MAX_ATTRIBUTES {
        data.attributes.push(attribute);
    } else {
        data.dropped_attributes_count += 1;
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Span").field(&self.active()).finish()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let Some(mut data) = self.data.take() else { return };
        let notes = mem::take(&mut *self.active.notes.lock().unwrap_or_else(PoisonError::into_inner));
        notes.into_iter().for_each(|note| push(&mut data, note));
        if let Some(&kind) = self.active.failure.get() {
            data.status = Status::Error { description: Cow::Borrowed(kind) };
            push(&mut data, KeyValue::new("error.type", kind));
        }
        // The clock of the machine may have been set back.
        data.end_time = SystemTime::now().max(data.start_time);
        self.tracer.queue(data);
    }
}
