//! The caller's record of which events each agent has: a list of conversations per agent, of limited length.
//!
//! If a conversation is missing from the list, all of its events are shared again, and the agent ignores the events
//! that are not new. A conversation may be missing because of the limit or a concurrent call. This only costs bytes.

use annex_sdk::json;
use serde::{Deserialize, Serialize};

/// The maximum number of conversations per agent. The conversation that was unused for longest is removed first.
const MAX_CONVERSATIONS: usize = 100;
/// The maximum length of a context id that is stored, in bytes.
const MAX_CONTEXT: usize = 256;

/// The caller's keys, which outlive calls. The text of an error is for the operator.
pub trait ClientKeys {
    /// The value of a key.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String>;
    /// Sets a key to `value`, and replaces an older value.
    fn set(&self, key: &str, value: &[u8]) -> Result<(), String>;
}

/// A conversation with an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// The URL of the agent's card.
    pub agent: String,
    /// The peer that owns the conversation.
    pub peer: String,
    /// The conversation's context id at the agent.
    pub context: String,
}

/// The part of a conversation that an agent has: all events of one revision up to one number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Boundary {
    /// The revision of the history.
    pub revision: u64,
    /// The number of the last event that the agent has.
    pub up_to: u64,
    /// True if the last call got no answer. The agent may have lost the conversation and refused the call.
    pub is_open: bool,
}

/// The boundary of a conversation; `None` if unknown.
pub fn get(conversation: &Conversation, keys: &impl ClientKeys) -> Option<Boundary> {
    let entries = read(&conversation.agent, keys);
    let entry = entries.into_iter().find(|entry| entry.is_of(conversation))?;
    Some(Boundary { revision: entry.revision, up_to: entry.up_to, is_open: entry.is_open })
}

/// Stores the boundary of a conversation.
///
/// # Errors
/// When the agent's URL or the context id is too long, or the host's store is not available.
pub fn set(conversation: &Conversation, boundary: Boundary, keys: &impl ClientKeys) -> Result<(), String> {
    let Conversation { agent, peer, context } = conversation.clone();
    // The agent chooses this id. One value holds all conversations, so a long id would leave no room for others.
    if context.len() > MAX_CONTEXT {
        return Err(format!("the agent's context id has {} bytes, and at most {MAX_CONTEXT} are kept", context.len()));
    }
    let mut entries = read(&agent, keys);
    entries.retain(|entry| !entry.is_of(conversation));
    let Boundary { revision, up_to, is_open } = boundary;
    // At the end, so that the entry that was not used for longest stands first.
    entries.push(Entry { peer, context, revision, up_to, is_open });
    let surplus = entries.len().saturating_sub(MAX_CONVERSATIONS);
    entries.drain(..surplus);
    keys.set(&key_of(&agent), json::text(&entries)?.as_bytes())
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    peer: String,
    context: String,
    revision: u64,
    up_to: u64,
    is_open: bool,
}

impl Entry {
    fn is_of(&self, conversation: &Conversation) -> bool {
        self.peer == conversation.peer && self.context == conversation.context
    }
}

/// The conversations of an agent, the most recently used one last. A list that cannot be read counts as empty.
fn read(agent: &str, keys: &impl ClientKeys) -> Vec<Entry> {
    let value = keys.get(&key_of(agent)).ok().flatten();
    value.and_then(|value| serde_json::from_slice(&value).ok()).unwrap_or_default()
}

fn key_of(agent: &str) -> String {
    format!("agent/{agent}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Keys;

    fn conversation(context: &str) -> Conversation {
        let agent = "https://a.example/card.json".to_owned();
        let peer = "ada".to_owned();
        Conversation { agent, peer, context: context.to_owned() }
    }

    #[test]
    fn conversations_of_other_agents_peers_and_contexts_are_others() {
        let keys = Keys::default();
        let boundary = Boundary { revision: 1, up_to: 7, is_open: false };
        set(&conversation("c"), boundary, &keys).unwrap();
        assert_eq!(get(&conversation("c"), &keys), Some(boundary));
        assert_eq!(get(&conversation("d"), &keys), None);
        assert_eq!(get(&Conversation { peer: "bob".to_owned(), ..conversation("c") }, &keys), None);
        assert_eq!(get(&Conversation { agent: "https://b.example".to_owned(), ..conversation("c") }, &keys), None);
    }

    #[test]
    fn the_conversation_that_was_not_used_for_longest_is_forgotten() {
        let keys = Keys::default();
        let boundary = Boundary { revision: 0, up_to: 1, is_open: false };
        set(&conversation("first"), boundary, &keys).unwrap();
        set(&conversation("second"), boundary, &keys).unwrap();
        set(&conversation("first"), boundary, &keys).unwrap();
        for number in 2..=MAX_CONVERSATIONS {
            set(&conversation(&number.to_string()), boundary, &keys).unwrap();
        }
        assert_eq!(get(&conversation("first"), &keys), Some(boundary));
        assert_eq!(get(&conversation("second"), &keys), None);
        assert!(set(&conversation(&"x".repeat(MAX_CONTEXT + 1)), boundary, &keys).is_err());
    }
}
