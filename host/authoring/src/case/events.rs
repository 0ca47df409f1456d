//! The message and the events of a case.

use annex_protocol::{
    Artifact, ContextId, JsonObject, Message, MessageId, Metadata, Part, StreamResponse, TaskArtifactUpdateEvent,
    TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use annex_runtime::ReadyAnswer;

use super::file::{AnswerGiven, CaseError, CaseInputs};
use super::scene::{CONTEXT, TASK};
use super::toml_json;

/// The events of the agent.
pub(super) fn agent_events(given: &CaseInputs) -> Result<Vec<StreamResponse>, CaseError> {
    let finished = [
        AnswerGiven { artifact: Some("Hello, world!".to_owned()), ..AnswerGiven::default() },
        AnswerGiven { state: Some("completed".to_owned()), ..AnswerGiven::default() },
    ];
    let answer = given.answer.as_deref().unwrap_or(&finished);
    answer.iter().enumerate().map(|(place, answer)| event(answer, place)).collect()
}

/// The events of an answer that the extension gives in place of the agent.
pub(super) fn events_of(answer: ReadyAnswer) -> Vec<StreamResponse> {
    let ReadyAnswer { by, state, parts, artifact: name, metadata } = answer;
    let Some(name) = name else {
        let message = Message { parts: parts.into(), metadata, extensions: vec![by], ..agent_message("") };
        let mut update = status(state, None);
        update.status.message = Some(message);
        return vec![StreamResponse::StatusUpdate(update)];
    };
    let artifact = Artifact {
        artifact_id: name.clone().into(),
        name: Some(name),
        parts: parts.into(),
        metadata,
        extensions: vec![by],
        ..Artifact::default()
    };
    vec![artifact_update(artifact), StreamResponse::StatusUpdate(status(state, None))]
}

fn artifact_update(artifact: Artifact) -> StreamResponse {
    StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: TaskId::from(TASK),
        context_id: ContextId::from(CONTEXT),
        artifact,
        last_chunk: true,
        ..TaskArtifactUpdateEvent::default()
    })
}

/// Reads the message of the case from a text or from a Message object. Missing ids get the values that all cases have.
pub(super) fn message(given: &CaseInputs) -> Result<Message, CaseError> {
    let wrong = |reason: String| CaseError::wrong("message", reason);
    let mut message = match &given.message {
        None => Message::user_text("Hello"),
        Some(toml::Value::String(text)) => Message::user_text(text),
        Some(toml::Value::Table(table)) => {
            let mut table = table.clone();
            table.entry("messageId").or_insert_with(|| "message-1".into());
            table.entry("role").or_insert_with(|| "ROLE_USER".into());
            table.entry("parts").or_insert_with(|| toml::Value::Array(Vec::new()));
            serde_json::from_value(toml_json::object(&table)).map_err(|error| wrong(error.to_string()))?
        }
        Some(_) => return Err(wrong("it is neither a text nor a Message".to_owned())),
    };
    message.message_id = MessageId::from("message-1");
    message.context_id.get_or_insert_with(|| ContextId::from(CONTEXT));
    Ok(message)
}

pub(super) fn metadata(given: &CaseInputs) -> Result<Metadata, CaseError> {
    let metadata = JsonObject::parse(&toml_json::object(&given.metadata).to_string());
    metadata.map_err(|error| CaseError::wrong("metadata", error))
}

/// Converts an entry of the case to an event of the agent. `place` is the index of the entry.
fn event(answer: &AnswerGiven, place: usize) -> Result<StreamResponse, CaseError> {
    let AnswerGiven { artifact, state: next, message, event } = answer;
    Ok(match (artifact, next, message, event) {
        (Some(text), None, None, None) => artifact_update(Artifact {
            artifact_id: format!("artifact-{}", place + 1).into(),
            parts: vec![Part::text(text)].into(),
            ..Artifact::default()
        }),
        (None, Some(next), message, None) => {
            StreamResponse::StatusUpdate(status(state(next, "answer.state")?, message.as_deref()))
        }
        (None, None, Some(text), None) => StreamResponse::Message(agent_message(text)),
        (None, None, None, Some(event)) => {
            let wrong = |error: serde_json::Error| CaseError::wrong("answer.event", error);
            let mut event = toml_json::of_case(event).map_err(wrong)?;
            fill_in(&mut event, place);
            serde_json::from_value(event).map_err(wrong)?
        }
        _ => {
            let reason = "each has an artifact, a state (with or without a message), a message, or an event";
            return Err(CaseError::wrong("answer", reason));
        }
    })
}

/// Adds missing ids to an event of a case.
fn fill_in(event: &mut serde_json::Value, place: usize) {
    fn fill(object: Option<&mut serde_json::Value>, ids: &[(&str, &str)]) {
        let Some(object) = object.and_then(serde_json::Value::as_object_mut) else { return };
        for (key, id) in ids {
            object.entry(*key).or_insert_with(|| (*id).into());
        }
    }
    let of_task = [("taskId", TASK), ("contextId", CONTEXT)];
    let of_message = [("messageId", "answer-1"), ("role", "ROLE_AGENT"), ("contextId", CONTEXT), ("taskId", TASK)];
    let artifact = format!("artifact-{}", place + 1);
    fill(event.get_mut("artifactUpdate"), &of_task);
    fill(event.pointer_mut("/artifactUpdate/artifact"), &[("artifactId", &artifact)]);
    fill(event.get_mut("statusUpdate"), &of_task);
    fill(event.pointer_mut("/statusUpdate/status/message"), &of_message);
    fill(event.get_mut("message"), &of_message);
}

fn agent_message(text: &str) -> Message {
    let message = Message::agent(ContextId::from(CONTEXT), Some(TaskId::from(TASK)), vec![Part::text(text)]);
    Message { message_id: MessageId::from("answer-1"), ..message }
}

pub(super) fn status(state: TaskState, message: Option<&str>) -> TaskStatusUpdateEvent {
    TaskStatusUpdateEvent {
        task_id: TaskId::from(TASK),
        context_id: ContextId::from(CONTEXT),
        status: TaskStatus { state, message: message.map(agent_message), timestamp: None },
        ..TaskStatusUpdateEvent::default()
    }
}

/// Reads the name of a state, with or without `TASK_STATE_`. `key` is the key of the case that has the name, for the error.
pub(super) fn state(name: &str, key: &str) -> Result<TaskState, CaseError> {
    let whole = format!("TASK_STATE_{}", name.trim_start_matches("TASK_STATE_").replace('-', "_").to_uppercase());
    serde_json::from_value(whole.into()).map_err(|_| CaseError::wrong(key, format!("there is no state {name:?}")))
}
