//! Entries, the records in the log of a conversation.
//!
//! | entry | the history | its task | readers of the task |
//! |---|---|---|---|
//! | [`Message`](Entry::Message) | what the user says, with its state delta | is opened, or goes on | are not shown it |
//! | [`Event`](Entry::Event) | what the agent says or does, with its state delta | is unchanged | are not shown it |
//! | [`Update`](Entry::Update) | is unchanged | changes its status or its artifacts | get it |
//! | [`Note`](Entry::Note) | is unchanged | keeps the note | are not shown it |

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use annex_protocol::{Json, Message, Part, PartContent, Parts, StreamResponse, Timestamp};

use crate::encoding::{Kind, decode};
use crate::size;
use crate::state::StateDelta;

/// The author of the user's events. Events of an agent have the name of the agent as their author.
pub const USER_AUTHOR: &str = "user";

/// One entry of the log of a conversation. Clones share its content.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A message of the client, with which a turn begins.
    Message(Arc<UserMessage>),
    /// An event of the history, with its change of state.
    Event(Arc<Event>),
    /// A new status or artifact of the task.
    Update(Arc<StreamResponse>),
    /// A text that is kept with the task or the conversation.
    Note(Note),
}

/// A message of the client as the log has it.
#[derive(Clone, Debug, PartialEq)]
pub struct UserMessage {
    /// The message, which joins the history of the task.
    pub message: Message,
    /// The event of the user in the history. `None` if an extension has vetoed the message, which is then not a part of the
    /// history.
    pub event: Option<Arc<Event>>,
    /// The time since which the task is SUBMITTED. `None` if the message continues a task.
    pub opens: Option<Timestamp>,
}

/// A text that is kept with a task or a conversation. A later note of the same kind replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The versions of extensions for the next turn of a waiting task, and the extension that interrupted the task.
    Pins(Arc<str>),
    /// The ids of the task at the upstream agent.
    UpstreamTask(Arc<str>),
    /// The ids of the conversation at the upstream agent.
    UpstreamContext(Arc<str>),
    /// The number and the digest of the last receipt of the conversation.
    Receipt(Arc<str>),
}

/// A part of the history: words of the user or the agent, a tool call, a result, or an error. Models see the history.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The id, which is random and therefore unique.
    pub id: String,
    /// [`USER_AUTHOR`] or the name of an agent.
    pub author: Arc<str>,
    /// The id of the task whose turn made the event.
    pub invocation_id: Arc<str>,
    /// The time of the event by the author's clock. Events are ordered by arrival, not by this time.
    pub timestamp: Timestamp,
    /// The content.
    pub parts: Parts,
    /// The change of state, stored in the same step.
    pub state_delta: StateDelta,
    /// New versions of artifacts of the conversation, by name. They are stored apart, so a stored event is read without
    /// artifacts.
    pub artifacts: BTreeMap<String, Parts>,
    /// The reason why the agent has no answer. Models do not see the reason.
    pub error: Option<EventError>,
}

/// The reason why an agent has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventError {
    /// The kind of failure, for programs.
    pub code: String,
    /// The explanation that the client got.
    pub message: String,
}

impl Entry {
    /// A message of the user in the turn `invocation_id`. The message opens its task at the time `opens`, or continues the
    /// task if `opens` is `None`.
    ///
    /// ```
    /// use annex_conversation::{Entry, StateDelta};
    /// use annex_protocol::{Message, Timestamp};
    ///
    /// let hello = Message::user_text("Hello");
    /// let entry = Entry::said_by_user(hello, "t-1", StateDelta::new(), Some(Timestamp::now()));
    /// assert_eq!(&*entry.event().unwrap().author, "user");
    /// ```
    pub fn said_by_user(
        message: Message,
        invocation_id: impl Into<Arc<str>>,
        state_delta: StateDelta,
        opens: Option<Timestamp>,
    ) -> Self {
        let event = Event::of_user(invocation_id, message.parts.clone(), state_delta);
        Self::Message(Arc::new(UserMessage { message, event: Some(Arc::new(event)), opens }))
    }

    /// The event that the entry adds to the history.
    #[must_use]
    pub fn event(&self) -> Option<&Arc<Event>> {
        match self {
            Self::Message(message) => message.event.as_ref(),
            Self::Event(event) => Some(event),
            Self::Update(_) | Self::Note(_) => None,
        }
    }
}

impl From<Event> for Entry {
    fn from(event: Event) -> Self {
        Self::Event(Arc::new(event))
    }
}

impl From<StreamResponse> for Entry {
    fn from(update: StreamResponse) -> Self {
        Self::Update(Arc::new(update))
    }
}

/// An entry as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEntry {
    /// The number of the entry among the entries of its task; the first is 1.
    pub number: u64,
    pub(crate) content: EntryContent,
}

/// The form of a stored entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EntryContent {
    /// The JSON of the entry, exactly as it was encoded.
    Json(Kind, String),
    Value(Entry),
}

impl StoredEntry {
    /// True if the content of this stored entry equals the content of `entry`.
    #[must_use]
    pub fn is(&self, entry: &Entry) -> bool {
        match &self.content {
            EntryContent::Value(stored) => stored == entry,
            EntryContent::Json(..) => self.decode().is_ok_and(|stored| stored == *entry),
        }
    }

    /// The update as JSON on one line. `None` for an entry that is not an update, because readers of the task do not get such
    /// entries.
    ///
    /// # Errors
    /// When the update cannot be encoded.
    pub fn update_json(&self) -> Result<Option<Cow<'_, str>>, serde_json::Error> {
        match &self.content {
            EntryContent::Json(Kind::Update, json) => Ok(Some(Cow::Borrowed(json))),
            EntryContent::Value(Entry::Update(update)) => {
                serde_json::to_string(update.as_ref()).map(|json| Some(Cow::Owned(json)))
            }
            EntryContent::Json(..) | EntryContent::Value(_) => Ok(None),
        }
    }

    /// The entry. Decodes the stored JSON if there is one.
    ///
    /// # Errors
    /// When the JSON has a form that this version of the software does not write.
    pub fn decode(&self) -> Result<Entry, serde_json::Error> {
        match &self.content {
            EntryContent::Json(kind, json) => decode(*kind, json),
            EntryContent::Value(entry) => Ok(entry.clone()),
        }
    }
}

impl Event {
    /// Creates an event that happens now, with a new id.
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
        }
    }

    /// Creates an event of the user that happens now, with a new id.
    pub fn of_user(invocation_id: impl Into<Arc<str>>, parts: impl Into<Parts>, state_delta: StateDelta) -> Self {
        static AUTHOR: LazyLock<Arc<str>> = LazyLock::new(|| USER_AUTHOR.into());
        Self::new(Arc::clone(&AUTHOR), invocation_id, parts, state_delta)
    }

    /// Creates an event of an agent with the reason why the agent has no answer.
    pub fn failed(author: impl Into<Arc<str>>, invocation_id: impl Into<Arc<str>>, error: EventError) -> Self {
        Self { error: Some(error), ..Self::new(author, invocation_id, Vec::new(), StateDelta::new()) }
    }

    /// True if the user is the author.
    #[must_use]
    pub fn is_from_user(&self) -> bool {
        *self.author == *USER_AUTHOR
    }

    /// The approximate memory of the event in bytes, without artifacts. It is the size of all texts and a fixed size for the
    /// structures.
    pub(crate) fn size(&self) -> usize {
        const OVERHEAD: usize = 256;
        let delta: usize = self.state_delta.iter().map(|(key, value)| key.len() + value.get().len()).sum();
        let error = self.error.as_ref().map_or(0, |error| error.code.len() + error.message.len());
        let ids = self.id.len() + self.author.len() + self.invocation_id.len();
        OVERHEAD + ids + size::of_parts(&self.parts) + delta + error
    }

    /// The event with `parts` in place of its own. The artifacts that have the same parts as the event, and the values of
    /// state that are its text, are replaced too.
    pub(crate) fn amended(&self, parts: Parts) -> Self {
        let old = Json::string(&text_of(&self.parts));
        let new = Json::string(&text_of(&parts));
        let of_value = |(key, value): (&str, &Json)| {
            let value = if *value == old { &new } else { value };
            (key.to_owned(), value.clone())
        };
        let of_artifact = |(name, own): (&String, &Parts)| {
            let own = if *own == self.parts { &parts } else { own };
            (name.clone(), own.clone())
        };
        Self {
            state_delta: self.state_delta.iter().map(of_value).collect(),
            artifacts: self.artifacts.iter().map(of_artifact).collect(),
            parts,
            ..self.clone()
        }
    }

    /// The event in the form in which the log keeps it: without `temp:` keys and without its artifacts. Artifacts are stored
    /// apart.
    pub(crate) fn kept(event: Arc<Self>) -> Arc<Self> {
        if event.artifacts.is_empty() && !event.state_delta.has_temp() {
            // The usual case: the caller that appends the event and all readers share it.
            return event;
        }
        let mut kept = Self::clone(&event);
        kept.artifacts.clear();
        kept.state_delta.take_temp();
        Arc::new(kept)
    }
}

/// The text parts, joined by line breaks.
fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match &part.content {
        PartContent::Text(text) => Some(text.as_str()),
        PartContent::Raw(_) | PartContent::Url(_) | PartContent::Data(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The changes of state of several entries, as one delta. If several entries set a key, the last value counts. The
/// delta includes `temp:` keys.
pub(crate) fn combined<'a>(entries: impl Iterator<Item = &'a Entry>) -> Cow<'a, StateDelta> {
    let mut deltas = entries.filter_map(Entry::event).map(|event| &event.state_delta).filter(|delta| !delta.is_empty());
    // Most appends have one delta, which is borrowed and not copied.
    let mut all = deltas.next().map_or_else(|| Cow::Owned(StateDelta::new()), Cow::Borrowed);
    for delta in deltas {
        all.to_mut().merge(delta.clone());
    }
    all
}
