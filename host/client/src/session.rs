//! A client's record of its conversation with an agent.
//!
//! Most rules come from Microsoft's agent framework. If the latest task waits for input, the next message continues that task;
//! otherwise the message only refers to the task. An answer in another context is an error. One rule comes from ADK: after a
//! failed request the next message does not continue the task.

use annex_protocol::{ContextId, JsonObject, Message, StreamResponse, TaskId, TaskState};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::ClientError;

/// The state of a conversation: its context, its latest task, and that task's state.
///
/// As JSON it is `{"contextId","taskId","taskState"}`, so that a conversation can be continued later.
///
/// ```
/// use annex_client::ClientSession;
/// use annex_protocol::Message;
///
/// let session: ClientSession =
///     serde_json::from_str(r#"{"contextId":"c-1","taskId":"t-1","taskState":"TASK_STATE_COMPLETED"}"#)?;
/// let mut message = Message::user_text("And now?");
/// session.place(&mut message);
/// assert_eq!(message.context_id, Some("c-1".into()));
/// assert_eq!((message.task_id, message.reference_task_ids), (None, vec!["t-1".into()]));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "SessionJson")]
pub struct ClientSession {
    context_id: Option<ContextId>,
    task: Option<(TaskId, TaskState)>,
}

/// The reason why a session cannot be created, or why an answer does not belong to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// An id is empty or only white space.
    #[error("{field} is blank")]
    Blank {
        /// The id, by its name in JSON.
        field: &'static str,
    },
    /// A field requires another field, which is missing.
    #[error("{field} needs {needed}")]
    Incomplete {
        /// The field, by its name in JSON.
        field: &'static str,
        /// The missing field.
        needed: &'static str,
    },
    /// The agent answered in another context. The session is unchanged.
    #[error("the agent answered in context {returned}, but the conversation is in context {expected}")]
    OtherContext {
        /// The agent's context.
        returned: ContextId,
        /// The session's context.
        expected: ContextId,
    },
}

impl ClientSession {
    /// Creates a session for a new conversation. The agent will create the context.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a session for an existing conversation without a known task.
    ///
    /// # Errors
    /// [`SessionError::Blank`] when the id is empty or only white space.
    pub fn in_context(context_id: ContextId) -> Result<Self, SessionError> {
        not_blank("contextId", context_id.as_str())?;
        Ok(Self { context_id: Some(context_id), task: None })
    }

    /// Adds the latest task.
    ///
    /// # Errors
    /// [`SessionError::Blank`], and [`SessionError::Incomplete`] when the context is unknown.
    pub fn with_task(mut self, task_id: TaskId, state: TaskState) -> Result<Self, SessionError> {
        not_blank("taskId", task_id.as_str())?;
        if self.context_id.is_none() {
            return Err(SessionError::Incomplete { field: "taskId", needed: "contextId" });
        }
        self.task = Some((task_id, state));
        Ok(self)
    }

    /// The context, once the agent has named it.
    pub fn context_id(&self) -> Option<&ContextId> {
        self.context_id.as_ref()
    }

    /// The id of the latest task; `None` if no task is known.
    pub fn task_id(&self) -> Option<&TaskId> {
        self.task.as_ref().map(|(id, _)| id)
    }

    /// The last known state of the latest task; `None` if no task is known.
    pub fn task_state(&self) -> Option<TaskState> {
        self.task.as_ref().map(|(_, state)| *state).filter(|state| *state != TaskState::Unspecified)
    }

    /// True if the latest task waits for input, so that the next message continues that task.
    pub fn awaits_input(&self) -> bool {
        self.task_state() == Some(TaskState::InputRequired)
    }

    /// Adds a message to the conversation: sets the context of the message, and names the latest task of the
    /// conversation. If the task waits for input, the message continues the task. Otherwise the message only refers to
    /// the task. A context or task that the message already has is kept.
    pub fn place(&self, message: &mut Message) {
        if message.context_id.is_none() {
            message.context_id.clone_from(&self.context_id);
        }
        let Some(task_id) = self.task_id() else { return };
        if self.awaits_input() {
            message.task_id.get_or_insert_with(|| task_id.clone());
        } else if !message.reference_task_ids.contains(task_id) && message.task_id.is_none() {
            message.reference_task_ids.push(task_id.clone());
        }
    }

    /// Records an answer, or one event of a stream. Call this before the program uses the event. A task is recorded
    /// only if its context is known.
    ///
    /// # Errors
    /// [`SessionError::OtherContext`]; the session is then unchanged.
    pub fn follow(&mut self, event: &StreamResponse) -> Result<(), SessionError> {
        match event {
            StreamResponse::Task(task) => self.enter(&task.context_id, Some((&task.id, Some(task.status.state)))),
            StreamResponse::StatusUpdate(update) => {
                self.enter(&update.context_id, Some((&update.task_id, Some(update.status.state))))
            }
            StreamResponse::ArtifactUpdate(update) => self.enter(&update.context_id, Some((&update.task_id, None))),
            StreamResponse::Message(message) => match &message.context_id {
                Some(context_id) => self.enter(context_id, None),
                None => Ok(()),
            },
        }
    }

    /// Records a failed request. The agent may or may not have received the request. The next message therefore refers
    /// to a task that waited for input, instead of continuing it. A request that this client refused before sending
    /// changes nothing.
    pub fn note_failure(&mut self, error: &ClientError) {
        let awaited_input = self.awaits_input();
        if let Some((_, state)) = self.task.as_mut().filter(|_| awaited_input && !error.is_own_refusal()) {
            // The id stays, so that the next message can refer to the task.
            *state = TaskState::Unspecified;
        }
    }

    fn enter(&mut self, returned: &ContextId, task: Option<(&TaskId, Option<TaskState>)>) -> Result<(), SessionError> {
        match &self.context_id {
            // An answer that names no context says nothing about it.
            _ if returned.is_empty() => {}
            Some(expected) if expected != returned => {
                let returned = returned.clone();
                let expected = expected.clone();
                // Nothing has changed so far, and the session stays in its own context.
                return Err(SessionError::OtherContext { returned, expected });
            }
            Some(_) => {}
            None => self.context_id = Some(returned.clone()),
        }
        if let Some((id, state)) = task.filter(|(id, _)| !id.is_empty())
            && self.context_id.is_some()
        {
            // An artifact does not show the state: for the same task the state stays, for another one it is unknown.
            let known = self.task.as_ref().filter(|(known, _)| known == id).map(|(_, state)| *state);
            self.task = Some((id.clone(), state.or(known).unwrap_or_default()));
        }
        Ok(())
    }
}

fn not_blank(field: &'static str, id: &str) -> Result<(), SessionError> {
    if id.trim().is_empty() { Err(SessionError::Blank { field }) } else { Ok(()) }
}

/// The JSON form of a [`ClientSession`].
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SessionJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<ContextId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_state: Option<TaskState>,
}

/// Reads a session from a JSON object. A derived implementation would also accept an array.
impl<'de> Deserialize<'de> for ClientSession {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = JsonObject::deserialize(deserializer)?;
        let stored: SessionJson = serde_json::from_str(&object.to_json_string()).map_err(D::Error::custom)?;
        Self::try_from(stored).map_err(D::Error::custom)
    }
}

impl From<ClientSession> for SessionJson {
    fn from(session: ClientSession) -> Self {
        let task_state = session.task_state();
        Self { context_id: session.context_id, task_id: session.task.map(|(id, _)| id), task_state }
    }
}

impl TryFrom<SessionJson> for ClientSession {
    type Error = SessionError;

    fn try_from(stored: SessionJson) -> Result<Self, SessionError> {
        let session = stored.context_id.map(Self::in_context).transpose()?.unwrap_or_default();
        match (stored.task_id, stored.task_state) {
            (Some(id), state) => session.with_task(id, state.unwrap_or_default()),
            (None, Some(_)) => Err(SessionError::Incomplete { field: "taskState", needed: "taskId" }),
            (None, None) => Ok(session),
        }
    }
}
