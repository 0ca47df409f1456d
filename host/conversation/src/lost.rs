//! Ends lost turns that no process continues.

use annex_protocol::{Message, Part, StreamResponse, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp};

use crate::entry::{Entry, Event, EventError};
use crate::error::AppendError;
use crate::history::Window;
use crate::queue::LostTurn;
use crate::store::{Append, ConversationStore, Position};
use crate::task::TaskSnapshot;

/// The error code of a turn without an end.
const BROKEN_OFF: &str = "BROKEN_OFF";
/// The text of the error with the code [`BROKEN_OFF`].
const BROKEN_OFF_TEXT: &str = "The turn was broken off before the agent had answered.";

/// The end of a lost turn, as it was stored.
#[derive(Clone, Debug)]
pub struct EndOfLostTurn {
    /// The last entries of the turn.
    pub entries: Vec<Entry>,
    /// The number of the last entry.
    pub number: u64,
    /// The task with these entries.
    pub task: TaskSnapshot,
}

/// Ends a lost turn. The task becomes CANCELED if its client has asked for that, else FAILED with `reason`. A message of
/// the user without an answer gets an error event, so that questions and answers alternate in every history.
///
/// Returns the entries; `None` for a turn that has ended already.
///
/// # Errors
/// As [`ConversationStore::append`].
pub async fn end_lost_turn(
    store: &dyn ConversationStore,
    lost: &LostTurn,
    reason: &str,
) -> Result<Option<EndOfLostTurn>, AppendError> {
    let LostTurn { key, task: id, fence, is_cancelled, .. } = lost;
    let stored = store.task(id).await?;
    let number = stored.as_ref().map_or(0, |stored| stored.number);
    let before = match &stored {
        Some(stored) => stored.decode()?,
        None => TaskSnapshot::submitted(id.clone(), key.context.clone(), Timestamp::now()),
    };
    let mut entries = Vec::new();
    if lost.has_begun {
        let last = store.conversation(key, Window::latest(1)).await?.history;
        let is_its = |event: &Event| event.is_from_user() && *event.invocation_id == *id.as_str();
        if last.last().is_some_and(|event| is_its(event)) {
            let error = EventError { code: BROKEN_OFF.to_owned(), message: BROKEN_OFF_TEXT.to_owned() };
            entries.push(Event::failed(key.app.clone(), id.clone(), error).into());
        }
    }
    if !before.state().is_terminal() {
        let (state, text) = if *is_cancelled { (TaskState::Canceled, None) } else { (TaskState::Failed, Some(reason)) };
        entries.push(update(&before, state, text));
    }
    let after = before.with(&entries);
    let append = Append { by: Some(fence), entries: &entries, task: Some(&after), ends: true, ..Append::default() };
    match store.append(key, &Position::of_task(id.clone(), number), append).await {
        Ok(appended) => Ok(Some(EndOfLostTurn { entries, number: appended.number, task: after })),
        Err(AppendError::Fenced) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The update that brings a task into another state.
fn update(task: &TaskSnapshot, state: TaskState, text: Option<&str>) -> Entry {
    let says = |text| Message::agent(task.context_id().clone(), Some(task.id().clone()), vec![Part::text(text)]);
    let status = TaskStatus { state, message: text.map(says), timestamp: Some(Timestamp::now()) };
    let (task_id, context_id) = (task.id().clone(), task.context_id().clone());
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent { task_id, context_id, status, ..Default::default() }).into()
}
