//! Session state that a client sends with its message, and receives with the answer.
//!
//! This file has the hooks; their decisions are in [`logic`] and [`client`].

pub mod client;
pub mod logic;
pub mod parameters;

use std::sync::atomic::{AtomicBool, Ordering};

use annex_sdk::{
    Addition, Card, Client, Declaration, Descriptor, Event, EventKinds, Extension, Incoming, Json, MetadataEntry,
    Outgoing, Patch, Rejection, Request, Response, Scopes, State, Violation, schema, session,
};

use crate::parameters::{PARAMETER_SCHEMA, Parameters};

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct StateInjection;

impl Extension for StateInjection {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "state-injection".to_owned(),
            metadata_keys: parameters.metadata_keys(),
            events: EventKinds::ARTIFACT | EventKinds::MESSAGE | EventKinds::STATUS,
            ..Descriptor::new(parameters.uri.clone(), parameters.description.clone())
        })
    }
}

impl Card for StateInjection {
    fn declare(parameters: &Parameters) -> Result<Declaration, String> {
        // At load, so that a schema that cannot be used stops the load and not each request.
        if let Some(state_schema) = &parameters.state_schema {
            schema::compile(&state_schema.text).map_err(|error| format!("`state_schema` cannot be used: {error}"))?;
        }
        Ok(logic::agent_extension(parameters))
    }
}

impl State for StateInjection {
    fn validate(
        parameters: &Parameters,
        _request: Request,
        metadata: Vec<MetadataEntry>,
    ) -> Result<Option<Json>, Rejection> {
        logic::get_state(parameters, &metadata, &Imports)
    }
}

/// True after this turn's answer has received the state. An instance serves one turn.
static RETURNED: AtomicBool = AtomicBool::new(false);

impl Response for StateInjection {
    fn respond(parameters: &Parameters, event: Event) -> Result<Option<Patch>, String> {
        // The state is read from the host only if the event carries it.
        if !logic::carries_state(&event, RETURNED.load(Ordering::Relaxed)) {
            return Ok(None);
        }
        RETURNED.store(true, Ordering::Relaxed);
        Ok(Some(logic::add_state(parameters, session::snapshot())))
    }
}

impl Client for StateInjection {
    fn before(parameters: &Parameters, call: Outgoing) -> Result<Addition, Rejection> {
        client::add_to_call(parameters, &call)
    }

    fn after(parameters: &Parameters, event: Incoming) -> Result<Option<Json>, String> {
        Ok(client::returned_state(parameters, event))
    }
}

/// The host's functions for this instance.
struct Imports;

impl logic::Host for Imports {
    fn snapshot(&self) -> Json {
        session::snapshot()
    }

    fn writable(&self) -> Scopes {
        session::writable()
    }

    fn violations(&self, state_schema: &str, instance: &str) -> Result<Vec<Violation>, String> {
        schema::validate(state_schema, instance)
    }
}

// Without `activation`: the host calls no hook of an extension that the client has not asked for.
annex_sdk::export!(StateInjection: card, state, response, client);
