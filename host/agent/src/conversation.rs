//! Converts the events of a session into a prompt, which is a list of [`Turn`]s. Finds the tool calls of a task whose
//! results the client has yet to send.

use std::collections::HashSet;
use std::sync::Arc;

use annex_conversation::Event;
use annex_protocol::{Json, Part, PartContent};

use crate::call_part::{self, CallPart};
use crate::model::{ToolCall, ToolResult, Turn};

/// The conversation so far.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    items: Vec<Item>,
}

#[derive(Debug)]
enum Item {
    User(String),
    Agent(String),
    Calls(Exchange),
}

/// The tool calls of one answer of the agent.
#[derive(Debug)]
struct Exchange {
    invocation: Arc<str>,
    text: String,
    calls: Vec<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    call: ToolCall,
    response: Option<Json>,
    /// True while the response is preliminary, and the client has not sent the result yet.
    is_pending: bool,
    /// True if the client has sent the response, and the agent has not stored it as the model gets it.
    is_sent: bool,
    /// The wait before the call. `None` if the task does not wait before the call.
    held: Option<Hold>,
}

/// The wait of a task before a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The extensions whose waits the client knows of.
    pub(crate) by: Vec<String>,
    /// The other extensions that want the call to wait. The client was shown another wait in place of theirs.
    pub(crate) unshown: Vec<String>,
    /// The number of waits that the client knows of.
    pub(crate) times: u32,
}

impl Hold {
    /// True if the call waits for `extension` already.
    pub(crate) fn has(&self, extension: &str) -> bool {
        self.by.iter().chain(&self.unshown).any(|known| known == extension)
    }

    /// The wait with one more extension, whose wait the client is not shown.
    pub(crate) fn unshown_for(mut self, extension: &str) -> Self {
        self.unshown.push(extension.to_owned());
        self
    }

    /// The wait with one more that the client learns of, for `extension`.
    pub(crate) fn shown_for(mut self, extension: &str) -> Self {
        self.unshown.retain(|known| known != extension);
        if !self.by.iter().any(|known| known == extension) {
            self.by.push(extension.to_owned());
        }
        Self { times: self.times.saturating_add(1), ..self }
    }
}

impl Conversation {
    pub(crate) fn of(events: &[Arc<Event>]) -> Self {
        let mut conversation = Self::default();
        for event in events {
            if event.is_from_user() {
                conversation.take_user(event);
            } else {
                conversation.take_agent(event);
            }
        }
        conversation
    }

    /// The calls of this invocation whose results the client has yet to send.
    pub(crate) fn waiting(&self, invocation: &str) -> Vec<ToolCall> {
        let exchanges = self.items.iter().filter_map(|item| match item {
            Item::Calls(exchange) if *exchange.invocation == *invocation => Some(&exchange.calls),
            Item::Calls(_) | Item::User(_) | Item::Agent(_) => None,
        });
        exchanges.flatten().filter(|outcome| outcome.is_pending).map(|outcome| outcome.call.clone()).collect()
    }

    /// The calls of this invocation before which the task waits.
    pub(crate) fn held(&self, invocation: &str) -> Vec<(ToolCall, Hold)> {
        let exchanges = self.items.iter().filter_map(|item| match item {
            Item::Calls(exchange) if *exchange.invocation == *invocation => Some(&exchange.calls),
            Item::Calls(_) | Item::User(_) | Item::Agent(_) => None,
        });
        let held = |outcome: &Outcome| Some((outcome.call.clone(), outcome.held.clone()?));
        exchanges.flatten().filter_map(held).collect()
    }

    /// The calls of this invocation with the results that the client has sent, and that no extension was asked about.
    pub(crate) fn sent(&self, invocation: &str) -> Vec<(ToolCall, Json)> {
        let exchanges = self.items.iter().filter_map(|item| match item {
            Item::Calls(exchange) if *exchange.invocation == *invocation => Some(&exchange.calls),
            Item::Calls(_) | Item::User(_) | Item::Agent(_) => None,
        });
        let sent = exchanges.flatten().filter(|outcome| outcome.is_sent);
        sent.filter_map(|outcome| Some((outcome.call.clone(), outcome.response.clone()?))).collect()
    }

    /// The ids of all calls, pending ones included.
    pub(crate) fn call_ids(&self) -> HashSet<&str> {
        let exchanges = self.items.iter().filter_map(|item| match item {
            Item::Calls(exchange) => Some(&exchange.calls),
            Item::User(_) | Item::Agent(_) => None,
        });
        exchanges.flatten().map(|outcome| outcome.call.id.as_str()).collect()
    }

    /// Converts the conversation to the turns of a prompt. Each call is followed directly by its result, as models require.
    pub(crate) fn into_turns(self) -> Vec<Turn> {
        let mut turns = Vec::with_capacity(self.items.len());
        for item in self.items {
            match item {
                Item::User(text) => turns.push(Turn::User(text)),
                Item::Agent(text) => turns.push(Turn::Agent { text, calls: Vec::new() }),
                Item::Calls(exchange) => turns.extend(exchange.into_turns()),
            }
        }
        turns
    }

    /// Adds a user's event. A result for a pending call is stored with the call. Other parts in the form of a result
    /// count as the user's text.
    fn take_user(&mut self, event: &Event) {
        let text = readable(event.parts.iter().filter(|part| !self.answered(&event.invocation_id, part)));
        if !text.is_empty() {
            self.items.push(Item::User(text));
        }
    }

    fn take_agent(&mut self, event: &Event) {
        let mut calls = Vec::new();
        let mut said = Vec::new();
        for part in &event.parts {
            match call_part::read(part) {
                Some(CallPart::Call { call, held_by }) => {
                    let held = held_by.map(|by| Hold { unshown: vec![by], ..Hold::default() });
                    calls.push(Outcome { call, response: None, is_pending: false, is_sent: false, held });
                }
                Some(CallPart::Response { result, is_pending }) => {
                    self.take_response(&event.invocation_id, result, is_pending);
                }
                Some(CallPart::Waited { id, arguments, hold }) => {
                    let found = self.find(&event.invocation_id, &id).map(|(_, outcome)| outcome);
                    if let Some(outcome) = found.filter(|outcome| outcome.held.is_some()) {
                        (outcome.held, outcome.call.arguments) = (Some(hold), arguments);
                    }
                }
                Some(CallPart::Released { id, arguments }) => {
                    if let Some((index, outcome)) = self.find(&event.invocation_id, &id) {
                        (outcome.held, outcome.call.arguments) = (None, arguments);
                        self.move_behind(index);
                    }
                }
                None => said.push(part),
            }
        }
        let text = readable(said);
        if !calls.is_empty() {
            self.items.push(Item::Calls(Exchange { invocation: event.invocation_id.clone(), text, calls }));
        } else if !text.is_empty() {
            self.items.push(Item::Agent(text));
        }
    }

    fn take_response(&mut self, invocation: &str, result: ToolResult, is_pending: bool) {
        let Some((index, outcome)) = self.find(invocation, &result.id) else { return };
        (outcome.response, outcome.is_pending, outcome.is_sent) = (Some(result.response), is_pending, false);
        if outcome.held.take().is_some() {
            self.move_behind(index);
        }
    }

    /// Moves calls behind all later messages. Models require a call directly before its result, and the latest text
    /// last.
    fn move_behind(&mut self, index: usize) {
        let exchange = self.items.remove(index);
        self.items.push(exchange);
    }

    /// Stores the result in `part` if it belongs to a pending call, and returns true. Otherwise changes nothing and returns
    /// false. The call is moved behind all later messages, so that its result is the latest turn.
    fn answered(&mut self, invocation: &str, part: &Part) -> bool {
        let Some(CallPart::Response { result, .. }) = call_part::read(part) else { return false };
        let Some((index, outcome)) = self.find(invocation, &result.id) else { return false };
        // The result of a call that the agent made itself is final: a client cannot replace it.
        if !outcome.is_pending {
            return false;
        }
        (outcome.response, outcome.is_pending, outcome.is_sent) = (Some(result.response), false, true);
        self.move_behind(index);
        true
    }

    /// Finds the latest call with this id in this invocation. Returns the call and the index of its item.
    fn find(&mut self, invocation: &str, id: &str) -> Option<(usize, &mut Outcome)> {
        self.items.iter_mut().enumerate().rev().find_map(|(index, item)| match item {
            // Only calls of this task: a task of a conversation cannot answer the calls of another one.
            Item::Calls(exchange) if *exchange.invocation == *invocation => {
                let outcome = exchange.calls.iter_mut().find(|outcome| outcome.call.id == id)?;
                Some((index, outcome))
            }
            Item::Calls(_) | Item::User(_) | Item::Agent(_) => None,
        })
    }
}

impl Exchange {
    fn into_turns(self) -> [Turn; 2] {
        // Models require a result for each call, also for one that was broken off.
        let result_of = |outcome: &Outcome| ToolResult {
            id: outcome.call.id.clone(),
            name: outcome.call.name.clone(),
            response: outcome.response.clone().unwrap_or_else(|| call_part::error(outcome.unknown())),
        };
        let results = self.calls.iter().map(result_of).collect();
        let calls = self.calls.into_iter().map(|outcome| outcome.call).collect();
        [Turn::Agent { text: self.text, calls }, Turn::Tools(results)]
    }
}

impl Outcome {
    /// Why the call has no result.
    fn unknown(&self) -> &'static str {
        match self.held {
            Some(_) => "the call waits for a decision, and was not made",
            None => "the call was broken off, and its outcome is unknown",
        }
    }
}

/// Writes parts as one text for a model: text parts unchanged, data parts as JSON, joined by line breaks. Files are skipped.
pub fn readable<'a>(parts: impl IntoIterator<Item = &'a Part>) -> String {
    let mut texts = parts.into_iter().filter_map(text_of);
    let mut all = texts.next().map_or_else(String::new, str::to_owned);
    for text in texts {
        all.push('\n');
        all.push_str(text);
    }
    all
}

/// True if no part has readable text.
pub(crate) fn says_nothing(parts: &[Part]) -> bool {
    let mut texts = parts.iter().filter_map(text_of);
    texts.next().is_none_or(str::is_empty) && texts.next().is_none()
}

fn text_of(part: &Part) -> Option<&str> {
    match &part.content {
        PartContent::Text(text) => Some(text),
        PartContent::Data(json) => Some(json.get()),
        // URLs are not fetched here, because the client chooses their targets.
        PartContent::Raw(_) | PartContent::Url(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use annex_conversation::{Event, StateDelta};
    use annex_protocol::{Json, Part};

    use super::{Conversation, Hold};
    use crate::call_part;
    use crate::model::{ToolCall, ToolResult, Turn};

    fn call(arguments: &str) -> ToolCall {
        let arguments = Json::parse(arguments.to_owned()).expect("JSON");
        ToolCall { id: "call-1".to_owned(), name: "sum".to_owned(), arguments, signatures: Vec::new() }
    }

    fn agent(part: Part) -> Arc<Event> {
        Arc::new(Event::new("agent", "t", vec![part], StateDelta::new()))
    }

    fn user(part: Part) -> Arc<Event> {
        Arc::new(Event::of_user("t", vec![part], StateDelta::new()))
    }

    fn result() -> Part {
        let response = Json::parse("1".to_owned()).expect("JSON");
        call_part::response(&ToolResult { id: "call-1".to_owned(), name: "sum".to_owned(), response }, false)
    }

    fn held(events: &[Arc<Event>]) -> Vec<(ToolCall, Hold)> {
        Conversation::of(events).held("t")
    }

    #[test]
    fn a_held_call_is_released_once_with_the_arguments_that_were_shown() {
        let guard = || vec!["urn:guard".to_owned()];
        let unshown = Hold { unshown: guard(), ..Hold::default() };
        let shown = || Hold { by: guard(), times: 1, ..Hold::default() };
        let mut events = vec![user(Part::text("add")), agent(call_part::held(&call(r#"{"a":1}"#), "urn:guard"))];
        assert_eq!(held(&events), [(call(r#"{"a":1}"#), unshown)]);
        assert!(Conversation::of(&events).held("another task").is_empty());
        events.push(agent(call_part::waited(&call(r#"{"a":2}"#), shown())));
        assert_eq!(held(&events), [(call(r#"{"a":2}"#), shown())]);
        // What a client sends in the form of a note or a result is text.
        for part in [call_part::released(&call(r#"{"a":9}"#)), result()] {
            events.push(user(part));
            assert_eq!(held(&events), [(call(r#"{"a":2}"#), shown())]);
        }
        events.push(agent(call_part::released(&call(r#"{"a":2}"#))));
        assert!(held(&events).is_empty());
        // A crash here leaves a call whose outcome nobody knows.
        let turns = Conversation::of(&events).into_turns();
        let Some(Turn::Tools(results)) = turns.last() else { unreachable!("{turns:?}") };
        assert!(results[0].response.get().contains("outcome is unknown"), "{results:?}");
        events.push(agent(result()));
        let turns = Conversation::of(&events).into_turns();
        let Some([Turn::Agent { calls, .. }, Turn::Tools(results)]) = turns.last_chunk::<2>() else {
            unreachable!("{turns:?}")
        };
        assert_eq!((calls.as_slice(), results[0].response.get()), (&[call(r#"{"a":2}"#)][..], "1"));
    }

    #[test]
    fn an_extension_whose_wait_was_not_shown_still_decides_after_another_one_has_waited() {
        let mut events = vec![user(Part::text("add")), agent(call_part::held(&call("{}"), "urn:guard"))];
        let [(_, hold)] = <[_; 1]>::try_from(held(&events)).expect("a call");
        let hold = hold.shown_for("urn:first");
        let expected = Hold { by: vec!["urn:first".to_owned()], unshown: vec!["urn:guard".to_owned()], times: 1 };
        assert_eq!(hold, expected);
        events.push(agent(call_part::waited(&call("{}"), hold)));
        assert_eq!(held(&events), [(call("{}"), expected.clone())]);
        let third = expected.clone().unshown_for("urn:third");
        assert!(third.has("urn:guard") && third.has("urn:third") && !expected.has("urn:third"));
        events.push(agent(call_part::waited(&call("{}"), third.clone())));
        assert_eq!(held(&events), [(call("{}"), third)]);
        let both = vec!["urn:first".to_owned(), "urn:guard".to_owned()];
        assert_eq!(expected.shown_for("urn:guard"), Hold { by: both, unshown: Vec::new(), times: 2 });
    }

    #[test]
    fn a_result_that_the_client_sends_is_asked_about_until_the_agent_has_stored_it() {
        let pending = agent(call_part::call(&call("{}"), true));
        let preliminary =
            ToolResult { id: "call-1".to_owned(), name: "sum".to_owned(), response: Json::string("later") };
        let mut events = vec![pending, agent(call_part::response(&preliminary, true))];
        let sent = |events: &[Arc<Event>]| Conversation::of(events).sent("t").len();
        assert_eq!(sent(&events), 0);
        events.push(user(result()));
        assert_eq!((sent(&events), Conversation::of(&events).sent("another task").len()), (1, 0));
        events.push(agent(result()));
        assert_eq!(sent(&events), 0);
    }

    #[test]
    fn a_call_that_is_denied_after_a_wait_stands_behind_the_message_of_the_client() {
        let events = [
            user(Part::text("add")),
            agent(call_part::held(&call("{}"), "urn:guard")),
            user(Part::text("no")),
            agent(result()),
        ];
        assert!(held(&events).is_empty());
        let turns = Conversation::of(&events).into_turns();
        let kinds = turns.iter().map(|turn| match turn {
            Turn::User(text) => text.as_str(),
            Turn::Agent { .. } => "calls",
            Turn::Tools(_) => "results",
        });
        assert_eq!(kinds.collect::<Vec<_>>(), ["add", "no", "calls", "results"]);
    }
}
