//! Records of the contract with a value in each field. A test sets only the fields that it needs: `Event { last_chunk:
//! true, ..testing::event(EventKind::Artifact) }`.

use crate::{
    Beginning, Chunk, Content, Event, EventKind, Identity, ModelCall, Outgoing, Place, Presence, Request, ShownEntry,
    ShownTask, StateChange, ToolCall, ToolResult,
};

const CONTEXT: &str = "context-1";
const TASK: &str = "task-1";

/// A `SendMessage` that begins a task in the conversation `context-1`, without a requested extension.
#[must_use]
pub fn request() -> Request {
    Request {
        operation: "SendMessage".to_owned(),
        context_id: Some(CONTEXT.to_owned()),
        task_id: None,
        requested: Vec::new(),
    }
}

/// An event of `task-1` in the conversation `context-1`, without payload: a message, a status of the working task
/// without a message, or a chunk of an artifact that is not its last.
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

/// The only chunk of an artifact of `task-1` in the conversation `context-1`, with the text `Hello`.
#[must_use]
pub fn content() -> Content {
    let chunk = Chunk { artifact_id: "artifact-1".to_owned(), first: true, last: true };
    Content {
        task_id: Some(TASK.to_owned()),
        context_id: CONTEXT.to_owned(),
        place: Place::Artifact(chunk),
        parts: r#"[{"text":"Hello"}]"#.to_owned(),
        held: 0,
    }
}

/// The first call of the model `default` in a turn, without parameters and tools. No other model is lent.
#[must_use]
pub fn model_call() -> ModelCall {
    ModelCall {
        round: 0,
        model: "default".to_owned(),
        lent: vec!["default".to_owned()],
        instruction: vec!["Be short.".to_owned()],
        parameters: "{}".to_owned(),
        tools: Vec::new(),
    }
}

/// A call of a tool of the server `tools`, without arguments, that has not waited.
#[must_use]
pub fn tool_call(name: impl Into<String>) -> ToolCall {
    ToolCall {
        id: "call-1".to_owned(),
        name: name.into(),
        origin: "tools".to_owned(),
        arguments: "{}".to_owned(),
        has_waited: false,
    }
}

/// The successful result of a tool without arguments. `output` is JSON text.
#[must_use]
pub fn tool_result(name: impl Into<String>, output: impl Into<String>) -> ToolResult {
    ToolResult {
        id: "call-1".to_owned(),
        name: name.into(),
        arguments: "{}".to_owned(),
        output: output.into(),
        failed: false,
    }
}

/// The completed `task-1` of the conversation `context-1`, without metadata.
#[must_use]
pub fn shown_task() -> ShownTask {
    ShownTask {
        id: TASK.to_owned(),
        context_id: CONTEXT.to_owned(),
        state: "TASK_STATE_COMPLETED".to_owned(),
        metadata: Vec::new(),
    }
}

/// The extension's entry on the extended card, without params.
#[must_use]
pub fn shown_entry() -> ShownEntry {
    ShownEntry { description: "An extension.".to_owned(), params: None }
}

/// An authenticated caller without claims and header fields.
#[must_use]
pub fn identity(principal: impl Into<String>) -> Identity {
    Identity {
        presence: Presence::Authenticated,
        principal: Some(principal.into()),
        claims: "{}".to_owned(),
        headers: Vec::new(),
    }
}

/// The beginning of `task-1`, a new task of the conversation `context-1`.
#[must_use]
pub fn beginning() -> Beginning {
    Beginning { task_id: TASK.to_owned(), context_id: CONTEXT.to_owned(), waits_in: None, resumed: false }
}

/// A change of `task-1` in the conversation `context-1`, from working to the state `next`, such as
/// `TASK_STATE_COMPLETED`, without a message.
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
