//! Shares a conversation between agents: the next message to an agent contains the events that the agent does not have.
//! One component implements both sides.
//!
//! This file has the hooks. The agent's side is in [`server`], the caller's side in [`client`].

pub mod boundaries;
pub mod client;
pub mod credentials;
pub mod event;
pub mod node;
pub mod parameters;
pub mod quoting;
pub mod server;
#[cfg(test)]
mod testing;
pub mod wire;

use std::cell::RefCell;

use annex_sdk::keyvalue::Keys;
use annex_sdk::{
    Addition, Beginning, Card, Client, Declaration, Descriptor, Entry, Event, EventKinds, Extension, Incoming, Json,
    Message, Outgoing, Patch, Rejection, Request, Response, Rewrite, Ruling, StateChange, Transition, log,
};

use crate::parameters::{PARAMETER_SCHEMA, Parameters};
use crate::server::PendingEvents;

thread_local! {
    /// The events that the turn's message shares. An instance serves one turn.
    static TAKEN: RefCell<Option<PendingEvents>> = const { RefCell::new(None) };
    /// The call with its shared events. An instance serves one call.
    static CALL: RefCell<Option<client::Call>> = const { RefCell::new(None) };
}

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct SessionSharing;

impl Extension for SessionSharing {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "session-sharing".to_owned(),
            metadata_keys: vec![parameters.shared_key(), parameters.received_key()],
            grants: vec!["rewrite-message".to_owned()],
            // A turn ends with one of these. Artifacts acknowledge nothing.
            events: EventKinds::MESSAGE | EventKinds::STATUS,
            ..Descriptor::new(parameters.uri.clone(), "Shares a conversation's new events with the agent.")
        })
    }
}

impl Card for SessionSharing {
    fn declare(parameters: &Parameters) -> Result<Declaration, String> {
        Ok(Declaration { description: None, params: Some(parameters.card_params()?) })
    }
}

impl Message for SessionSharing {
    fn check(parameters: &Parameters, _request: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        let Some((taken, rewrites)) = server::check(parameters, &message, &Conversation)? else {
            return Ok(Vec::new());
        };
        // Kept for `begin`: another extension may still refuse this message.
        TAKEN.set(Some(taken));
        Ok(rewrites)
    }
}

impl Transition for SessionSharing {
    fn begin(_: &Parameters, _request: Request, _beginning: Beginning) -> Result<Entry, String> {
        // A failure to note the events does not fail the turn: without an acknowledgement the client shares the events again.
        TAKEN.with_borrow_mut(|taken| taken.as_mut().map(|taken| taken.note(&Conversation)));
        Ok(Entry::Proceed)
    }

    fn change(_: &Parameters, _change: StateChange) -> Result<Ruling, String> {
        Ok(Ruling::Pass)
    }
}

impl Response for SessionSharing {
    fn respond(parameters: &Parameters, event: Event) -> Result<Option<Patch>, String> {
        TAKEN.with_borrow_mut(|taken| {
            taken.as_mut().map_or(Ok(None), |taken| server::acknowledge(parameters, taken, &event, &Conversation))
        })
    }
}

impl Client for SessionSharing {
    fn before(parameters: &Parameters, call: Outgoing) -> Result<Addition, Rejection> {
        let (addition, call) = client::before(parameters, &call, &CallerKeys)?;
        CALL.set(call);
        Ok(addition)
    }

    fn after(parameters: &Parameters, event: Incoming) -> Result<Option<Json>, String> {
        CALL.with_borrow_mut(|call| {
            call.as_mut().map_or(Ok(None), |call| client::after(parameters, call, &event, &CallerKeys))
        })
    }
}

/// The keys of the turn's conversation.
struct Conversation;

impl server::ContextKeys for Conversation {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        told(Keys::of_context().and_then(|keys| keys.get(key)))
    }

    fn set(&self, key: &str, value: &[u8]) -> Result<(), String> {
        told(Keys::of_context().and_then(|keys| keys.set(key, value)))
    }

    fn count(&self) -> Result<usize, String> {
        told(Keys::of_context().and_then(|keys| keys.list()).map(|keys| keys.len()))
    }
}

/// The caller's keys.
struct CallerKeys;

impl boundaries::ClientKeys for CallerKeys {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        told(Keys::open().and_then(|keys| keys.get(key)))
    }

    fn set(&self, key: &str, value: &[u8]) -> Result<(), String> {
        told(Keys::open().and_then(|keys| keys.set(key, value)))
    }
}

/// Logs the error of an operation on keys. Returns the result unchanged.
fn told<T>(result: Result<T, String>) -> Result<T, String> {
    result.inspect_err(|error| log::warn(&format!("the keys cannot be used: {error}")))
}

annex_sdk::export!(SessionSharing: card, message, transition, response, client);
