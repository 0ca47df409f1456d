//! The part of a conversation that a running turn keeps in memory.

use std::sync::Arc;

use annex_protocol::{JsonObject, TaskId};

use crate::entry::{Entry, Event, Note};
use crate::history::{ConversationSnapshot, Window};
use crate::state::{ScopedState, set};

/// The state that a turn sees, and its progress in the conversation.
pub(crate) struct View {
    pub(crate) exists: bool,
    pub(crate) state: ScopedState,
    /// The `temp:` keys of the turn, with their prefix.
    pub(crate) temp: JsonObject,
    /// True if the last event of this turn is from the user.
    pub(crate) is_unanswered: bool,
    /// The ids of the conversation at the upstream agent.
    pub(crate) upstream: Option<Arc<str>>,
    /// The number and the digest of the last receipt.
    pub(crate) receipt: Option<Arc<str>>,
    /// The events that were read with the conversation, and the later events of the turn. `None` once a reader has
    /// taken them, or once an append has failed.
    pub(crate) history: Option<KnownHistory>,
}

pub(crate) struct KnownHistory {
    events: Vec<Arc<Event>>,
    /// The number of latest events that were read with the conversation.
    asked: usize,
}

impl View {
    /// The view of a conversation that was just read. The read requested the `asked` latest events.
    pub(crate) fn of(found: ConversationSnapshot, asked: usize, task: &TaskId) -> Self {
        // True for the message of this turn, if another process has begun the turn.
        let is_its = |event: &Arc<Event>| event.is_from_user() && *event.invocation_id == *task.as_str();
        let is_unanswered = found.history.last().is_some_and(is_its);
        Self {
            exists: found.exists(),
            // If nothing was said before, all events are those of the turn.
            history: (asked > 0 || !found.exists()).then(|| KnownHistory {
                events: found.history,
                asked: if found.number == 0 { usize::MAX } else { asked },
            }),
            state: found.state,
            temp: JsonObject::new(),
            is_unanswered,
            upstream: found.upstream,
            receipt: found.receipt,
        }
    }

    /// The events of the window; `None` if the window is larger than the known history.
    pub(crate) fn take_history(&mut self, window: Window) -> Option<Vec<Arc<Event>>> {
        let KnownHistory { mut events, asked } = self.history.take()?;
        let skipped = events.len().saturating_sub(window.fitting(events.iter().rev()));
        events.drain(..skipped);
        (window.events <= asked).then_some(events)
    }

    /// Applies an entry that is stored.
    pub(crate) fn apply(&mut self, entry: &Entry, null_removes: bool) {
        if let Entry::Note(Note::UpstreamContext(ids)) = entry {
            self.upstream = Some(Arc::clone(ids));
        }
        if let Entry::Note(Note::Receipt(last)) = entry {
            self.receipt = Some(Arc::clone(last));
        }
        let Some(event) = entry.event() else { return };
        self.exists = true;
        self.is_unanswered = event.is_from_user();
        self.set_state(event, null_removes);
        if let Some(history) = &mut self.history {
            history.events.push(Event::kept(Arc::clone(event)));
        }
    }

    /// Applies an event once more, after its content has been amended.
    pub(crate) fn apply_amended(&mut self, event: &Arc<Event>, null_removes: bool) {
        self.set_state(event, null_removes);
        let known = self.history.iter_mut().flat_map(|history| &mut history.events);
        for known in known.filter(|known| known.id == event.id) {
            *known = Event::kept(Arc::clone(event));
        }
    }

    fn set_state(&mut self, event: &Event, null_removes: bool) {
        if !event.state_delta.is_empty() {
            let mut delta = event.state_delta.clone();
            for (key, value) in JsonObject::from(delta.take_temp()) {
                set(&mut self.temp, &key, value, null_removes);
            }
            self.state.apply(delta, null_removes);
        }
    }
}
