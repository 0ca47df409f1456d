//! Records of the contract with something in each field. A test sets those that matter to it:
//! `Event { last_chunk: true, ..testing::event(EventKind::Artifact) }`.

use crate::{Beginning, Event, EventKind, Outgoing, Request, StateChange};

const CONTEXT: &str = "context-1";
const TASK: &str = "task-1";

/// A `SendMessage` that begins a task in the conversation `context-1`. It asks for no extension.
#[must_use]
pub fn request() -> Request {
    Request {
        operation: "SendMessage".to_owned(),
        context_id: Some(CONTEXT.to_owned()),
        task_id: None,
        requested: Vec::new(),
    }
}

/// An event of `task-1` in the conversation `context-1`, without payload: a message, a status without message on the
/// task that works, or a chunk of an artifact that is not its last.
#[must_use]
pub fn event(kind: EventKind) -> Event {
    let task_state = (kind == EventKind::Status).then(|| "TASK_STATE_WORKING".to_owned());
    Event {
        kind,
        task_id: Some(TASK.to_owned()),
        context_id: CONTEXT.to_owned(),
        task_state,
        has_message: false,
        last_chunk: false,
        present: Vec::new(),
        payload: None,
    }
}

/// The turn takes up `task-1` of the conversation `context-1`, which is new.
#[must_use]
pub fn beginning() -> Beginning {
    Beginning { task_id: TASK.to_owned(), context_id: CONTEXT.to_owned(), waits_in: None, resumed: false }
}

/// `task-1` of the conversation `context-1`, which works, is to be in another state (`TASK_STATE_COMPLETED`) and says
/// nothing.
#[must_use]
pub fn change(next: impl Into<String>) -> StateChange {
    StateChange {
        task_id: TASK.to_owned(),
        context_id: CONTEXT.to_owned(),
        current: "TASK_STATE_WORKING".to_owned(),
        next: next.into(),
        message: None,
    }
}

/// A call of `SendMessage` to an agent that declares the extension, with an empty message and without input.
#[must_use]
pub fn outgoing() -> Outgoing {
    Outgoing {
        operation: "SendMessage".to_owned(),
        agent: "https://agent.example/.well-known/agent-card.json".to_owned(),
        declaration: Some("{}".to_owned()),
        input: None,
        message: Some(r#"{"messageId":"message-1","role":"ROLE_USER","parts":[]}"#.to_owned()),
    }
}
