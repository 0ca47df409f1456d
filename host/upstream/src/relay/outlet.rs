//! The output of the relay: changes of the session, and events for the client.

use std::sync::OnceLock;

use annex_agent::{AgentError, AgentEvent, EventSender, TurnContext, UpstreamContext};
use annex_conversation::{Event, StateDelta};
use annex_protocol::{ExtensionUri, Json, Message, MessageId, Metadata, Part, Role, StreamResponse};
use serde_json::Value;

use super::measure::{change_metadata_of_parts, metadata_of, remove_from_parts};
use crate::config::StateMapping;

/// True for the metadata keys that this server sets for its clients, such as `annex/not-carried`.
fn is_of_server(key: &str) -> bool {
    key.starts_with("annex/")
}

/// Metadata that the upstream got, and that this server must not store.
struct ForgottenEntry<'a> {
    key: &'a str,
    sent: &'a Json,
    /// The canonical text of `sent`. It is made once, because a small event must not cost the reading of a large value.
    canonical: OnceLock<Option<String>>,
}

impl ForgottenEntry<'_> {
    /// True if both are the same JSON value, also if one of them is formatted in another way.
    fn is_repeated_by(&self, value: &Json) -> bool {
        value == self.sent || {
            let sent = self.canonical.get_or_init(|| canonical(self.sent));
            sent.is_some() && *sent == canonical(value)
        }
    }
}

/// The JSON text without spaces, and with the members of objects in order. `None` if the value cannot be read.
fn canonical(json: &Json) -> Option<String> {
    let mut value: Value = json.to().ok()?;
    value.sort_all_objects();
    Some(value.to_string())
}

/// Removes the entries that repeat one of `forgotten`.
fn remove_repeated(metadata: &mut Metadata, forgotten: &[ForgottenEntry<'_>]) {
    for entry in forgotten {
        if metadata.get(entry.key).is_some_and(|value| entry.is_repeated_by(value)) {
            metadata.remove(entry.key);
        }
    }
}

pub(super) struct Outlet<'a> {
    turn: &'a TurnContext,
    remote: &'a UpstreamContext,
    /// The agent's name. It is the author of the agent's events in the session.
    agent: &'a str,
    events: EventSender,
    forgotten: Vec<ForgottenEntry<'a>>,
    /// The number of events that were relayed.
    sent: usize,
}

impl<'a> Outlet<'a> {
    pub(super) fn new(turn: &'a TurnContext, remote: &'a UpstreamContext, agent: &'a str, events: EventSender) -> Self {
        let forgotten = remote.forgotten_in_message.iter().chain(remote.forgotten_in_request.iter());
        let forgotten = forgotten.map(|(key, sent)| ForgottenEntry { key, sent, canonical: OnceLock::new() }).collect();
        Self { turn, remote, agent, events, forgotten, sent: 0 }
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
    /// because the upstream may not write such keys. Also removes forgotten metadata that the upstream repeats.
    pub(super) async fn send(&mut self, mut event: StreamResponse) -> Result<(), AgentError> {
        self.sent += 1;
        let own = &self.remote.own_keys;
        let is_others = |key: &str| is_of_server(key) || own.iter().any(|own| own == key);
        for metadata in metadata_of(&mut event) {
            metadata.retain_keys(|key| !is_others(key));
            remove_repeated(metadata, &self.forgotten);
        }
        remove_from_parts(&mut event, is_others);
        if !self.forgotten.is_empty() {
            let is_affected = |metadata: &Metadata| self.forgotten.iter().any(|entry| metadata.contains_key(entry.key));
            change_metadata_of_parts(&mut event, is_affected, |metadata| remove_repeated(metadata, &self.forgotten));
        }
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

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use annex_protocol::Json;

    use super::ForgottenEntry;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned()).expect("JSON")
    }

    #[test]
    fn a_repeated_value_is_found_in_each_form_and_the_sent_one_is_read_once() {
        let sent = json(r#"{"a": [1, "x"], "b": {"c": null, "d": "\u0079"}}"#);
        let entry = ForgottenEntry { key: "k", sent: &sent, canonical: OnceLock::new() };
        assert!(entry.is_repeated_by(&sent.clone()) && entry.canonical.get().is_none());
        for same in [r#"{"b":{"d":"y","c":null},"a":[1,"x"]}"#, r#"{"a":[1,"\u0078"],"b":{"c":null,"d":"y"}}"#] {
            assert!(entry.is_repeated_by(&json(same)), "{same}");
        }
        for other in [r#"{"a":["x",1],"b":{"c":null,"d":"y"}}"#, "1", r#"{"a":[1,"x"]}"#] {
            assert!(!entry.is_repeated_by(&json(other)), "{other}");
        }
        let read = entry.canonical.get().map(|text| text.as_deref());
        assert_eq!(read, Some(Some(r#"{"a":[1,"x"],"b":{"c":null,"d":"y"}}"#)));
    }
}
