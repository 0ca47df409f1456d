//! An event: one entry of a conversation, with its state change.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use annex_protocol::{Part, PartContent, Parts, Timestamp};

use crate::state::StateDelta;

/// The author of a user's event. Any other author is the name of an agent.
pub const USER_AUTHOR: &str = "user";

/// One entry of a conversation. The history that a model sees is made of these.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Unique within the session. The same event appended again under the same id is stored once.
    pub id: String,
    /// [`USER_AUTHOR`] or the name of an agent.
    pub author: Arc<str>,
    /// The turn of the event, for example the task id.
    pub invocation_id: Arc<str>,
    /// The time when it happened, by the author's clock. Events are ordered by arrival, not by this.
    pub timestamp: Timestamp,
    /// The content.
    pub parts: Parts,
    /// The state change, stored in the same step.
    pub state_delta: StateDelta,
    /// The artifacts by their names, each stored in the same step as a new version. The session keeps artifacts apart
    /// from events: an event that was read from a store has none.
    pub artifacts: BTreeMap<String, Parts>,
    /// The reason why the agent has no answer. Models are not told.
    pub error: Option<EventError>,
    /// A piece of an event that comes later as a whole. Partial events are never stored and change no state.
    pub partial: bool,
}

/// The reason why an agent has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventError {
    /// The kind of failure, for programs.
    pub code: String,
    /// The explanation that the client got.
    pub message: String,
}

impl Event {
    /// A whole event that happens now, with a new id.
    pub fn new(
        author: impl Into<Arc<str>>,
        invocation_id: impl Into<Arc<str>>,
        parts: impl Into<Parts>,
        state_delta: StateDelta,
    ) -> Self {
        Self {
            id: uuid::Uuid::now_v7().to_string(),
            author: author.into(),
            invocation_id: invocation_id.into(),
            timestamp: Timestamp::now(),
            parts: parts.into(),
            state_delta,
            artifacts: BTreeMap::new(),
            error: None,
            partial: false,
        }
    }

    /// An event of the user that happens now, with a new id.
    pub fn of_user(invocation_id: impl Into<Arc<str>>, parts: impl Into<Parts>, state_delta: StateDelta) -> Self {
        static AUTHOR: LazyLock<Arc<str>> = LazyLock::new(|| USER_AUTHOR.into());
        Self::new(Arc::clone(&AUTHOR), invocation_id, parts, state_delta)
    }

    /// An agent's event that says why there is no answer.
    pub fn failed(author: impl Into<Arc<str>>, invocation_id: impl Into<Arc<str>>, error: EventError) -> Self {
        Self { error: Some(error), ..Self::new(author, invocation_id, Vec::new(), StateDelta::new()) }
    }

    /// True if the user is the author.
    pub fn is_from_user(&self) -> bool {
        *self.author == *USER_AUTHOR
    }

    /// True if `sent` is the event that was stored here, the artifacts aside.
    pub(crate) fn is_same(&self, sent: &Self) -> bool {
        // Taken apart, so that a field which is added later cannot be forgotten here.
        let Self { id, author, invocation_id, timestamp, parts, state_delta, artifacts: _, error, partial } = sent;
        self.id == *id
            && self.author == *author
            && self.invocation_id == *invocation_id
            && self.timestamp == *timestamp
            && self.parts == *parts
            && self.state_delta == *state_delta
            && self.error == *error
            && self.partial == *partial
    }

    /// Approximate memory of the event without its artifacts, in bytes: its texts and a flat charge for the structures
    /// around the texts.
    pub(crate) fn size(&self) -> usize {
        const OVERHEAD: usize = 256;
        let delta: usize = self.state_delta.iter().map(|(key, value)| key.len() + value.get().len()).sum();
        let error = self.error.as_ref().map_or(0, |error| error.code.len() + error.message.len());
        let ids = self.id.len() + self.author.len() + self.invocation_id.len();
        OVERHEAD + ids + parts_size(&self.parts) + delta + error
    }
}

/// The changes of several events together. Later ones win.
pub(crate) fn combined<'a>(mut deltas: impl Iterator<Item = &'a StateDelta>) -> Cow<'a, StateDelta> {
    // Most appends have one delta, which is borrowed and not copied.
    let mut all = deltas.next().map_or_else(|| Cow::Owned(StateDelta::new()), Cow::Borrowed);
    for delta in deltas {
        match all.is_empty() {
            true => all = Cow::Borrowed(delta),
            false if delta.is_empty() => {}
            false => all.to_mut().merge(delta.clone()),
        }
    }
    all
}

/// Roughly the memory that parts take, in bytes.
pub(crate) fn parts_size(parts: &[Part]) -> usize {
    parts.iter().map(part_size).sum()
}

fn part_size(part: &Part) -> usize {
    let content = match &part.content {
        PartContent::Text(text) | PartContent::Raw(text) | PartContent::Url(text) => text.len(),
        PartContent::Data(json) => json.get().len(),
    };
    let metadata: usize = part.metadata.iter().map(|(key, value)| key.len() + value.get().len()).sum();
    std::mem::size_of::<Part>() + content + metadata + part.filename.len() + part.media_type.len()
}
