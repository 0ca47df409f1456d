//! The agent's side: adds the shared events of a message to the conversation, each once, and acknowledges them.
//!
//! The conversation contains the shared events as soon as the message's turn begins, because the host stores the
//! message whether or not the turn succeeds. The extension therefore records them at that time. Events of a refused
//! message are not recorded. The client gets the acknowledgement after the turn has ended successfully.

use annex_sdk::members::Members;
use annex_sdk::{
    Event as Outgoing, EventKind, ExtensionError, Json, Location, Patch, Rejection, Rewrite, json, pointer,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::node::Node;
use crate::parameters::Parameters;
use crate::quoting;
use crate::wire::{Acknowledgement, Mode, SharedEvents, shared_in};

/// The error code if the client assumes that the agent has events which the agent does not have.
pub const GAP: i32 = -32_301;
/// The error code if the agent does not know the conversation.
pub const UNKNOWN_CONTEXT: i32 = -32_302;
/// The error code if the client shares an outdated revision of the history.
pub const STALE_REVISION: i32 = -32_303;
/// The error code if the agent cannot store which events it has received.
pub const NOT_KEPT: i32 = -32_304;

/// The maximum number of peers of one conversation.
const MAX_PEERS: usize = 16;

/// The conversation's keys. The text of an error is for the operator.
pub trait ContextKeys {
    /// The value of a key.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String>;
    /// Sets a key to `value`, and replaces an older value.
    fn set(&self, key: &str, value: &[u8]) -> Result<(), String>;
    /// The number of keys.
    fn count(&self) -> Result<usize, String>;
}

/// The events that a message shares, until they are recorded and acknowledged.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingEvents {
    mode: Mode,
    peer: String,
    revision: u64,
    up_to: u64,
    is_noted: bool,
}

/// The last event of a peer's conversation that the agent has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct PeerProgress {
    revision: u64,
    taken: u64,
}

/// Checks the events that a message (JSON) shares. Returns rewrites that put the new events in front of the message's
/// parts. `None` if the message shares no events.
pub fn check(
    parameters: &Parameters,
    message: &str,
    keys: &impl ContextKeys,
) -> Result<Option<(PendingEvents, Vec<Rewrite>)>, Rejection> {
    let key = parameters.shared_key();
    let Some(value) = shared_in(message, &key) else { return Ok(None) };
    let node = Node::new(value, pointer::metadata(Location::Message, &key));
    let mut shared = SharedEvents::read(&node, &parameters.limits())?;
    let mut is_revised = false;
    // In the mode `full` nothing is kept, so every event is new each time.
    if shared.mode == Mode::Delta {
        let standing = standing(&shared, keys)?;
        is_revised = standing.is_some_and(|standing| standing.revision < shared.revision);
        // A new revision replaces the earlier events, so that none of its events is known.
        let known = standing.filter(|_| !is_revised).map_or(0, |standing| standing.taken);
        // The conversation contains the agent's own texts, unless it was lost.
        let is_lost = standing.is_none_or(|standing| standing.taken == 0);
        shared.events.retain(|event| event.seq > known && (is_lost || !event.yours));
    }
    let rewrites = prepend(message, quoting::parts(&shared.events, is_revised));
    let SharedEvents { mode, peer, revision, up_to, .. } = shared;
    Ok(Some((PendingEvents { mode, peer, revision, up_to, is_noted: false }, rewrites)))
}

impl PendingEvents {
    /// Records that the conversation contains the shared events. A second call does nothing. Returns true if the record
    /// is stored. Without a record the client will share the events again.
    pub fn note(&mut self, keys: &impl ContextKeys) -> bool {
        // The reason of a failure is in the log already.
        self.is_noted = self.is_noted || self.mode == Mode::Full || self.write(keys).is_ok();
        self.is_noted
    }

    fn write(&self, keys: &impl ContextKeys) -> Result<(), String> {
        let key = key_of(&self.peer);
        let before = read(keys.get(&key)?).unwrap_or_default();
        let known = if before.revision == self.revision { before.taken } else { 0 };
        // A late message must not move the record back.
        write(&key, PeerProgress { revision: self.revision, taken: known.max(self.up_to) }, keys)
    }
}

/// Returns the acknowledgement, if this event ends the turn successfully: the agent answered, or waits for the client.
///
/// This also records the shared events, unless [`PendingEvents::note`] has done so before. If another extension keeps
/// the agent from running, the events can only be recorded here.
pub fn acknowledge(
    parameters: &Parameters,
    taken: &mut PendingEvents,
    event: &Outgoing,
    keys: &impl ContextKeys,
) -> Result<Option<Patch>, String> {
    let is_noted = taken.note(keys);
    let ends_well = match event.kind {
        EventKind::Message => true,
        EventKind::Status => event.task_state.as_deref().is_some_and(is_good_end),
        EventKind::Artifact => false,
    };
    // A failed turn acknowledges nothing. The client shares the events again, and this end leaves them out.
    if !ends_well || !is_noted {
        return Ok(None);
    }
    let received = Acknowledgement::of(taken.mode, &taken.peer, taken.revision, taken.up_to).write()?;
    Ok(Some(Patch::entry(parameters.received_key(), received)))
}

/// True if a turn that ends in this state of its task has processed its message.
pub fn is_good_end(state: &str) -> bool {
    matches!(state, "TASK_STATE_COMPLETED" | "TASK_STATE_INPUT_REQUIRED" | "TASK_STATE_AUTH_REQUIRED")
}

/// The agent's record for a peer. If the conversation begins with this message, returns `None` and stores an empty
/// record, so that the later record of the shared events cannot fail for lack of room.
fn standing(shared: &SharedEvents, keys: &impl ContextKeys) -> Result<Option<PeerProgress>, Rejection> {
    let not_kept = |_: String| {
        error(NOT_KEPT, "the agent cannot store which events it has; share the conversation in the mode \"full\"", None)
    };
    let key = key_of(&shared.peer);
    let Some(standing) = read(keys.get(&key).map_err(not_kept)?) else {
        // Without the events before `base` the agent's conversation would have a gap.
        if shared.base > 0 {
            let message = "the agent does not know this conversation; share all events again, with `base` 0";
            return Err(error(UNKNOWN_CONTEXT, message, Some(0)));
        }
        // The client chooses `peer`, so it could use up the extension's keys by naming others.
        if keys.count().map_err(not_kept)? >= MAX_PEERS {
            return Err(not_kept(String::new()));
        }
        write(&key, PeerProgress { revision: shared.revision, taken: 0 }, keys).map_err(not_kept)?;
        return Ok(None);
    };
    // An older history would overwrite the agent's knowledge of a newer one.
    if shared.revision < standing.revision {
        let message = format!(
            "the agent has revision {} of the conversation, and this is {}",
            standing.revision, shared.revision
        );
        return Err(error(STALE_REVISION, &message, None));
    }
    let known = if shared.revision == standing.revision { standing.taken } else { 0 };
    if shared.base > known {
        let message = format!(
            "the agent has the events up to {known}, and `base` is {}; share all events again, with `base` 0",
            shared.base
        );
        return Err(error(GAP, &message, Some(known)));
    }
    Ok(Some(standing))
}

/// An error for the client. If `has` is given, the error tells the client to send all events again. `has` is the number
/// of the last event that the agent has.
fn error(code: i32, message: &str, has: Option<u64>) -> Rejection {
    let data = has.map(|has| format!(r#"{{"resend":true,"received":{has}}}"#));
    ExtensionError { code, message: message.to_owned(), data }.into()
}

fn key_of(peer: &str) -> String {
    format!("peer/{peer}")
}

/// Reads a record. An unreadable record counts as missing.
fn read(value: Option<Vec<u8>>) -> Option<PeerProgress> {
    value.and_then(|value| serde_json::from_slice(&value).ok())
}

fn write(key: &str, standing: PeerProgress, keys: &impl ContextKeys) -> Result<(), String> {
    keys.set(key, json::text(&standing)?.as_bytes())
}

/// The rewrite that puts new parts in front of the first part of the message.
fn prepend(message: &str, mut parts: Vec<Json>) -> Vec<Rewrite> {
    if parts.is_empty() {
        return Vec::new();
    }
    let message = Members::of(message).unwrap_or_default();
    let own: Vec<&RawValue> =
        message.get("parts").and_then(|parts| serde_json::from_str(parts).ok()).unwrap_or_default();
    // A rewrite replaces a part, so the first part is repeated after the new ones.
    parts.extend(own.first().map(|first| first.get().to_owned()));
    vec![Rewrite { part: 0, replacement: parts }]
}

#[cfg(test)]
mod tests;
