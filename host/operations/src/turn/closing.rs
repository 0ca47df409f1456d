//! Makes the last event that a turn adds to its conversation.

use std::sync::Arc;

use annex_conversation::{Conversation, Event, EventError, StateDelta};
use annex_protocol::{TaskId, TaskState};

/// The last event of a turn whose agent has stored no event: an event without content, or an event with the reason why there is
/// no answer.
pub(crate) fn closing_event(
    conversation: &Conversation,
    task: &TaskId,
    end: Option<(TaskState, Option<String>)>,
) -> Event {
    let author = Arc::clone(&conversation.key().app);
    match end.filter(|(state, _)| state.is_terminal() && *state != TaskState::Completed) {
        Some((state, text)) => {
            let message = text.unwrap_or_else(|| "The turn ended without an answer.".to_owned());
            Event::failed(author, task.clone(), EventError { code: state.name().to_owned(), message })
        }
        None => Event::new(author, task.clone(), Vec::new(), StateDelta::new()),
    }
}
