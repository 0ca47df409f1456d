//! The events of a session as a model is told of them, and the calls of a task that wait for their results.

use std::collections::HashSet;
use std::sync::Arc;

use annex_protocol::{Json, Part, PartContent};
use annex_session::Event;

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

/// The calls of tools that the agent made in one go.
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
    /// The response says only that there is none yet.
    is_pending: bool,
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

    /// The calls of this invocation whose results are to come from the client.
    pub(crate) fn waiting(&self, invocation: &str) -> Vec<ToolCall> {
        let exchanges = self.items.iter().filter_map(|item| match item {
            Item::Calls(exchange) if *exchange.invocation == *invocation => Some(&exchange.calls),
            Item::Calls(_) | Item::User(_) | Item::Agent(_) => None,
        });
        exchanges.flatten().filter(|outcome| outcome.is_pending).map(|outcome| outcome.call.clone()).collect()
    }

    /// The ids of all calls.
    pub(crate) fn call_ids(&self) -> HashSet<&str> {
        let exchanges = self.items.iter().filter_map(|item| match item {
            Item::Calls(exchange) => Some(&exchange.calls),
            Item::User(_) | Item::Agent(_) => None,
        });
        exchanges.flatten().map(|outcome| outcome.call.id.as_str()).collect()
    }

    /// Each call with a result right behind it, as models want it.
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

    /// Results of calls that wait count; anything else that looks like one is something the user says.
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
                Some(CallPart::Call(call)) => calls.push(Outcome { call, response: None, is_pending: false }),
                Some(CallPart::Response { result, is_pending }) => {
                    if let Some((_, outcome)) = self.find(&event.invocation_id, &result.id) {
                        (outcome.response, outcome.is_pending) = (Some(result.response), is_pending);
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

    /// Takes a result that the client sends for a call that waits. What was said since the call now stands before it.
    fn answered(&mut self, invocation: &str, part: &Part) -> bool {
        let Some(CallPart::Response { result, .. }) = call_part::read(part) else { return false };
        let Some((index, outcome)) = self.find(invocation, &result.id) else { return false };
        // The result of a call that the agent made itself is settled: a client may not put another in its place.
        if !outcome.is_pending {
            return false;
        }
        (outcome.response, outcome.is_pending) = (Some(result.response), false);
        // Models want a call and its result together, and the latest words last.
        let exchange = self.items.remove(index);
        self.items.push(exchange);
        true
    }

    /// The latest call of this id, and where it stands.
    fn find(&mut self, invocation: &str, id: &str) -> Option<(usize, &mut Outcome)> {
        self.items.iter_mut().enumerate().rev().find_map(|(index, item)| match item {
            // Only calls of this task: one task of a conversation cannot answer what another one waits for.
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
        // Models want a result for each call, also for one that was broken off.
        let result_of = |outcome: &Outcome| ToolResult {
            id: outcome.call.id.clone(),
            name: outcome.call.name.clone(),
            response: outcome
                .response
                .clone()
                .unwrap_or_else(|| call_part::error("the call was broken off, and its outcome is unknown")),
        };
        let results = self.calls.iter().map(result_of).collect();
        let calls = self.calls.into_iter().map(|outcome| outcome.call).collect();
        [Turn::Agent { text: self.text, calls }, Turn::Tools(results)]
    }
}

/// Text parts as they are and data parts as JSON, a line break between them. Files are not for a text model.
pub fn readable<'a>(parts: impl IntoIterator<Item = &'a Part>) -> String {
    let mut texts = parts.into_iter().filter_map(text_of);
    let mut all = texts.next().map_or_else(String::new, str::to_owned);
    for text in texts {
        all.push('\n');
        all.push_str(text);
    }
    all
}

/// True if nothing in the parts is readable.
pub(crate) fn says_nothing(parts: &[Part]) -> bool {
    let mut texts = parts.iter().filter_map(text_of);
    texts.next().is_none_or(str::is_empty) && texts.next().is_none()
}

fn text_of(part: &Part) -> Option<&str> {
    match &part.content {
        PartContent::Text(text) => Some(text),
        PartContent::Data(json) => Some(json.get()),
        // A URL is not fetched here: it is the client's choice where it leads.
        PartContent::Raw(_) | PartContent::Url(_) => None,
    }
}
