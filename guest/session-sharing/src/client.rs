//! The caller's side: shares the events that an agent does not have, and records up to which event the agent has them.
//!
//! This record is the boundary. It moves when the agent acknowledges the shared events in an answer that ends
//! successfully. After any other answer the boundary stays, and the next call shares the same events again. If a call
//! gets no answer, the agent may have lost the conversation and refused the call. Then the next call shares all events.

use annex_sdk::members::Members;
use annex_sdk::{Addition, Incoming, Json, Outgoing, Rejection, Violation, json};

use crate::boundaries::{self, Boundary, ClientKeys, Conversation};
use crate::event::Event;
use crate::node::Node;
use crate::parameters::{Limits, Parameters};
use crate::server::is_good_end;
use crate::wire::{Acknowledgement, Mode, SharedEvents, read_mode, read_peer};

/// A call whose message shares events, until the agent acknowledges the events.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    agent: String,
    mode: Mode,
    peer: String,
    revision: u64,
    up_to: u64,
    /// The number of the last event that the agent had before the call.
    before: u64,
    /// The context id in the message.
    context: Option<String>,
    is_settled: bool,
}

/// The conversation that the program wants to share.
struct Input {
    mode: Mode,
    peer: String,
    revision: u64,
    events: Vec<Event>,
    up_to: u64,
}

/// Makes the addition with the events to share, and the call that waits for the acknowledgement of these events.
/// Nothing is shared with an agent that does not declare the extension.
pub fn before(
    parameters: &Parameters,
    call: &Outgoing,
    keys: &impl ClientKeys,
) -> Result<(Addition, Option<Call>), Rejection> {
    // Other operations have no message to which events could be added.
    let is_message = matches!(call.operation.as_str(), "SendMessage" | "SendStreamingMessage");
    let (Some(declaration), Some(input), Some(message), true) =
        (&call.declaration, &call.input, &call.message, is_message)
    else {
        return Ok((Addition::none(), None));
    };
    let root = Node::new(input, "");
    let input = Input::read(&root)?;
    let context = text_member(message, "contextId");
    let limits = [parameters.limits(), Limits::declared(declaration)];
    // Without a context the agent's conversation begins with this message, so the agent cannot have any event.
    let conversation = context.clone().filter(|_| input.mode == Mode::Delta).map(|context| {
        let agent = call.agent.clone();
        let peer = input.peer.clone();
        Conversation { agent, peer, context }
    });
    let boundary = conversation.as_ref().map_or(Ok(None), |conversation| known(&input, &root, conversation, keys))?;
    let mut shared = input.within(boundary, &limits, &call.agent)?;
    if let (Some(conversation), Some(boundary)) = (&conversation, boundary) {
        // The boundary is open until an answer arrives, so that the next call detects a call without an answer. If the
        // boundary cannot be stored, this call shares everything, because the next one could not detect it.
        let open = Boundary { is_open: true, ..boundary };
        if boundaries::set(conversation, open, keys).is_err() {
            shared = input.within(Some(open), &limits, &call.agent)?;
        }
    }
    let value = shared.write().map_err(|error| Violation::new("", error))?;
    let SharedEvents { mode, peer, revision, base, up_to, .. } = shared;
    let call =
        Call { agent: call.agent.clone(), mode, peer, revision, up_to, before: base, context, is_settled: false };
    Ok((Addition::entry(parameters.shared_key(), value), Some(call)))
}

/// Refuses events that exceed one of the limits. `limits` has the limits of this side and of the agent.
fn check_limits(shared: &SharedEvents, limits: &[Limits]) -> Result<(), Violation> {
    let sizes: Vec<usize> = shared.events.iter().map(Event::size).collect();
    let Some(passed) = limits.iter().find_map(|limits| limits.passed_by(&sizes)) else { return Ok(()) };
    let advice = "put a summary in place of older ones, under a new `revision`";
    Err(Violation::new("/events", format!("{passed}: {advice}")))
}

/// Reads an answer. If the boundary moved, returns the context and the new boundary for the program.
///
/// # Errors
/// The agent answers in a context other than the message's. No boundary is stored for such an answer.
pub fn after(
    parameters: &Parameters,
    call: &mut Call,
    incoming: &Incoming,
    keys: &impl ClientKeys,
) -> Result<Option<Json>, String> {
    // In the mode `full` nothing is stored.
    if call.mode == Mode::Full {
        return Ok(None);
    }
    let Some(answer) = Answer::read(&incoming.event) else { return Ok(None) };
    let Some(context) = answer.context.or_else(|| call.context.clone()) else { return Ok(None) };
    // Another context would move the boundary of a conversation that did not get the events.
    if let Some(named) = call.context.as_ref().filter(|named| **named != context) {
        return Err(format!("the agent answered in the context {context:?}, and the message was for {named:?}"));
    }
    call.context = Some(context.clone());
    let expected = Acknowledgement::of(call.mode, &call.peer, call.revision, call.up_to);
    let key = parameters.received_key();
    let is_received = incoming.metadata.iter().any(|(own, value)| *own == key && expected.is_in(value));
    let moves = answer.is_good && is_received;
    if moves || !call.is_settled {
        // The first answer closes the open boundary, whether successful or not: it proves that the agent has the
        // conversation.
        let up_to = if moves { call.up_to } else { call.before };
        let boundary = Boundary { revision: call.revision, up_to, is_open: false };
        let conversation =
            Conversation { agent: call.agent.clone(), peer: call.peer.clone(), context: context.clone() };
        // Events whose boundary cannot be kept are shared again.
        let kept = boundaries::set(&conversation, boundary, keys);
        call.is_settled = kept.is_ok();
    }
    Ok(moves.then(|| format!(r#"{{"contextId":{},"received":{}}}"#, json::string(&context), call.up_to)))
}

/// The boundary up to which the agent has this revision of the conversation; `None` if unknown.
fn known(
    input: &Input,
    root: &Node<'_>,
    conversation: &Conversation,
    keys: &impl ClientKeys,
) -> Result<Option<Boundary>, Violation> {
    let Some(boundary) = boundaries::get(conversation, keys) else { return Ok(None) };
    let object = root.object()?;
    if input.revision < boundary.revision {
        let message = format!("must not go back: the agent has revision {}", boundary.revision);
        return Err(Violation::new("/revision", message));
    }
    // A new history is shared from its start.
    if input.revision > boundary.revision {
        return Ok(None);
    }
    if input.up_to < boundary.up_to {
        let message = format!(
            "end at {}, and the agent has them up to {}: set a new `revision` when events were changed or removed",
            input.up_to, boundary.up_to
        );
        return Err(object.need("events")?.violation(message));
    }
    if let Some(current) = object.get("current")
        && current.number()? <= boundary.up_to
    {
        return Err(current.violation("was answered by the agent already"));
    }
    Ok(Some(boundary))
}

impl Input {
    fn read(root: &Node<'_>) -> Result<Self, Violation> {
        let object = root.object()?;
        let mode = object.get("mode").map_or(Ok(Mode::Delta), |mode| read_mode(&mode))?;
        let peer = read_peer(&object.need("peer")?)?;
        let revision = object.number_or_zero("revision")?;
        let (mut events, last) = Event::read_all(&object.need("events")?)?;
        let mut up_to = last;
        if let Some(current) = object.get("current") {
            let number = current.number()?;
            // The message's own event is sent as its parts, and must not be added twice.
            events.retain(|event| event.seq != number);
            up_to = last.max(number);
        }
        Ok(Self { mode, peer, revision, events, up_to })
    }

    /// The events for the agent: usually the events after the boundary. After a call without an answer, the agent may
    /// have lost the conversation. All events are then shared if the limits allow, otherwise the events after the
    /// boundary.
    fn within(&self, boundary: Option<Boundary>, limits: &[Limits], agent: &str) -> Result<SharedEvents, Violation> {
        let newer = self.since(boundary.map_or(0, |boundary| boundary.up_to), agent);
        // The previous call got no answer, perhaps because the agent has lost the conversation.
        if boundary.is_some_and(|boundary| boundary.is_open) {
            let all = self.since(0, agent);
            if check_limits(&all, limits).is_ok() {
                return Ok(all);
            }
        }
        check_limits(&newer, limits)?;
        Ok(newer)
    }

    /// The events for an agent that has the events up to `base`. The agent's own answers are included only if `base` is
    /// 0, because an agent without any events may have lost its answers too.
    fn since(&self, base: u64, agent: &str) -> SharedEvents {
        let newer = self.events.iter().filter(|event| event.seq > base);
        let marked = newer.map(|event| Event { yours: event.agent.as_deref() == Some(agent), ..event.clone() });
        let events = marked.filter(|event| base == 0 || !event.yours).collect();
        let Self { mode, peer, revision, up_to, .. } = self;
        SharedEvents { mode: *mode, peer: peer.clone(), revision: *revision, base, up_to: *up_to, events }
    }
}

/// The relevant facts of a StreamResponse.
struct Answer {
    context: Option<String>,
    /// True if the turn has ended successfully.
    is_good: bool,
}

impl Answer {
    fn read(event: &str) -> Option<Self> {
        let event = Members::of(event)?;
        // A StreamResponse has exactly one member.
        let (kind, value) = event.iter().next()?;
        let status = Members::of(value)?.get("status").unwrap_or_default();
        let state = text_member(status, "state").unwrap_or_default();
        let context = text_member(value, "contextId").filter(|context| !context.is_empty());
        Some(Self { context, is_good: kind == "message" || is_good_end(&state) })
    }
}

fn text_member(object: &str, name: &str) -> Option<String> {
    serde_json::from_str(Members::of(object)?.get(name)?).ok()
}

#[cfg(test)]
mod tests;
