//! OID4VP In-Task Authorization, version 1 draft: a task waits until a verifier has approved it.
//!
//! This file has the hooks. The course of a task is in [`authorization`], stored decisions are in [`decisions`], and
//! the `state` parameter for a task is in [`state`].

pub mod authorization;
pub mod decisions;
pub mod parameters;
pub mod state;

use annex_sdk::{
    Answer, Beginning, Card, Declaration, Descriptor, Entry, Extension, Json, Method, MethodDeclaration, Rejection,
    Request, Ruling, StateChange, Transition,
};

use crate::parameters::{CARD_PARAMS, PARAMETER_SCHEMA, Parameters};

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct InTaskAuthorization;

impl Extension for InTaskAuthorization {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        parameters.check()?;
        Ok(Descriptor {
            name: "in-task-authorization".to_owned(),
            metadata_keys: vec![parameters.uri.clone()],
            ..Descriptor::new(parameters.uri.clone(), "Lets tasks wait for an authorization by OID4VP.")
        })
    }
}

impl Card for InTaskAuthorization {
    fn declare(_: &Parameters) -> Result<Declaration, String> {
        Ok(Declaration { description: None, params: Some(CARD_PARAMS.to_owned()) })
    }
}

impl Transition for InTaskAuthorization {
    fn begin(parameters: &Parameters, _request: Request, beginning: Beginning) -> Result<Entry, String> {
        authorization::begin(parameters, &beginning.task_id)
    }

    fn change(_: &Parameters, _change: StateChange) -> Result<Ruling, String> {
        Ok(Ruling::Pass)
    }
}

impl Method for InTaskAuthorization {
    fn methods(_: &Parameters) -> Result<Vec<MethodDeclaration>, String> {
        Ok(vec![MethodDeclaration {
            params_schema: Some(authorization::PARAMS.to_owned()),
            result_schema: Some(authorization::RESULT.to_owned()),
            ..MethodDeclaration::new(authorization::APPROVE, "Reports a verifier's decision on a waiting task.")
        }])
    }

    fn call(parameters: &Parameters, _request: Request, _name: &str, params: Json) -> Result<Answer, Rejection> {
        // Every caller of the agent can call the method. The token proves that the caller is the verifier.
        authorization::approve(parameters, &params).map(Answer::Value)
    }
}

annex_sdk::export!(InTaskAuthorization: card, transition, method);
