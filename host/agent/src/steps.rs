//! The recorded steps of an agent in a turn.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use annex_protocol::Timestamp;
use annex_telemetry::timeline::{Measurement, Work};
use annex_telemetry::traces::{Span, SpanKind};
use serde::Serialize;

use crate::call_times::{CallEnd, CallTimes};
use crate::work::CpuTime;

/// The maximum number of recorded steps of one turn. Later steps are not recorded.
const MAX_STEPS: usize = 256;
/// The maximum size of a name or an error, in bytes. Longer texts are cut.
const MAX_TEXT: usize = 256;

/// The steps of one turn, in the order of their beginning. Clones share the steps. A turn records at most 256 steps,
/// with texts of at most 256 bytes each.
#[derive(Clone, Debug)]
pub struct Steps {
    /// The recorded steps; `None` if no extension may read them.
    kept: Option<Arc<Mutex<Vec<Step>>>>,
    /// The counter for tokens, for the tenant's quota.
    tokens: Option<TokenCount>,
    /// The counter for the agent's CPU time, for the tenant's quota.
    cpu: Option<CpuTime>,
    /// The histograms for the durations of the steps.
    times: Option<Arc<CallTimes>>,
}

/// The number of tokens that models have counted, for prompts and answers together. Clones share the number.
#[derive(Clone, Debug, Default)]
pub struct TokenCount {
    count: Arc<AtomicU64>,
    /// A further count to which all tokens are added.
    also: Option<Arc<AtomicU64>>,
}

impl TokenCount {
    /// Returns this count, such that all tokens that are added to it are added to `other` too.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self { count: Arc::clone(&self.count), also: Some(Arc::clone(&other.count)) }
    }

    /// Adds `tokens` to the count.
    pub fn add(&self, tokens: u64) {
        for count in [&self.count].into_iter().chain(&self.also) {
            // Relaxed suffices: the number orders nothing. Saturating, because a wrapped number would look like little use.
            let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| Some(sum.saturating_add(tokens)));
        }
    }

    /// Returns the count since the last call of this method.
    #[must_use]
    pub fn take(&self) -> u64 {
        self.count.swap(0, Ordering::Relaxed)
    }

    /// Returns the count without resetting it.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// A step that has begun. Dropping it ends the step.
#[derive(Debug)]
pub struct OpenStep {
    steps: Steps,
    kind: StepKind,
    /// The start of the step; `None` if no histogram needs its duration.
    began: Option<Instant>,
    is_finished: AtomicBool,
    has_failed: AtomicBool,
    /// The index among the recorded steps; `None` for a step beyond [`MAX_STEPS`].
    index: Option<usize>,
    /// The tokens that the model has counted so far.
    counted: Mutex<Tokens>,
    /// Bytes sent and received that the model may not have counted yet.
    uncounted: AtomicUsize,
    /// The span of the step in the trace of the turn.
    span: Span,
    /// The step in the timeline of the request.
    measured: Measurement,
}

/// The number of bytes that count as one token. Used if a call is broken off before its model has counted.
const BYTES_OF_TOKEN: usize = 4;

/// The kind of a step: a call to a model, to another agent or to a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// A call to a model.
    Model,
    /// A call to another agent.
    Agent,
    /// A call to a tool.
    Tool,
}

/// Token counts of a model; each is `None` if the model does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The tokens of the prompt.
    pub input: Option<u64>,
    /// The tokens of the answer.
    pub output: Option<u64>,
}

/// The maximum number of tokens that are counted for one call, for its prompt and answer together. The limit is higher
/// than the limit of any model.
const MAX_TOKENS: u64 = 1 << 32;

impl Tokens {
    /// Returns the counts, limited to [`MAX_TOKENS`]. A peer reports the counts, and the tenant is charged for their sum.
    pub(crate) fn bounded(self) -> Self {
        let input = self.input.map(|input| input.min(MAX_TOKENS));
        let left = MAX_TOKENS.saturating_sub(input.unwrap_or(0));
        Self { input, output: self.output.map(|output| output.min(left)) }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    kind: StepKind,
    name: String,
    start_time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The ids of the step's span. `None` if the trace is not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
}

/// Creates a record of steps that extensions may read.
impl Default for Steps {
    fn default() -> Self {
        Self { kept: Some(Arc::default()), tokens: None, cpu: None, times: None }
    }
}

impl Steps {
    /// Creates steps without a record, for turns whose steps no extension may read.
    #[must_use]
    pub const fn unread() -> Self {
        Self { kept: None, tokens: None, cpu: None, times: None }
    }

    /// Makes all steps add their tokens to `tokens`, including steps that are not recorded.
    #[must_use]
    pub fn counting_in(self, tokens: Option<TokenCount>) -> Self {
        Self { tokens, ..self }
    }

    /// Makes the agent's work add its CPU time to `cpu`.
    #[must_use]
    pub fn taking_time_of(self, cpu: Option<CpuTime>) -> Self {
        Self { cpu, ..self }
    }

    /// Makes the steps add their durations to `times`.
    #[must_use]
    pub fn timed_in(self, times: Arc<CallTimes>) -> Self {
        Self { times: Some(times), ..self }
    }

    /// The counter for the CPU time of the agent in this turn.
    #[must_use]
    pub fn cpu(&self) -> Option<CpuTime> {
        self.cpu.clone()
    }

    /// Records the beginning of a step.
    #[must_use = "the step ends when this is dropped"]
    pub fn begin(&self, kind: StepKind, name: &str) -> OpenStep {
        let span = begin_span(kind, name);
        let index = self.record(kind, name, &span);
        OpenStep {
            steps: self.clone(),
            kind,
            began: self.times.is_some().then(Instant::now),
            is_finished: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            index,
            counted: Mutex::default(),
            uncounted: AtomicUsize::new(0),
            span,
            measured: annex_telemetry::measure(work_of(kind), name),
        }
    }

    /// Records a step and returns its index; `None` if the step is not recorded.
    fn record(&self, kind: StepKind, name: &str, span: &Span) -> Option<usize> {
        let mut steps = self.lock()?;
        let index = (steps.len() < MAX_STEPS).then_some(steps.len());
        if index.is_some() {
            let (trace_id, span_id) = span.ids().unzip();
            steps.push(Step {
                kind,
                name: cut(name),
                start_time: Timestamp::now(),
                end_time: None,
                input_tokens: None,
                output_tokens: None,
                error: None,
                trace_id,
                span_id,
            });
        }
        index
    }

    /// The steps so far as a JSON array of objects with `kind`, `name` and `startTime`, and if known `endTime`,
    /// `inputTokens`, `outputTokens` and `error`. A step whose trace is recorded has the `traceId` and `spanId` of its
    /// span.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Texts, numbers and times are always JSON.
        let json = self.lock().and_then(|steps| serde_json::to_string(&*steps).ok());
        json.unwrap_or_else(|| "[]".to_owned())
    }

    fn lock(&self) -> Option<MutexGuard<'_, Vec<Step>>> {
        // A panic leaves at worst a step without an end, and the record is not worth failing a turn for.
        Some(self.kept.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl OpenStep {
    /// Records the model's token counts so far. A `None` leaves the earlier count unchanged.
    pub fn count(&self, tokens: Tokens) {
        if self.steps.tokens.is_some() || self.span.is_recording() || self.measured.is_kept() {
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            counted.input = tokens.input.or(counted.input);
            counted.output = tokens.output.or(counted.output);
        }
        self.change(|step| {
            step.input_tokens = tokens.input.or(step.input_tokens);
            step.output_tokens = tokens.output.or(step.output_tokens);
        });
    }

    /// Sets the provider of the model in the span of the step.
    pub fn provide(&mut self, provider: &'static str) {
        self.span.set("gen_ai.provider.name", provider);
        self.span.set("gen_ai.system", provider);
    }

    /// Runs work of the step. Requests to other servers in this work belong to the span of the step.
    pub fn within<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        annex_telemetry::within(&self.span, work)
    }

    /// Counts the bytes of a model's prompt or answer. The count is used if the call is broken off before [`Self::finish`],
    /// because such a call uses tokens too. If the bytes make up more tokens than the model has counted, the tokens of the
    /// bytes are charged.
    pub fn pass(&self, bytes: usize) {
        self.uncounted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Marks the step as complete: the model has answered, or could not be reached. Only the model's own counts are
    /// charged. A step without this call or a call of [`Self::fail`] counts as broken off.
    pub fn finish(&self) {
        self.is_finished.store(true, Ordering::Relaxed);
        self.uncounted.store(0, Ordering::Relaxed);
    }

    /// Records the reason of a failure, as a text that extensions may read.
    pub fn fail(&self, error: &str) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.change(|step| step.error = Some(cut(error)));
    }

    fn change(&self, change: impl FnOnce(&mut Step)) {
        let Some(index) = self.index else { return };
        let Some(mut steps) = self.steps.lock() else { return };
        if let Some(step) = steps.get_mut(index) {
            change(step);
        }
    }
}

impl OpenStep {
    fn end(&self) -> CallEnd {
        if self.has_failed.load(Ordering::Relaxed) {
            CallEnd::Failed
        } else if self.is_finished.load(Ordering::Relaxed) {
            CallEnd::Ok
        } else {
            CallEnd::BrokenOff
        }
    }
}

fn work_of(kind: StepKind) -> Work {
    match kind {
        StepKind::Model => Work::Model,
        StepKind::Agent => Work::OtherAgent,
        StepKind::Tool => Work::Tool,
    }
}

/// Begins the span of a step, with the attributes that OpenTelemetry defines for generative AI.
fn begin_span(kind: StepKind, name: &str) -> Span {
    let (span_kind, operation, attribute) = match kind {
        StepKind::Model => (SpanKind::Client, "chat", "gen_ai.request.model"),
        StepKind::Agent => (SpanKind::Client, "invoke_agent", "gen_ai.agent.name"),
        StepKind::Tool => (SpanKind::Internal, "execute_tool", "gen_ai.tool.name"),
    };
    let mut span = annex_telemetry::span(span_kind, operation);
    if span.is_recording() {
        span.extend_name(name);
        span.set("gen_ai.operation.name", operation);
        span.set_text(attribute, name);
    }
    span
}

impl OpenStep {
    /// Sets the attributes of the span that are known at the end of the step. Texts of failures are left out: they may
    /// quote what users and tools have said.
    fn end_span(&mut self, Tokens { input, output }: Tokens) {
        let tokens = [("gen_ai.usage.input_tokens", input), ("gen_ai.usage.output_tokens", output)];
        for (key, tokens) in tokens {
            if let Some(tokens) = tokens {
                self.span.set_number(key, tokens);
            }
        }
        match self.end() {
            CallEnd::Ok => {}
            CallEnd::Failed => self.span.fail("failed"),
            CallEnd::BrokenOff => self.span.fail("broken_off"),
        }
    }
}

impl Drop for OpenStep {
    fn drop(&mut self) {
        if let (Some(times), Some(began)) = (&self.steps.times, self.began)
            && let Some(histogram) = times.of(self.kind, self.end())
        {
            histogram.add(began.elapsed());
        }
        let tokens = mem::take(self.counted.get_mut().unwrap_or_else(PoisonError::into_inner));
        if self.span.is_recording() {
            self.end_span(tokens);
        }
        if self.measured.is_kept() {
            let end = self.end();
            self.measured.counts(tokens.input.unwrap_or(0), tokens.output.unwrap_or(0));
            self.measured.ends_as(end.name());
        }
        if let Some(count) = &self.steps.tokens {
            let Tokens { input, output } = tokens;
            let counted = input.unwrap_or(0).saturating_add(output.unwrap_or(0));
            let guessed = *self.uncounted.get_mut() / BYTES_OF_TOKEN;
            count.add(counted.max(u64::try_from(guessed).unwrap_or(u64::MAX)));
        }
        self.change(|step| step.end_time = Some(Timestamp::now()));
    }
}

fn cut(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use annex_telemetry::traces::{RequestTrace, Tracer, TracerConfig};
    use annex_telemetry::{Request, of_request};

    use super::{StepKind, Steps};

    #[tokio::test]
    async fn a_step_names_the_span_that_is_sent_for_it() {
        let (tracer, mut queue) = Tracer::new(&TracerConfig { sample: 1.0, follow_parent: true, max_queued: 4 });
        let request = Request::begin_traced(false, Some(RequestTrace::served(tracer)));
        let steps = Steps::default();
        of_request(request, async { steps.begin(StepKind::Model, "some-model").finish() }).await;
        let span = queue.try_recv().expect("a span");
        let expected = format!("\"spanId\":\"{}\"", span.span_context.span_id());
        assert!(steps.to_json().contains(&expected), "{}", steps.to_json());
        drop(steps.begin(StepKind::Tool, "untraced"));
        assert_eq!(steps.to_json().matches("spanId").count(), 1);
    }
}
