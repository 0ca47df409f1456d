//! Puts the session's state into requests to the upstream, and reads changes of the state from the upstream's answers.

use annex_agent::{AgentError, render};
use annex_conversation::{Conversation, Scope, StateDelta};
use annex_protocol::{
    Artifact, Json, JsonObject, Message, Metadata, Part, PartContent, SendMessageRequest, StreamResponse,
};

use crate::config::{StateMapping, StateSource, StateTarget};

impl StateMapping {
    /// Puts the state of the session into the request.
    ///
    /// # Errors
    /// When the template names a key that has no value.
    pub(crate) fn send(&self, session: &Conversation, request: &mut SendMessageRequest) -> Result<(), AgentError> {
        let Some(send) = self.send else { return Ok(()) };
        if send == StateTarget::TextPart {
            let template = self.template.as_deref().unwrap_or_default();
            let text = render(template, |key| session.value(key)).map_err(|error| AgentError::Failed {
                message: format!("{error} Each message takes it to the agent: send it as session state, or make it optional by a `?` in agent.state.template."),
            })?;
            put_in_front(&mut request.message.parts, text);
            return Ok(());
        }
        let key = self.key.clone().unwrap_or_default();
        let state = self.chosen(session).to_json().map_err(AgentError::internal)?;
        match send {
            StateTarget::RequestMetadata => drop(request.metadata.insert(key, state)),
            StateTarget::MessageMetadata => drop(request.message.metadata.insert(key, state)),
            StateTarget::DataPart | StateTarget::TextPart => {
                let data = JsonObject::from_iter([(key, state)]).to_json().map_err(AgentError::internal)?;
                request.message.parts.insert(0, PartContent::Data(data).into());
            }
        }
        Ok(())
    }

    /// The state keys that are sent, with their values. Keys without a value in the session are omitted.
    fn chosen(&self, session: &Conversation) -> JsonObject {
        let Some(keys) = &self.keys else { return session.own_state() };
        keys.iter().filter_map(|key| Some((key.clone(), session.value(key)?))).collect()
    }

    /// True if changes of the state are read from the content of an event, which extensions may revise.
    pub(crate) fn is_in_content(&self) -> bool {
        self.receive == Some(StateSource::DataPart)
    }

    /// Reads the change of state in an event; empty if the event contains none. Keys that other conversations share are dropped
    /// and logged.
    pub(crate) fn received(&self, event: &StreamResponse) -> StateDelta {
        let mut delta = StateDelta::new();
        let (Some(receive), Some(key)) = (self.receive, self.received_key()) else { return delta };
        for object in found(receive, key, event) {
            for (key, value) in object {
                // Keys of the user and of the app are shared with other conversations, in which the upstream has no
                // say.
                if Scope::of(&key).0 == Scope::Conversation {
                    delta.insert(key, value);
                } else {
                    tracing::warn!(key, "the upstream agent may change the session's own state only");
                }
            }
        }
        delta
    }
}

/// Puts `text` in front of the user's text, in the same part. Some agents read only one text part, and others join all
/// parts without a space. A message without text gets a text part.
fn put_in_front(parts: &mut Vec<Part>, text: String) {
    let said = parts.iter_mut().find_map(|part| match &mut part.content {
        PartContent::Text(said) => Some(said),
        PartContent::Raw(_) | PartContent::Url(_) | PartContent::Data(_) => None,
    });
    match said {
        Some(said) => said.insert_str(0, &format!("{text}\n\n")),
        None => parts.insert(0, Part::text(text)),
    }
}

/// The objects under `key` in an event, in order. `receive` says where in the event they are.
fn found(receive: StateSource, key: &str, event: &StreamResponse) -> Vec<JsonObject> {
    let in_metadata = |metadata: &Metadata| metadata.get(key).and_then(object);
    match receive {
        StateSource::TaskMetadata => match event {
            StreamResponse::Task(task) => in_metadata(&task.metadata).into_iter().collect(),
            StreamResponse::StatusUpdate(update) => in_metadata(&update.metadata).into_iter().collect(),
            StreamResponse::ArtifactUpdate(update) => in_metadata(&update.metadata).into_iter().collect(),
            StreamResponse::Message(_) => Vec::new(),
        },
        StateSource::ArtifactMetadata => {
            artifacts(event).iter().filter_map(|artifact| in_metadata(&artifact.metadata)).collect()
        }
        StateSource::DataPart => {
            let in_artifacts = artifacts(event).iter().flat_map(|artifact| &artifact.parts);
            let in_message = message(event).into_iter().flat_map(|message| &message.parts);
            in_artifacts.chain(in_message).filter_map(|part| in_part(part, key)).collect()
        }
    }
}

fn in_part(part: &Part, key: &str) -> Option<JsonObject> {
    match &part.content {
        PartContent::Data(data) => data.to::<JsonObject>().ok()?.get(key).and_then(object),
        PartContent::Text(_) | PartContent::Raw(_) | PartContent::Url(_) => None,
    }
}

fn object(json: &Json) -> Option<JsonObject> {
    json.to().ok()
}

/// The artifacts of an event.
fn artifacts(event: &StreamResponse) -> &[Artifact] {
    match event {
        StreamResponse::Task(task) => &task.artifacts,
        StreamResponse::ArtifactUpdate(update) => std::slice::from_ref(&update.artifact),
        StreamResponse::StatusUpdate(_) | StreamResponse::Message(_) => &[],
    }
}

/// The agent's message in an event.
fn message(event: &StreamResponse) -> Option<&Message> {
    match event {
        StreamResponse::Task(task) => task.status.message.as_ref(),
        StreamResponse::StatusUpdate(update) => update.status.message.as_ref(),
        StreamResponse::Message(message) => Some(message),
        StreamResponse::ArtifactUpdate(_) => None,
    }
}
