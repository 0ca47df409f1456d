//! The messages of a turn. Messages that arrive before any task event wait here. Messages that were relayed are recorded.
//!
//! Some agents send pieces of a task's answer as message events instead of status updates. Such messages are called
//! loose.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use annex_protocol::{Message, MessageId, Part, PartContent, Role};

/// The maximum number of messages that are relayed from a task's history when the task is read once.
const MAX_HISTORY: usize = 100;

#[derive(Default)]
pub(super) struct Messages {
    /// Messages that arrived before any task event. They are the answer, or the beginning of the answer.
    waiting: Vec<Message>,
    /// True if a message without parts was dropped.
    had_empty: bool,
    /// The last loose message, held until its next piece arrives.
    held: Option<Message>,
    /// All loose messages, joined into one.
    beside: Option<Message>,
    /// Digests of the messages that were relayed.
    sent: HashSet<u64>,
}

impl Messages {
    /// Records that a message without parts was dropped.
    pub(super) fn leave_out(&mut self) {
        tracing::debug!("a message of the upstream agent has no parts and is dropped");
        self.had_empty = true;
    }

    /// True if a message without parts was dropped.
    pub(super) fn had_empty(&self) -> bool {
        self.had_empty
    }

    /// Keeps a message until the next event shows whether a task follows.
    pub(super) fn wait(&mut self, message: Message) {
        self.waiting.push(message);
    }

    /// True if messages wait for a task to follow.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the waiting messages, in order.
    pub(super) fn take_waiting(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.waiting)
    }

    /// Joins all waiting messages into one; `None` if no message waits. Messages with the user's role are dropped if any
    /// message has another role, because an agent may repeat the user's message.
    pub(super) fn answer(&mut self) -> Option<Message> {
        let mut waiting = self.take_waiting();
        if waiting.iter().any(|message| message.role != Role::User) {
            waiting.retain(|message| message.role != Role::User);
        }
        waiting.into_iter().reduce(joined)
    }

    /// Holds a loose message. If a message is held already, both are joined into one.
    pub(super) fn hold(&mut self, message: Message) {
        self.held = Some(match self.held.take() {
            Some(before) => joined(before, message),
            None => message,
        });
    }

    /// True if the message is the next piece of the held message: both have the same id and role. A message without an id is
    /// never a piece.
    pub(super) fn is_piece(&self, message: &Message) -> bool {
        let is_same = |held: &Message| held.message_id == message.message_id && held.role == message.role;
        !message.message_id.is_empty() && self.held.as_ref().is_some_and(is_same)
    }

    /// True if a message is held.
    pub(super) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Takes the held message.
    pub(super) fn take_held(&mut self) -> Option<Message> {
        self.held.take()
    }

    /// Joins a message to the loose messages so far. Some agents send their answer as loose messages, piece by piece.
    pub(super) fn add_beside(&mut self, message: &Message) {
        self.beside = Some(match self.beside.take() {
            Some(before) => joined(before, message.clone()),
            None => message.clone(),
        });
    }

    /// Takes all loose messages, joined into one.
    pub(super) fn take_beside(&mut self) -> Option<Message> {
        self.beside.take()
    }

    /// Records a message as relayed.
    pub(super) fn note(&mut self, message: &Message) {
        self.sent.insert(digest(message));
    }

    /// True if the message was relayed.
    pub(super) fn was_sent(&self, message: &Message) -> bool {
        self.sent.contains(&digest(message))
    }

    /// Finds the agent's messages in `history` that were not relayed yet. Messages up to the user's last message are skipped,
    /// and so are messages up to the message with the id `shown`, which an earlier turn relayed. If the history has neither of
    /// these messages and the turn `continues` a task, no message is returned.
    pub(super) fn unseen(&self, history: Vec<Message>, shown: Option<&MessageId>, continues: bool) -> Vec<Message> {
        let is_old = |message: &Message| message.role == Role::User || Some(&message.message_id) == shown;
        let begin = match history.iter().rposition(is_old) {
            Some(last) => last + 1,
            None if continues => return Vec::new(),
            None => 0,
        };
        let is_new = |message: &Message| !message.parts.is_empty() && !self.was_sent(message);
        let mut unseen: Vec<Message> = history.into_iter().skip(begin).filter(is_new).collect();
        if unseen.len() > MAX_HISTORY {
            let left_out = unseen.len() - MAX_HISTORY;
            tracing::warn!(
                left_out,
                "the history of the upstream agent's task is too long; its first messages are dropped"
            );
            unseen.drain(..left_out);
        }
        unseen
    }
}

/// Joins two messages. If both have the same id, adjacent texts are joined into one text.
fn joined(mut first: Message, second: Message) -> Message {
    let is_same = first.message_id == second.message_id;
    let mut parts = second.parts.into_iter().peekable();
    if is_same
        && first.parts.last().is_some_and(is_plain_text)
        && let Some(Part { content: PartContent::Text(more), .. }) = parts.next_if(is_plain_text)
        && let Some(Part { content: PartContent::Text(text), .. }) = first.parts.last_mut()
    {
        text.push_str(&more);
    }
    first.parts.extend(parts);
    first.metadata.extend(second.metadata);
    first
}

fn is_plain_text(part: &Part) -> bool {
    matches!(part.content, PartContent::Text(_)) && part.metadata.is_empty()
}

/// A digest of a message's id and text. The id alone is not enough, because some agents use one id for all messages.
fn digest(message: &Message) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.message_id.as_str().hash(&mut hasher);
    message.text().hash(&mut hasher);
    hasher.finish()
}
