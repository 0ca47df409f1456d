//! A conversation as it was read: its history, its state and its artifacts.

use std::collections::VecDeque;
use std::sync::Arc;

use annex_protocol::{ContextId, Parts, Timestamp};

use crate::entry::Event;
use crate::key::ConversationKey;
use crate::limits::Limits;
use crate::size;
use crate::state::ScopedState;

/// The part of the history to read: the latest events, within two limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The maximum number of events that are read.
    pub events: usize,
    /// The maximum size of all events together, in bytes, roughly counted.
    pub bytes: usize,
}

/// A copy of a conversation at the time of the read. It does not show later changes.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationSnapshot {
    /// The key of the conversation.
    pub key: ConversationKey,
    /// The number of events since the conversation began; 0 when the conversation does not exist.
    pub number: u64,
    /// The stored state that the conversation sees: its own keys and the shared keys.
    pub state: ScopedState,
    /// The timestamp of the last event. Each event brings its own timestamp, so this time can go backwards.
    pub updated_at: Timestamp,
    /// The events of the requested window, without artifacts.
    pub history: Vec<Arc<Event>>,
    /// The ids of the conversation at the upstream agent ([`Note::UpstreamContext`](crate::Note::UpstreamContext)).
    pub upstream: Option<Arc<str>>,
    /// The number and the digest of the last receipt ([`Note::Receipt`](crate::Note::Receipt)).
    pub receipt: Option<Arc<str>>,
}

/// A position in a list of conversations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConversationCursor {
    /// The last update of the conversation at this position.
    pub updated_at: Timestamp,
    /// The user of that conversation.
    pub user: Arc<str>,
    /// The context of that conversation.
    pub context: ContextId,
}

/// An artifact that is kept with a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredArtifact {
    /// The number of times that the name was written; 1 for the first time.
    pub version: u64,
    /// The content.
    pub parts: Parts,
}

impl Window {
    /// A window that contains every event.
    pub const ALL: Self = Self { events: usize::MAX, bytes: usize::MAX };
    /// A window that contains no event.
    pub const NONE: Self = Self { events: 0, bytes: 0 };

    /// A window of the latest events: at most `events`, of any size.
    #[must_use]
    pub const fn latest(events: usize) -> Self {
        Self { events, bytes: usize::MAX }
    }

    /// The number of events, from the newest, that fit into the window. Stops at the first event that does not fit, so the
    /// history has no gap.
    pub(crate) fn fitting<'a>(&self, newest_first: impl Iterator<Item = &'a Arc<Event>>) -> usize {
        let fits = |sum: &mut usize, event: &Arc<Event>| {
            *sum = sum.saturating_add(event.size());
            (*sum <= self.bytes).then_some(())
        };
        newest_first.take(self.events).scan(0, fits).count()
    }
}

impl ConversationSnapshot {
    /// True if the conversation exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.number != 0
    }

    /// The position of this conversation in a list of conversations.
    #[must_use]
    pub fn cursor(&self) -> ConversationCursor {
        let user = self.key.user.clone();
        ConversationCursor { updated_at: self.updated_at, user, context: self.key.context.clone() }
    }
}

/// The latest events of one conversation in memory, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct History {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
}

impl History {
    /// The size of the events, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an event, and drops the oldest events until at most `keep` are left.
    pub(crate) fn push(&mut self, event: Arc<Event>, keep: usize) {
        self.bytes += event.size();
        self.events.push_back(event);
        while self.events.len() > keep
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.size();
        }
    }

    pub(crate) fn read(&self, window: Window) -> Vec<Arc<Event>> {
        let fitting = window.fitting(self.events.iter().rev());
        self.events.iter().skip(self.events.len().saturating_sub(fitting)).cloned().collect()
    }
}

/// The artifacts of one conversation in memory, the latest version of each. The last written artifact is at the end.
#[derive(Debug, Default)]
pub(crate) struct Artifacts {
    entries: Vec<KeptArtifact>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptArtifact {
    name: String,
    artifact: StoredArtifact,
    bytes: usize,
}

impl Artifacts {
    /// The size of all artifacts, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, name: &str) -> Option<&StoredArtifact> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| &entry.artifact)
    }

    /// Adds a version of an artifact. If the artifacts then exceed a limit, the artifacts that were not written for longest are
    /// dropped.
    pub(crate) fn put(&mut self, name: &str, parts: &Parts, limits: &Limits) {
        let previous = self.entries.iter().position(|entry| entry.name == name).map(|index| self.take(index));
        // A name whose artifact was dropped for others begins at version 1 again, because nothing of it is kept.
        let version = previous.map_or(1, |previous| previous.artifact.version + 1);
        let bytes = size::of_parts(parts);
        let artifact = StoredArtifact { version, parts: parts.clone() };
        self.entries.push(KeptArtifact { name: name.to_owned(), artifact, bytes });
        self.bytes += bytes;
        // The new version is never dropped here: a version that exceeds the limits alone was refused before.
        while self.entries.len() > limits.artifacts.max(1) || self.bytes > limits.artifact_bytes.max(bytes) {
            self.take(0);
        }
    }

    fn take(&mut self, index: usize) -> KeptArtifact {
        let entry = self.entries.remove(index);
        self.bytes -= entry.bytes;
        entry
    }
}
