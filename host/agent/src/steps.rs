//! The steps of an agent in a turn, as they are recorded for whoever may read them.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use annex_protocol::Timestamp;
use serde::Serialize;

use crate::call_times::{CallEnd, CallTimes};
use crate::work::CpuTime;

/// Steps kept of one turn. Those beyond are not recorded.
const MAX_STEPS: usize = 256;
/// Bytes kept of a name or an error.
const MAX_TEXT: usize = 256;

/// The steps of one turn, in the order in which they began. Clones share them. A turn keeps at most 256 steps, whose
/// texts have at most 256 bytes each.
#[derive(Clone, Debug)]
pub struct Steps {
    /// `None` where nobody may read them.
    kept: Option<Arc<Mutex<Vec<Step>>>>,
    /// Whoever pays for the tokens.
    tokens: Option<TokenCount>,
    /// Whoever pays for the time of cores that the agent takes.
    cpu: Option<CpuTime>,
    /// Where it counts how long the steps take.
    times: Option<Arc<CallTimes>>,
}

/// The tokens that models have counted, of prompts and answers together. Clones count in the same number.
#[derive(Clone, Debug, Default)]
pub struct TokenCount(Arc<AtomicU64>);

impl TokenCount {
    /// Counts more of them.
    pub fn add(&self, tokens: u64) {
        // Relaxed is enough: nothing is ordered by the number. A number that wrapped would say that little was used.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| Some(sum.saturating_add(tokens)));
    }

    /// The tokens that were counted since the last call of this method.
    #[must_use]
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }

    /// The same without taking them.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A step that has begun. It ends when this is dropped.
#[derive(Debug)]
pub struct OpenStep {
    steps: Steps,
    kind: StepKind,
    /// `None` where nobody counts how long it takes.
    began: Option<Instant>,
    is_finished: AtomicBool,
    has_failed: AtomicBool,
    /// `None` when there were too many.
    index: Option<usize>,
    /// The tokens that the model has counted so far.
    counted: Mutex<Tokens>,
    /// Bytes that were sent and received and that the model may not have counted yet.
    uncounted: AtomicUsize,
}

/// Of a call that is broken off before its model has counted, so many bytes are taken for a token.
const BYTES_OF_TOKEN: usize = 4;

/// Kinds of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// A model was asked.
    Model,
    /// Another agent was asked.
    Agent,
    /// A tool was called.
    Tool,
}

/// The numbers of tokens that a model counted; each is `None` where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The tokens of the prompt.
    pub input: Option<u64>,
    /// The tokens of the answer.
    pub output: Option<u64>,
}

/// The most tokens that one call of a model counts, of its prompt and answer together: far more than any model takes.
const MAX_TOKENS: u64 = 1 << 32;

impl Tokens {
    /// The same, but not more than one call can use: the numbers are those of a peer, and others are paid by their sums.
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
}

/// Steps that are recorded.
impl Default for Steps {
    fn default() -> Self {
        Self { kept: Some(Arc::default()), tokens: None, cpu: None, times: None }
    }
}

impl Steps {
    /// Steps that nobody may read, and that are not recorded.
    #[must_use]
    pub const fn unread() -> Self {
        Self { kept: None, tokens: None, cpu: None, times: None }
    }

    /// The same steps, whose tokens are counted there too, also those of steps that are not recorded.
    #[must_use]
    pub fn counting_in(self, tokens: Option<TokenCount>) -> Self {
        Self { tokens, ..self }
    }

    /// The same steps, for whose time of cores somebody pays.
    #[must_use]
    pub fn taking_time_of(self, cpu: Option<CpuTime>) -> Self {
        Self { cpu, ..self }
    }

    /// The same steps, whose durations count there.
    #[must_use]
    pub fn timed_in(self, times: Arc<CallTimes>) -> Self {
        Self { times: Some(times), ..self }
    }

    /// Where the time of cores counts that the agent takes in the turn.
    #[must_use]
    pub fn cpu(&self) -> Option<CpuTime> {
        self.cpu.clone()
    }

    /// Records that a step begins now.
    #[must_use = "the step ends when this is dropped"]
    pub fn begin(&self, kind: StepKind, name: &str) -> OpenStep {
        let index = self.record(kind, name);
        OpenStep {
            steps: self.clone(),
            kind,
            began: self.times.is_some().then(Instant::now),
            is_finished: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            index,
            counted: Mutex::default(),
            uncounted: AtomicUsize::new(0),
        }
    }

    /// The place of the step; `None` where it is not recorded.
    fn record(&self, kind: StepKind, name: &str) -> Option<usize> {
        let mut steps = self.lock()?;
        let index = (steps.len() < MAX_STEPS).then_some(steps.len());
        if index.is_some() {
            steps.push(Step {
                kind,
                name: cut(name),
                start_time: Timestamp::now(),
                end_time: None,
                input_tokens: None,
                output_tokens: None,
                error: None,
            });
        }
        index
    }

    /// The steps so far as a JSON array of objects with `kind`, `name`, `startTime`, and where they are known `endTime`,
    /// `inputTokens`, `outputTokens` and `error`.
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
    /// Notes the tokens that a model has counted so far. A count that it leaves out stays as it was noted before.
    pub fn count(&self, tokens: Tokens) {
        if self.steps.tokens.is_some() {
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            counted.input = tokens.input.or(counted.input);
            counted.output = tokens.output.or(counted.output);
        }
        self.change(|step| {
            step.input_tokens = tokens.input.or(step.input_tokens);
            step.output_tokens = tokens.output.or(step.output_tokens);
        });
    }

    /// Notes that so many bytes were sent to a model, or received. They are counted if the step ends before [`Self::finish`],
    /// and its model has counted less: whoever breaks calls off has used the tokens.
    pub fn pass(&self, bytes: usize) {
        self.uncounted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that nothing more comes: the model has said all, or was not reached. What it has counted is all that it counts. A
    /// step that ends without this or [`Self::fail`] was broken off.
    pub fn finish(&self) {
        self.is_finished.store(true, Ordering::Relaxed);
        self.uncounted.store(0, Ordering::Relaxed);
    }

    /// Notes the reason that it failed, in words that extensions may read.
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

impl Drop for OpenStep {
    fn drop(&mut self) {
        if let (Some(times), Some(began)) = (&self.steps.times, self.began)
            && let Some(histogram) = times.of(self.kind, self.end())
        {
            histogram.add(began.elapsed());
        }
        if let Some(count) = &self.steps.tokens {
            let Tokens { input, output } = mem::take(self.counted.get_mut().unwrap_or_else(PoisonError::into_inner));
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
