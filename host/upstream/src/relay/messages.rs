//! The messages of a turn: those that came before any task, and those that were sent on.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use annex_protocol::{Message, MessageId, Part, PartContent, Role};

/// Messages of a task's history that one look at the task may bring.
const MAX_HISTORY: usize = 100;

#[derive(Default)]
pub(super) struct Messages {
    /// Those that came while there was no task. They are the answer, or its beginning.
    waiting: Vec<Message>,
    /// True if one was left out because it had no parts.
    had_empty: bool,
    /// The last one that came beside the task, as long as further pieces of it may come.
    held: Option<Message>,
    /// Those that came beside the task, as one message.
    beside: Option<Message>,
    /// Digests of those that were sent on.
    sent: HashSet<u64>,
}

impl Messages {
    /// A message has come that has no parts.
    pub(super) fn leave_out(&mut self) {
        tracing::debug!("a message of the upstream agent has no parts and is left out");
        self.had_empty = true;
    }

    /// True if one was left out because it had no parts.
    pub(super) fn had_empty(&self) -> bool {
        self.had_empty
    }

    /// Keeps a message until it is known what it belongs to.
    pub(super) fn wait(&mut self, message: Message) {
        self.waiting.push(message);
    }

    /// True if a message waits.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Those that wait, in order.
    pub(super) fn take_waiting(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.waiting)
    }

    /// All that wait as one message; `None` when there are none. One in the name of the user counts only where there is no
    /// other: an agent may repeat what it was told.
    pub(super) fn answer(&mut self) -> Option<Message> {
        let mut waiting = self.take_waiting();
        if waiting.iter().any(|message| message.role != Role::User) {
            waiting.retain(|message| message.role != Role::User);
        }
        waiting.into_iter().reduce(joined)
    }

    /// Holds a message that came beside the task, because what comes next may be a further piece of it.
    pub(super) fn hold(&mut self, message: Message) {
        self.held = Some(match self.held.take() {
            Some(before) => joined(before, message),
            None => message,
        });
    }

    /// True if the message is a further piece of the one that is held. Messages without an id are no pieces.
    pub(super) fn is_piece(&self, message: &Message) -> bool {
        let is_same = |held: &Message| held.message_id == message.message_id && held.role == message.role;
        !message.message_id.is_empty() && self.held.as_ref().is_some_and(is_same)
    }

    /// True if a message is held.
    pub(super) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// The message that is held.
    pub(super) fn take_held(&mut self) -> Option<Message> {
        self.held.take()
    }

    /// Takes note of a message that came beside the task: some agents send their answer so, piece by piece.
    pub(super) fn add_beside(&mut self, message: &Message) {
        self.beside = Some(match self.beside.take() {
            Some(before) => joined(before, message.clone()),
            None => message.clone(),
        });
    }

    /// Those that came beside the task, as one message.
    pub(super) fn take_beside(&mut self) -> Option<Message> {
        self.beside.take()
    }

    /// Takes note of a message that is sent on.
    pub(super) fn note(&mut self, message: &Message) {
        self.sent.insert(digest(message));
    }

    /// True if the message was sent on.
    pub(super) fn was_sent(&self, message: &Message) -> bool {
        self.sent.contains(&digest(message))
    }

    /// The agent's messages in the history of a task that were not sent on: those behind the last one of the user, and behind
    /// the last that an earlier turn has `shown`. Where neither is there, a task that was there before says nothing new.
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
                "the history of the upstream agent's task is long; its first messages are left out"
            );
            unseen.drain(..left_out);
        }
        unseen
    }
}

/// One message of both. Texts under one message id are pieces of one text.
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

/// Ids alone do not tell messages apart: some agents have one for all.
fn digest(message: &Message) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.message_id.as_str().hash(&mut hasher);
    message.text().hash(&mut hasher);
    hasher.finish()
}
