//! The output of the relay: changes of the session, and events for the client.

use annex_agent::{AgentError, AgentEvent, EventSender, TurnContext, UpstreamContext};
use annex_conversation::{Event, StateDelta};
use annex_protocol::{ExtensionUri, Json, Message, MessageId, Part, Role, StreamResponse};
use serde_json::Value;

use super::measure::{metadata_of, remove_from_parts};
use crate::config::StateMapping;

/// True for the metadata keys that this server sets for its clients, such as `annex/not-carried`.
fn is_of_server(key: &str) -> bool {
    key.starts_with("annex/")
}

/// True if both are the same JSON value, also if one of them is formatted in another way.
fn is_same(one: &Json, other: &Json) -> bool {
    let values = || one.to::<Value>().ok().zip(other.to::<Value>().ok());
    one == other || values().is_some_and(|(one, other)| one == other)
}

pub(super) struct Outlet<'a> {
    turn: &'a TurnContext,
    remote: &'a UpstreamContext,
    /// The agent's name. It is the author of the agent's events in the session.
    agent: &'a str,
    events: EventSender,
    /// The number of events that were relayed.
    sent: usize,
}

impl<'a> Outlet<'a> {
    pub(super) fn new(turn: &'a TurnContext, remote: &'a UpstreamContext, agent: &'a str, events: EventSender) -> Self {
        Self { turn, remote, agent, events, sent: 0 }
    }

    /// The number of events that were relayed.
    pub(super) fn sent(&self) -> usize {
        self.sent
    }

    /// Tells the client that the turn has begun, before the upstream has sent any event.
    pub(super) async fn begin(&self) -> Result<(), AgentError> {
        self.events.send(AgentEvent::Begun).await
    }

    /// Relays an event. Removes metadata under keys that belong to this server or to an extension that runs here,
    /// because the upstream may not write such keys. Also removes metadata that this server must not store, if the upstream
    /// repeats it.
    pub(super) async fn send(&mut self, mut event: StreamResponse) -> Result<(), AgentError> {
        self.sent += 1;
        let own = &self.remote.own_keys;
        let is_others = |key: &str| is_of_server(key) || own.iter().any(|own| own == key);
        for metadata in metadata_of(&mut event) {
            metadata.retain_keys(|key| !is_others(key));
            for (key, sent) in self.remote.message_metadata.iter().chain(self.remote.request_metadata.iter()) {
                if metadata.get(key).is_some_and(|repeated| is_same(repeated, sent)) {
                    metadata.remove(key);
                }
            }
        }
        remove_from_parts(&mut event, is_others);
        self.events.send(AgentEvent::Relayed(Box::new(event))).await
    }

    /// Reads the change of state in an event. If extensions may revise content, the server reads a change in the content from
    /// the event that they have left.
    pub(super) fn received(&self, mapping: &StateMapping, event: &StreamResponse) -> StateDelta {
        if self.turn.is_revised && mapping.is_in_content() { StateDelta::new() } else { mapping.received(event) }
    }

    /// Changes the session's state.
    pub(super) async fn change(&self, delta: StateDelta) -> Result<(), AgentError> {
        if delta.is_empty() {
            return Ok(());
        }
        let event = self.event(Vec::new(), delta);
        self.turn.conversation.append(vec![event.into()]).await.map(drop).map_err(AgentError::unstored)
    }

    /// Adds the answer to the session's history, together with a last change of the session's state.
    pub(super) async fn remember(&self, answer: String, delta: StateDelta) -> Result<(), AgentError> {
        let parts = if answer.is_empty() { Vec::new() } else { vec![Part::text(answer)] };
        self.turn.conversation.stage(self.event(parts, delta)).await.map_err(AgentError::unstored)
    }

    fn event(&self, parts: Vec<Part>, delta: StateDelta) -> Event {
        Event::new(self.agent, self.turn.task_id.clone(), parts, delta)
    }

    /// Prepares a message for relaying as a status message, with the agent's role. `None` if the message has the user's
    /// role or no parts.
    pub(super) fn adopted(&self, message: Message) -> Option<Message> {
        if message.role == Role::User || message.parts.is_empty() {
            tracing::debug!("a status message of the upstream agent is the user's or has no parts; it is dropped");
            return None;
        }
        Some(self.as_agents(message))
    }

    /// The message with the agent's role. Its task references, and the extensions that this server did not request, are
    /// removed. A message without an id gets an id.
    pub(super) fn as_agents(&self, mut message: Message) -> Message {
        message.role = Role::Agent;
        if message.message_id.is_empty() {
            message.message_id = MessageId::generate();
        }
        message.reference_task_ids.clear();
        self.retain_asked(&mut message.extensions);
        message
    }

    /// Removes extensions that this server did not request from the upstream. The upstream cannot activate extensions
    /// that run here.
    pub(super) fn retain_asked(&self, extensions: &mut Vec<ExtensionUri>) {
        extensions.retain(|uri| self.remote.extensions.contains(uri));
    }
}
