//! The session as a turn sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::{Event, EventError};
use crate::limits::Limits;
use crate::session::Session;
use crate::session_state::{SessionState, set};
use crate::state::{State, StateDelta};

/// The most bytes of the conversation that a turn reads. Sessions in a database may hold more than fits into memory.
pub(crate) const HISTORY_BYTES: usize = 8 << 20;

/// The error code of a turn that was interrupted.
const BROKEN_OFF: &str = "BROKEN_OFF";

/// The state in the turn, and the events of the turn so far.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) exists: bool,
    pub(crate) revision: u64,
    pub(crate) state: SessionState,
    /// `temp:` keys with their prefix.
    pub(crate) temp: State,
    /// True if the user's event is the last one of this turn.
    pub(crate) is_unanswered: bool,
    /// The event that the last turn lacks: it ended with the process, or its end could not be stored.
    pub(crate) broken_off: Option<Event>,
    /// The id of the user's event which that turn left without an answer.
    pub(crate) unanswered: Option<String>,
    /// The only event of a session that this turn began.
    pub(crate) first: Option<First>,
    /// The latest events, as read with the session, and the events appended since. The first caller of `history` takes
    /// them.
    pub(crate) history: Option<History>,
}

pub(crate) struct History {
    pub(crate) events: Vec<Arc<Event>>,
    /// The number of events that was requested from the store.
    pub(crate) asked: usize,
}

pub(crate) struct First {
    pub(crate) event: Arc<Event>,
    pub(crate) is_stored: bool,
}

impl First {
    /// Keeps an event before which there is none. One with artifacts is not kept, because they are read from the store.
    pub(crate) fn of(expected: u64, earlier: Option<&Event>, event: &Event) -> Option<Self> {
        let is_first = expected == 0 && earlier.is_none() && event.artifacts.is_empty();
        is_first.then(|| Self { event: Arc::new(event.clone()), is_stored: true })
    }
}

impl History {
    /// Adds events in their stored form.
    pub(crate) fn push(&mut self, events: &[Event]) {
        let stored = |event: &Event| Arc::new(Event { artifacts: BTreeMap::new(), ..event.clone() });
        self.events.extend(events.iter().map(stored));
    }

    /// The latest `count` events, as many as fit into [`HISTORY_BYTES`]. `None` if `count` is more than was read.
    pub(crate) fn latest(mut self, count: usize) -> Option<Vec<Arc<Event>>> {
        let fits = |bytes: &mut usize, event: &Arc<Event>| {
            *bytes = bytes.saturating_add(event.size());
            (*bytes <= HISTORY_BYTES).then_some(())
        };
        let fitting = self.events.iter().rev().take(count).scan(0, fits).count();
        let skipped = self.events.len().saturating_sub(fitting);
        self.events.drain(..skipped);
        (count <= self.asked).then_some(self.events)
    }
}

impl View {
    /// The view of a session that was read with its last event, or with the `history` latest events.
    pub(crate) fn of(session: Session, history: usize) -> Self {
        let exists = session.exists();
        let unanswered = session.events.last().filter(|event| event.is_from_user());
        let broken_off = unanswered.map(|event| {
            let message = "The turn was broken off before the agent had answered.".to_owned();
            let author = session.key.app.clone();
            let invocation = event.invocation_id.clone();
            Event::failed(author, invocation, EventError { code: BROKEN_OFF.to_owned(), message })
        });
        let unanswered = unanswered.map(|event| event.id.clone());
        let history = (history > 0).then_some(History { events: session.events, asked: history });
        let revision = session.revision;
        Self { exists, revision, state: session.state, broken_off, unanswered, history, ..Self::default() }
    }

    /// True if the last turn stored this message of the user and ended before any answer. This turn then continues from
    /// that event, and keeps the `temp:` keys for itself.
    pub(crate) fn goes_on_from(&mut self, event: &mut Event, limits: &Limits) -> bool {
        if self.unanswered.as_ref() != Some(&event.id) {
            return false;
        }
        (self.is_unanswered, self.broken_off, self.unanswered) = (true, None, None);
        self.apply_temp(event.state_delta.take_temp(), limits);
        true
    }

    /// The expected revision for appending `event`, and the event to store before it.
    pub(crate) fn next_step(&self, event: &Event) -> (u64, Option<Event>) {
        // A turn that is taken up again brings no message of the user, and answers the one that is there.
        let is_another = |last: &&Event| event.is_from_user() && event.invocation_id != last.invocation_id;
        let earlier = match self.unstored() {
            Some(first) => Some(Event::clone(&first)),
            None => self.broken_off.as_ref().filter(is_another).cloned(),
        };
        (self.revision, earlier)
    }

    pub(crate) fn unstored(&self) -> Option<Arc<Event>> {
        self.first.as_ref().filter(|first| !first.is_stored).map(|first| Arc::clone(&first.event))
    }

    pub(crate) fn follow(&mut self, revision: u64, change: impl FnOnce(&mut Self)) {
        (self.exists, self.revision) = (true, revision);
        change(self);
    }

    /// Applies the delta of an appended event.
    pub(crate) fn apply(&mut self, delta: StateDelta, limits: &Limits, is_from_user: bool) {
        self.state.apply(delta, limits);
        self.is_unanswered = is_from_user;
        (self.broken_off, self.unanswered) = (None, None);
    }

    /// Sets and removes `temp:` keys, which have their prefix.
    pub(crate) fn apply_temp(&mut self, delta: StateDelta, limits: &Limits) {
        for (key, value) in State::from(delta) {
            set(&mut self.temp, &key, value, limits);
        }
    }
}
