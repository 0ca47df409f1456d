//! A2UI over A2A: an agent sends user interfaces as data parts. Both directions are checked, in the versions 0.8, 0.9, 0.9.1
//! and 1.0 of A2UI.
//!
//! This file has the hooks. [`version`] has the differences between versions; [`incoming`] checks messages of a client;
//! [`outgoing`] and [`revision`] check answers of the agent; [`catalogue`] and [`surfaces`] find the catalogue of a surface.

pub mod catalogue;
pub mod client;
pub mod incoming;
pub mod outgoing;
pub mod parameters;
pub mod parts;
pub mod revision;
mod schema;
pub mod surfaces;
pub mod version;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};

use annex_sdk::{
    Addition, Card, Client, Content, Declaration, Descriptor, Event, EventKinds, Extension, Incoming, Json, Message,
    Outgoing, Output, Patch, Rejection, Request, Response, Rewrite, Verdict,
};

use crate::catalogue::{Catalogues, Offer};
use crate::incoming::Reading;
use crate::outgoing::Judge;
use crate::parameters::{PARAMETER_SCHEMA, Parameters};
use crate::schema::Steps;
use crate::surfaces::Surfaces;

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct A2ui;

thread_local! {
    /// The reading of the turn's message. An instance lives for one turn. A resumed turn has no message.
    static READING: RefCell<Reading> = RefCell::new(Reading::Offer(Offer::default()));
    /// True if the event that goes out has A2UI.
    static HAS_UI: Cell<bool> = const { Cell::new(false) };
}

impl Extension for A2ui {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        let version = parameters.version;
        let keys = [Some(version.capabilities_key()), version.data_model_key()];
        Ok(Descriptor {
            name: "a2ui".to_owned(),
            metadata_keys: keys.into_iter().flatten().map(str::to_owned).collect(),
            events: EventKinds::MESSAGE | EventKinds::STATUS | EventKinds::ARTIFACT,
            ..Descriptor::new(parameters.uri.clone(), "Checks user interfaces of A2UI and the actions of their users.")
        })
    }
}

impl Card for A2ui {
    fn declare(parameters: &Parameters) -> Result<Declaration, String> {
        parameters.version.schemas()?;
        Ok(Declaration { description: None, params: Some(parameters.card_params()?) })
    }
}

impl Message for A2ui {
    fn check(parameters: &Parameters, request: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        let is_requested = request.requested.contains(&parameters.uri);
        let reading = incoming::check(parameters, &message, is_requested).map_err(Rejection::Violations)?;
        READING.replace(reading);
        Ok(Vec::new())
    }
}

impl Output for A2ui {
    fn revise(parameters: &Parameters, content: Content) -> Result<Verdict, String> {
        HAS_UI.set(false);
        READING.with_borrow(|reading| {
            let Reading::Offer(offer) = reading else { return Ok(Verdict::Leave) };
            let version = parameters.version;
            let array = parts::parts_of(Some(&content.parts));
            let parts = parts::ui_parts(&array, version);
            if parts.is_empty() {
                return Ok(Verdict::Leave);
            }
            let schemas = version::schemas(version)?;
            let catalogues = Catalogues::new(parameters, offer, version::catalogue(schemas));
            let mut surfaces = Surfaces::default();
            let steps = Steps::new();
            let mut judge = Judge { version, schemas, catalogues: &catalogues, surfaces: &mut surfaces, steps: &steps };
            let (verdict, has_ui) = revision::revise(&mut judge, parameters.invalid, &content.place, &parts)?;
            HAS_UI.set(has_ui);
            Ok(verdict)
        })
    }
}

impl Response for A2ui {
    fn respond(_parameters: &Parameters, _event: Event) -> Result<Option<Patch>, String> {
        // The patch is empty: it adds the URI to the event.
        Ok(HAS_UI.take().then(|| Patch { metadata: Vec::new() }))
    }
}

impl Client for A2ui {
    fn before(parameters: &Parameters, call: Outgoing) -> Result<Addition, Rejection> {
        client::before(parameters, &call)
    }

    fn after(parameters: &Parameters, event: Incoming) -> Result<Option<Json>, String> {
        client::after(parameters, &event)
    }
}

annex_sdk::export!(A2ui: card, message, output, response, client);
