//! The Traceability extension, version 1: adds the agent's steps to the metadata of its answer.
//!
//! This file has the hooks; their decisions are in [`logic`].

pub mod logic;

use std::sync::atomic::{AtomicBool, Ordering};

use annex_sdk::{Descriptor, Event, EventKinds, Extension, Patch, Response, steps};

use crate::logic::{PARAMETER_SCHEMA, Parameters};

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct Traceability;

/// True after an event of this turn has received the trace. An instance serves one turn.
static IS_TRACED: AtomicBool = AtomicBool::new(false);

impl Extension for Traceability {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "traceability".to_owned(),
            metadata_keys: vec![parameters.key.clone()],
            events: EventKinds::all(),
            ..Descriptor::new(parameters.uri.clone(), "Adds the agent's steps to the metadata of its answer.")
        })
    }
}

impl Response for Traceability {
    fn respond(parameters: &Parameters, event: Event) -> Result<Option<Patch>, String> {
        // The steps are read from the host only if the event carries the trace.
        if !logic::carries_trace(parameters, &event, IS_TRACED.load(Ordering::Relaxed)) {
            return Ok(None);
        }
        let trace = logic::response_trace(parameters, &event, &steps::recorded())?;
        // Relaxed: an instance has one thread.
        IS_TRACED.store(true, Ordering::Relaxed);
        Ok(Some(Patch::entry(parameters.key.clone(), trace)))
    }
}

annex_sdk::export!(Traceability: response);
