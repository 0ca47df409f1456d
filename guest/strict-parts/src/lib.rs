//! A profile of A2A: messages whose parts are data that matches a JSON Schema.
//!
//! This file has the hooks; their decisions are in [`logic`].

pub mod logic;
pub mod parameters;

use annex_sdk::{Card, Declaration, Descriptor, Extension, Json, Message, Rejection, Request, Rewrite, schema};

use crate::parameters::{PARAMETER_SCHEMA, Parameters};

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct StrictParts;

impl Extension for StrictParts {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "strict-parts".to_owned(),
            ..Descriptor::new(parameters.uri.clone(), "Takes messages whose data parts match a JSON Schema.")
        })
    }
}

impl Card for StrictParts {
    fn declare(parameters: &Parameters) -> Result<Declaration, String> {
        // At load, so that a schema that cannot be used stops the load and not each request.
        for (number, rule) in parameters.schemas.iter().enumerate() {
            schema::compile(&rule.schema)
                .map_err(|error| format!("the schema of `schemas[{number}]` cannot be used: {error}"))?;
        }
        Ok(Declaration { description: None, params: Some(parameters.card_params()?) })
    }
}

impl Message for StrictParts {
    fn check(parameters: &Parameters, _request: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        let violations = logic::check(parameters, &message);
        // The profile only refuses messages. Rewriting would need a grant.
        if violations.is_empty() { Ok(Vec::new()) } else { Err(Rejection::Violations(violations)) }
    }
}

annex_sdk::export!(StrictParts: card, message);
