//! The two metadata values: the shared events of a message, and the acknowledgement in its answer.

use annex_sdk::members::Members;
use annex_sdk::{Json, Violation, json};
use serde::{Deserialize, Serialize};

use crate::event::{Event, Role};
use crate::node::Node;
use crate::parameters::{Limits, VERSION};

/// The maximum length of a peer's name, in bytes.
pub const MAX_PEER: usize = 200;

/// The mode of sharing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Only events that the agent does not have.
    Delta,
    /// All events each time. The agent stores no record.
    Full,
}

/// The part of a conversation that one message shares.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedEvents {
    /// The mode of sharing.
    pub mode: Mode,
    /// The peer that owns the conversation.
    pub peer: String,
    /// The revision of the history. A new revision begins when events were changed or removed.
    pub revision: u64,
    /// The number of the last event that the agent has before the message.
    pub base: u64,
    /// The number of the last event that the agent has after the message. The message need not share this event.
    pub up_to: u64,
    /// The events after `base` up to `up_to`.
    pub events: Vec<Event>,
}

impl SharedEvents {
    /// Parses the shared events that a client has sent. Removes credentials from the events, even if the client has
    /// already done so.
    pub fn read(node: &Node<'_>, limits: &Limits) -> Result<Self, Violation> {
        let object = node.object()?;
        let version = object.need("version")?;
        if version.number()? != VERSION {
            return Err(version.violation(format!("must be {VERSION}")));
        }
        let mode = read_mode(&object.need("mode")?)?;
        let peer = read_peer(&object.need("peer")?)?;
        let revision = object.number_or_zero("revision")?;
        let base = object.number_or_zero("base")?;
        if mode == Mode::Full && base != 0 {
            return Err(object.need("base")?.violation("must be 0 in the mode \"full\""));
        }
        let up_to = object.need("upTo")?;
        let list = object.need("events")?;
        let (events, last) = Event::read_all(&list)?;
        let within = up_to.number()?;
        if within < base.max(last) {
            return Err(up_to.violation("must not be less than `base` or the last event's `seq`"));
        }
        let sizes: Vec<usize> = events.iter().map(Event::size).collect();
        // The card contains these limits, but a client may ignore them.
        if let Some(passed) = limits.passed_by(&sizes) {
            return Err(list.violation(passed));
        }
        if let Some(event) = events.first().filter(|event| event.seq <= base) {
            return Err(list.violation(format!("begin with the event {}, which is not after `base`", event.seq)));
        }
        Ok(Self { mode, peer, revision, base, up_to: within, events })
    }

    /// The shared events as a metadata value (JSON).
    pub fn write(&self) -> Result<Json, String> {
        let events = self.events.iter().map(WrittenEvent::of).collect();
        let Self { mode, peer, revision, base, up_to, .. } = self;
        json::text(&SharedEventsJson {
            version: VERSION,
            mode: *mode,
            peer,
            revision: *revision,
            base: *base,
            up_to: *up_to,
            events,
        })
    }
}

/// The acknowledgement that an agent has the shared events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Acknowledgement {
    version: u64,
    mode: Mode,
    peer: String,
    revision: u64,
    received: u64,
}

impl Acknowledgement {
    /// The acknowledgement of shared events whose turn has ended successfully.
    pub fn of(mode: Mode, peer: &str, revision: u64, up_to: u64) -> Self {
        Self { version: VERSION, mode, peer: peer.to_owned(), revision, received: up_to }
    }

    /// True if the metadata value `json` acknowledges the events of this acknowledgement, or more.
    pub fn is_in(&self, json: &str) -> bool {
        serde_json::from_str::<Self>(json).is_ok_and(|other| {
            let Self { version, mode, peer, revision, received } = other;
            (version, mode, &peer, revision) == (self.version, self.mode, &self.peer, self.revision)
                && received >= self.received
        })
    }

    /// The acknowledgement as a metadata value (JSON).
    pub fn write(&self) -> Result<Json, String> {
        json::text(self)
    }
}

/// Reads `delta` or `full`.
pub fn read_mode(node: &Node<'_>) -> Result<Mode, Violation> {
    serde_json::from_str(node.json()).map_err(|_| node.violation("must be \"delta\" or \"full\""))
}

/// Reads the name of the peer that owns the conversation.
pub fn read_peer(node: &Node<'_>) -> Result<String, Violation> {
    let peer = node.text()?;
    match (1..=MAX_PEER).contains(&peer.len()) {
        true => Ok(peer),
        false => Err(node.violation(format!("must have 1 to {MAX_PEER} bytes"))),
    }
}

/// The value of the metadata entry `key` in a message (JSON).
pub fn shared_in<'a>(message: &'a str, key: &str) -> Option<&'a str> {
    let message = Members::of(message)?;
    Members::of(message.get("metadata")?)?.get(key)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SharedEventsJson<'a> {
    version: u64,
    mode: Mode,
    peer: &'a str,
    revision: u64,
    base: u64,
    up_to: u64,
    events: Vec<WrittenEvent<'a>>,
}

#[derive(Serialize)]
struct WrittenEvent<'a> {
    seq: u64,
    author: &'a str,
    role: Role,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    yours: bool,
    parts: Vec<WrittenPart<'a>>,
}

#[derive(Serialize)]
struct WrittenPart<'a> {
    text: &'a str,
}

impl<'a> WrittenEvent<'a> {
    fn of(event: &'a Event) -> Self {
        let parts = event.texts.iter().map(|text| WrittenPart { text }).collect();
        Self { seq: event.seq, author: &event.author, role: event.role, yours: event.yours, parts }
    }
}
