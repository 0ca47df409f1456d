//! An event: one entry of a conversation, with the state change that belongs to it.

use annex_protocol::{Part, PartContent, Timestamp};

use crate::state::StateDelta;

/// The author of what a user said. Any other author is the name of an agent.
pub const USER_AUTHOR: &str = "user";

/// One entry of a conversation. The history that a model sees is made of these.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Unique within the session. The same event appended again under the same id is stored once.
    pub id: String,
    /// [`USER_AUTHOR`] or the name of an agent.
    pub author: String,
    /// The turn that it belongs to, for example the task id.
    pub invocation_id: String,
    /// When it happened, by the author's clock. Events are ordered by arrival, not by this.
    pub timestamp: Timestamp,
    /// What was said.
    pub parts: Vec<Part>,
    /// The state change, stored in the same step.
    pub state_delta: StateDelta,
    /// A piece of an event that comes later as a whole. Partial events are never stored and change no state.
    pub partial: bool,
}

impl Event {
    /// A whole event that happens now, with a new id.
    pub fn new(
        author: impl Into<String>,
        invocation_id: impl Into<String>,
        parts: Vec<Part>,
        state_delta: StateDelta,
    ) -> Self {
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            author: author.into(),
            invocation_id: invocation_id.into(),
            timestamp: Timestamp::now(),
            parts,
            state_delta,
            partial: false,
        }
    }

    /// Whether the user said this.
    pub fn is_from_user(&self) -> bool {
        self.author == USER_AUTHOR
    }

    /// Roughly the memory that it takes, in bytes: its texts and a flat charge for the structures around them.
    pub(crate) fn size(&self) -> usize {
        const OVERHEAD: usize = 256;
        let parts: usize = self.parts.iter().map(part_size).sum();
        let delta: usize = self.state_delta.iter().map(|(key, value)| key.len() + value.get().len()).sum();
        OVERHEAD + self.id.len() + self.author.len() + self.invocation_id.len() + parts + delta
    }
}

fn part_size(part: &Part) -> usize {
    let content = match &part.content {
        PartContent::Text(text) | PartContent::Raw(text) | PartContent::Url(text) => text.len(),
        PartContent::Data(json) => json.get().len(),
    };
    let metadata: usize = part.metadata.iter().map(|(key, value)| key.len() + value.get().len()).sum();
    std::mem::size_of::<Part>() + content + metadata + part.filename.len() + part.media_type.len()
}
