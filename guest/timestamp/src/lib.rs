//! The Timestamp extension, version 1: the time at which a message or artifact was made, in its metadata.
//!
//! This file holds the hooks; what they decide is in [`logic`].

pub mod logic;

use annex_sdk::{
    Addition, Client, Descriptor, Event, EventKinds, Extension, Incoming, Json, Outgoing, Patch, Rejection, Response,
    clock, json,
};

use crate::logic::{PARAMETER_SCHEMA, Parameters};

/// The extension; its parameters are all that it knows.
#[derive(Debug)]
pub struct Timestamp;

impl Extension for Timestamp {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "timestamp".to_owned(),
            metadata_keys: vec![parameters.key.clone()],
            events: EventKinds::all(),
            ..Descriptor::new(parameters.uri.clone(), "Adds the time to the metadata of messages and artifacts.")
        })
    }
}

impl Response for Timestamp {
    fn respond(parameters: &Parameters, event: Event) -> Result<Option<Patch>, String> {
        let stamp = || Patch::entry(parameters.key.clone(), json::string(&clock::now()));
        Ok(logic::wants_stamp(parameters, &event).then(stamp))
    }
}

/// Stamps what the client sends, when the agent knows stamps, and tells the program when its answer was made.
impl Client for Timestamp {
    fn before(parameters: &Parameters, call: Outgoing) -> Result<Addition, Rejection> {
        // An agent that does not declare the extension would not read the stamp.
        if call.message.is_none() || call.declaration.is_none() {
            return Ok(Addition::none());
        }
        Ok(Addition::entry(parameters.key.clone(), json::string(&clock::now())))
    }

    fn after(_: &Parameters, event: Incoming) -> Result<Option<Json>, String> {
        Ok(logic::newest_stamp(event))
    }
}

annex_sdk::export!(Timestamp: response, client);
