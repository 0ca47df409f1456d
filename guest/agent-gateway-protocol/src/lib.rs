//! The Agent Gateway Protocol (AGP), version 1: finds the squad that can fulfil an intent.
//!
//! This file has the hooks. Intents and the choice of a route are in [`routing`], announced routes in
//! [`announcements`], the methods' schemas in [`methods`].

pub mod announcements;
pub mod methods;
pub mod parameters;
pub mod routing;

use std::sync::OnceLock;

use annex_sdk::keyvalue::Keys;
use annex_sdk::{
    Answer, Card, Declaration, Descriptor, Event, EventKind, EventKinds, Extension, Json, Message, Method,
    MethodDeclaration, Patch, Rejection, Request, Response, Rewrite, clock, secrets,
};

use crate::announcements::{AnnouncedRoutes, Store};
use crate::parameters::{CARD_PARAMS, PARAMETER_SCHEMA, Parameters};
use crate::routing::{Intent, Route};

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct AgentGatewayProtocol;

/// The chosen routes of the message's intents as JSON. An instance lives for one turn.
static CHOSEN: OnceLock<Json> = OnceLock::new();

impl Extension for AgentGatewayProtocol {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        // Without the secret every announcement would be refused, so the load reports it to the operator.
        if let Some(name) = &parameters.announce_secret
            && secrets::get(name)?.is_none_or(|secret| secret.is_empty())
        {
            return Err(format!(
                "there is no secret {name:?}: give it with secrets = {{ {name} = {{ env = \"…\" }} }}"
            ));
        }
        Ok(Descriptor {
            name: "agent-gateway-protocol".to_owned(),
            metadata_keys: vec![parameters.key.clone()],
            events: EventKinds::all(),
            ..Descriptor::new(parameters.uri.clone(), "Routes intents to the squad that announced the capability.")
        })
    }
}

impl Card for AgentGatewayProtocol {
    fn declare(_: &Parameters) -> Result<Declaration, String> {
        Ok(Declaration { description: None, params: Some(CARD_PARAMS.to_owned()) })
    }
}

impl Message for AgentGatewayProtocol {
    fn check(parameters: &Parameters, _request: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        let intents = routing::intents(&message)?;
        // Most messages have no intent, and do not need to read the store.
        if !intents.is_empty() {
            let store = Imports::open()?;
            let known = AnnouncedRoutes::read(parameters, &store)?;
            let routes: Result<Vec<Route>, Rejection> =
                intents.iter().map(|intent| route(parameters, intent, &known, &store)).collect();
            let _ = CHOSEN.set(routing::routes_text(&routes?)?);
        }
        Ok(Vec::new())
    }
}

impl Response for AgentGatewayProtocol {
    fn respond(parameters: &Parameters, event: Event) -> Result<Option<Patch>, String> {
        // Once for each message and artifact, and not on every chunk.
        let is_for_it = match event.kind {
            EventKind::Message => true,
            EventKind::Artifact => event.last_chunk,
            EventKind::Status => event.has_message,
        };
        // An entry that is there already stays.
        let routes = CHOSEN.get().filter(|_| is_for_it && !event.present.contains(&parameters.key));
        Ok(routes.map(|routes| Patch::entry(parameters.key.clone(), routes.clone())))
    }
}

impl Method for AgentGatewayProtocol {
    fn methods(parameters: &Parameters) -> Result<Vec<MethodDeclaration>, String> {
        Ok(methods::declarations(parameters))
    }

    fn call(parameters: &Parameters, _request: Request, name: &str, params: Json) -> Result<Answer, Rejection> {
        let store = Imports::open()?;
        let result = if name == methods::ANNOUNCE {
            announcements::announce(parameters, &params, &store)
        } else {
            let intent = routing::intent(&params, "")?;
            let known = AnnouncedRoutes::read(parameters, &store)?;
            route(parameters, &intent, &known, &store).and_then(|route| routing::route_text(&route))
        };
        result.map(Answer::Value)
    }
}

fn route(
    parameters: &Parameters,
    intent: &Intent,
    known: &AnnouncedRoutes,
    store: &Imports,
) -> Result<Route, Rejection> {
    routing::choose(intent, &known.table(parameters, &intent.target_capability, store)?)
}

/// The functions of the host, with the extension's keys.
struct Imports(Keys);

impl Imports {
    fn open() -> Result<Self, Rejection> {
        Keys::open().map(Self).map_err(|error| routing::out_of_order(&error))
    }
}

impl Store for Imports {
    fn keys(&self) -> Result<Vec<String>, String> {
        self.0.list()
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        self.0.get(key)
    }

    fn set(&self, key: &str, value: &[u8]) -> Result<(), String> {
        self.0.set(key, value)
    }

    fn delete(&self, key: &str) -> Result<(), String> {
        self.0.delete(key)
    }

    fn now(&self) -> u64 {
        clock::now_millis()
    }

    fn secret(&self, name: &str) -> Result<Option<String>, String> {
        secrets::get(name)
    }
}

annex_sdk::export!(AgentGatewayProtocol: card, message, response, method);
