//! The events of one session in memory: the newest ones, in order of arrival, and found by id.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use annex_protocol::Timestamp;

use crate::event::Event;

/// Which events to read. All conditions apply: first the most recent ones, then the time. The default is all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// At most this many, the latest ones; `Some(0)` reads none.
    pub num_recent: Option<usize>,
    /// Only events at or after this time.
    pub after_timestamp: Option<Timestamp>,
    /// Approximate cap, in bytes, on the events returned, newest first.
    pub max_bytes: Option<usize>,
}

impl EventFilter {
    /// Every event.
    pub const ALL: Self = Self { num_recent: None, after_timestamp: None, max_bytes: None };
    /// No event.
    pub const NONE: Self = Self::recent(0);

    /// The latest `count` events.
    pub const fn recent(count: usize) -> Self {
        Self { num_recent: Some(count), after_timestamp: None, max_bytes: None }
    }
}

/// A log with at most this many events is searched linearly; most conversations have no more.
const FEW: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: VecDeque<Arc<Event>>,
    /// The running number of each event by its id, once the log has more than [`FEW`] events. Numbers continue when old
    /// events are dropped from the front.
    numbers: HashMap<String, u64>,
    dropped: u64,
    bytes: usize,
}

impl EventLog {
    /// The size of its events, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<&Arc<Event>> {
        if self.numbers.is_empty() {
            return self.events.iter().find(|event| event.id == id);
        }
        let number = self.numbers.get(id)?;
        self.events.get(usize::try_from(number - self.dropped).ok()?)
    }

    /// Adds an event whose id is new and drops the oldest ones beyond `keep`.
    pub(crate) fn push(&mut self, event: Event, keep: usize) {
        self.bytes += event.size();
        self.events.push_back(Arc::new(event));
        self.number();
        while self.events.len() > keep
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.size();
            // No number below `dropped` stays in the map, so that `by_id` can subtract.
            self.numbers.remove(&oldest.id);
            self.dropped += 1;
        }
    }

    /// Numbers the last event, and the others when they are no longer few.
    fn number(&mut self) {
        let count = self.events.len();
        let first = match self.numbers.is_empty() {
            true if count <= FEW => return,
            true => 0,
            false => count.saturating_sub(1),
        };
        let numbered = (self.dropped + first as u64..).zip(self.events.range(first..));
        self.numbers.extend(numbered.map(|(number, event)| (event.id.clone(), number)));
    }

    pub(crate) fn read(&self, filter: EventFilter) -> Vec<Arc<Event>> {
        let recent = filter.num_recent.unwrap_or(usize::MAX);
        let room = filter.max_bytes.unwrap_or(usize::MAX);
        let fits = |bytes: &mut usize, event: &Event| {
            *bytes = bytes.saturating_add(event.size());
            *bytes <= room
        };
        let latest = self.events.iter().rev().take(recent);
        // The scan ends at the first event that does not fit, so that the history has no gap.
        let fitting = latest.scan(0, |bytes, event| fits(bytes, event).then_some(event)).count();
        let skipped = self.events.len().saturating_sub(fitting);
        let in_time = |event: &&Arc<Event>| filter.after_timestamp.is_none_or(|after| event.timestamp >= after);
        self.events.iter().skip(skipped).filter(in_time).cloned().collect()
    }
}
