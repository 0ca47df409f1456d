//! The timeline of a request: the pieces of work for the request, with their times and verdicts.
//!
//! A timeline is bounded: at most [`MAX_PARTS`] pieces of work with [`MAX_NAMES`] different names. Work beyond these
//! bounds is counted and left out. Nothing is formatted here. A page formats a timeline when it is opened.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of pieces of work in one timeline.
pub const MAX_PARTS: usize = 64;
/// The number of pieces of work for which a timeline reserves memory at first.
const USUAL_PARTS: usize = 16;
/// The maximum number of different names in one timeline. Work with a further name has no name.
pub const MAX_NAMES: usize = 16;
/// The maximum size of a name, in bytes. A longer name is cut.
pub const MAX_NAME: usize = 200;
/// The maximum size of all names of one timeline together, in bytes.
const MAX_ALL_NAMES: usize = 1_600;
/// The maximum size of the text of a fault, in bytes.
const MAX_CAUSE: usize = 600;
/// The index of a piece of work without a name.
const NO_NAME: u8 = u8::MAX;

/// The kind of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The caller is authenticated.
    Authentication,
    /// The active extensions are determined.
    Activation,
    /// A hook or a method of an extension runs.
    Hook,
    /// The request waits for the database.
    Store,
    /// The agent runs, in this process or remotely.
    Agent,
    /// The agent calls a model.
    Model,
    /// The agent calls a tool.
    Tool,
    /// The agent calls another agent.
    OtherAgent,
    /// An event of the turn is stored. An event takes no time of its own.
    Event,
}

impl Work {
    /// The name of the kind in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Activation => "activation",
            Self::Hook => "hook",
            Self::Store => "store",
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::OtherAgent => "other_agent",
            Self::Event => "event",
        }
    }
}

/// A piece of work that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The kind of the work.
    pub work: Work,
    /// The name of the work itself, such as the hook `state`. May be empty.
    pub what: &'static str,
    /// The verdict on the work, in one word. Empty if the work cannot fail.
    pub verdict: &'static str,
    /// The beginning of the work.
    pub began: Instant,
    /// The duration of the work.
    pub took: Duration,
    /// The thread time of an extension.
    pub cpu: Duration,
    /// The tokens of a model's prompt. Zero if the model has not counted them.
    pub input_tokens: u64,
    /// The tokens of a model's answer. Zero if the model has not counted them.
    pub output_tokens: u64,
}

impl Part {
    /// A piece of work without a verdict, CPU time and tokens.
    #[must_use]
    pub const fn new(work: Work, what: &'static str, began: Instant, took: Duration) -> Self {
        Self { work, what, verdict: "", began, took, cpu: Duration::ZERO, input_tokens: 0, output_tokens: 0 }
    }
}

/// A piece of work, as a page shows it.
#[derive(Clone, Debug)]
pub struct ShownPart {
    /// The kind of the work.
    pub work: Work,
    /// The name of the work itself, such as the hook `state`. May be empty.
    pub what: &'static str,
    /// The verdict on the work, in one word. May be empty.
    pub verdict: &'static str,
    /// The name of the worker, such as the URI of an extension. An author or a client may have written the text.
    pub name: String,
    /// The time from the arrival of the request to the beginning of the work.
    pub start: Duration,
    /// The duration of the work.
    pub took: Duration,
    /// The thread time of an extension.
    pub cpu: Duration,
    /// The tokens of a model's prompt. Zero if unknown.
    pub input_tokens: u64,
    /// The tokens of a model's answer. Zero if unknown.
    pub output_tokens: u64,
}

/// A fault of the request that is in the log.
#[derive(Clone, Debug)]
pub struct LoggedFault {
    /// The error id under which the log has the fault.
    pub error_id: Box<str>,
    /// The fault and its causes, in one escaped line of at most 600 bytes.
    pub cause: Box<str>,
}

/// The pieces of work that were done for one request. Work that continues after the answer is added too.
#[derive(Debug)]
pub struct Timeline {
    began: Instant,
    stored: Mutex<StoredParts>,
    left_out: AtomicU64,
    fault: OnceLock<LoggedFault>,
}

#[derive(Debug, Default)]
struct StoredParts {
    names: Vec<Box<str>>,
    /// The size of all names, in bytes.
    bytes: usize,
    parts: Vec<StoredPart>,
}

/// A [`Part`] without its name. Times are microseconds.
#[derive(Clone, Copy, Debug)]
struct StoredPart {
    what: &'static str,
    verdict: &'static str,
    start: u32,
    took: u32,
    cpu: u32,
    input_tokens: u32,
    output_tokens: u32,
    work: Work,
    /// The index of the name, or [`NO_NAME`].
    name: u8,
}

impl Timeline {
    pub(crate) fn new(began: Instant) -> Arc<Self> {
        Arc::new(Self { began, stored: Mutex::default(), left_out: AtomicU64::new(0), fault: OnceLock::new() })
    }

    /// Adds a piece of work. `name` names the worker, such as the URI of an extension. It may be empty.
    pub fn add(&self, name: &str, part: &Part) {
        let mut stored = self.lock();
        if stored.parts.len() >= MAX_PARTS {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if stored.parts.is_empty() {
            // Most turns have fewer parts, so their list is allocated once.
            stored.parts.reserve(USUAL_PARTS);
        }
        let name = stored.index_of(name);
        stored.parts.push(StoredPart {
            what: part.what,
            verdict: part.verdict,
            start: micros(part.began.saturating_duration_since(self.began)),
            took: micros(part.took),
            cpu: micros(part.cpu),
            input_tokens: u32::try_from(part.input_tokens).unwrap_or(u32::MAX),
            output_tokens: u32::try_from(part.output_tokens).unwrap_or(u32::MAX),
            work: part.work,
            name,
        });
    }

    /// Keeps a fault that was logged for the request. Only the first fault is kept.
    pub(crate) fn failed(&self, error_id: &str, cause: &str) {
        let cause = || cause.get(..cause.floor_char_boundary(MAX_CAUSE)).unwrap_or_default().into();
        let _ = self.fault.get_or_init(|| LoggedFault { error_id: error_id.into(), cause: cause() });
    }

    /// The first fault of the request that is in the log.
    #[must_use]
    pub fn fault(&self) -> Option<&LoggedFault> {
        self.fault.get()
    }

    /// The number of pieces of work that were left out.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// The pieces of work, by the time of their beginning.
    #[must_use]
    pub fn parts(&self) -> Vec<ShownPart> {
        let stored = self.lock();
        let name_of = |index: u8| stored.names.get(usize::from(index)).map_or_else(String::new, ToString::to_string);
        let shown = stored.parts.iter().map(|part| ShownPart {
            work: part.work,
            what: part.what,
            verdict: part.verdict,
            name: name_of(part.name),
            start: Duration::from_micros(part.start.into()),
            took: Duration::from_micros(part.took.into()),
            cpu: Duration::from_micros(part.cpu.into()),
            input_tokens: part.input_tokens.into(),
            output_tokens: part.output_tokens.into(),
        });
        let mut shown: Vec<_> = shown.collect();
        // Work is added at its end. Of two that begin together, the longer one contains the other.
        shown.sort_by_key(|part| (part.start, std::cmp::Reverse(part.took)));
        shown
    }

    fn lock(&self) -> MutexGuard<'_, StoredParts> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoredParts {
    /// The index of a name. A new name is stored if the list has room.
    fn index_of(&mut self, name: &str) -> u8 {
        let name = name.get(..name.floor_char_boundary(MAX_NAME)).unwrap_or_default();
        let index = match self.names.iter().position(|other| **other == *name) {
            Some(index) => index,
            None if name.is_empty() || self.names.len() >= MAX_NAMES || self.bytes + name.len() > MAX_ALL_NAMES => {
                return NO_NAME;
            }
            None => {
                self.bytes += name.len();
                self.names.push(name.into());
                self.names.len() - 1
            }
        };
        u8::try_from(index).unwrap_or(NO_NAME)
    }
}

/// Whole microseconds. The maximum is 71 minutes.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// A piece of work that runs. Dropping it adds the work to the timeline of the request. Without a timeline, this reads no
/// clock and does nothing.
#[must_use = "the work ends when this is dropped"]
#[derive(Debug)]
pub struct Measurement(Option<RunningWork>);

#[derive(Debug)]
struct RunningWork {
    timeline: Arc<Timeline>,
    name: Box<str>,
    part: Part,
}

impl Measurement {
    pub(crate) fn begin(timeline: Option<&Arc<Timeline>>, work: Work, name: &str) -> Self {
        Self(timeline.map(|timeline| RunningWork {
            timeline: Arc::clone(timeline),
            name: name.get(..name.floor_char_boundary(MAX_NAME)).unwrap_or_default().into(),
            part: Part::new(work, "", Instant::now(), Duration::ZERO),
        }))
    }

    pub(crate) fn off() -> Self {
        Self(None)
    }

    /// True if the work is added to a timeline.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Sets the verdict on the work, in one word.
    pub fn ends_as(&mut self, verdict: &'static str) {
        if let Some(running) = &mut self.0 {
            running.part.verdict = verdict;
        }
    }

    /// Sets the tokens of a model's prompt and answer. Zero stands for an unknown number.
    pub fn counts(&mut self, input_tokens: u64, output_tokens: u64) {
        if let Some(running) = &mut self.0 {
            running.part.input_tokens = input_tokens;
            running.part.output_tokens = output_tokens;
        }
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        if let Some(RunningWork { timeline, name, mut part }) = self.0.take() {
            part.took = part.began.elapsed();
            timeline.add(&name, &part);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{MAX_ALL_NAMES, MAX_CAUSE, MAX_NAME, MAX_NAMES, MAX_PARTS, Part, StoredPart, Timeline, Work};

    #[test]
    fn work_is_shown_by_its_beginning_and_the_work_around_it_first() {
        let began = Instant::now();
        let timeline = Timeline::new(began);
        let after = |micros| began + Duration::from_micros(micros);
        let part = |work, start, took| Part::new(work, "", after(start), Duration::from_micros(took));
        timeline.add("", &part(Work::Store, 30, 10));
        timeline.add("uri:x", &Part { verdict: "refused", ..part(Work::Hook, 20, 5) });
        timeline.add("", &part(Work::Agent, 30, 50));
        let parts = timeline.parts();
        let shown: Vec<_> =
            parts.iter().map(|part| (part.work, &*part.name, part.verdict, part.took.as_micros())).collect();
        let expected = [(Work::Hook, "uri:x", "refused", 5), (Work::Agent, "", "", 50), (Work::Store, "", "", 10)];
        assert_eq!(shown, expected);
        assert_eq!(parts[0].start, Duration::from_micros(20));
    }

    #[test]
    fn a_timeline_stays_within_its_bounds_whatever_is_added() {
        let timeline = Timeline::new(Instant::now());
        let huge = "ä".repeat(1_000_000);
        for number in 0..1_000 {
            let part = Part::new(Work::Tool, "", Instant::now(), Duration::MAX);
            timeline.add(&format!("{number}{huge}"), &Part { input_tokens: u64::MAX, ..part });
        }
        let cause = "€".repeat(100_000);
        timeline.failed("id", &cause);
        timeline.failed("other", "other");
        let parts = timeline.parts();
        assert_eq!((parts.len(), timeline.left_out()), (MAX_PARTS, 1_000 - MAX_PARTS as u64));
        assert!(parts.iter().all(|part| part.name.len() <= MAX_NAME));
        assert!(parts.iter().map(|part| part.name.len()).sum::<usize>() <= MAX_ALL_NAMES);
        let fault = timeline.fault().expect("a fault");
        assert_eq!((&*fault.error_id, fault.cause.len()), ("id", MAX_CAUSE));
        assert!(timeline.lock().names.len() <= MAX_NAMES);
        assert!(size_of::<StoredPart>() <= 56, "{}", size_of::<StoredPart>());
    }
}
