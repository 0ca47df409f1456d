//! The Agent Payments Protocol (AP2), version 0.1. Mandates arrive as data parts, and are checked before the agent
//! runs. The extension moves no money and signs nothing.
//!
//! This file has the hooks. [`mandates`] finds mandates; [`cart`], [`payment`] and [`presentation`] check each kind;
//! [`jws`] verifies signatures; [`memory`] stores data between turns.

pub mod cart;
pub mod jws;
pub mod mandates;
pub mod memory;
pub mod parameters;
pub mod payment;
pub mod presentation;
pub mod schemas;

#[cfg(test)]
mod tests;

use std::cell::RefCell;

use annex_sdk::members::Members;
use annex_sdk::{
    Beginning, Card, Declaration, Descriptor, Entry, Event, EventKinds, Extension, Json, Message, Patch, Rejection,
    Request, Response, Rewrite, Ruling, StateChange, Transition, log, schema,
};

use crate::memory::Cart;
use crate::parameters::{PARAMETER_SCHEMA, Parameters, Role};

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct Ap2;

thread_local! {
    /// The carts of the turn's message. An instance lives for one turn.
    static TAKEN: RefCell<Vec<Cart>> = const { RefCell::new(Vec::new()) };
}

impl Extension for Ap2 {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        parameters.check()?;
        // Only a merchant sends carts.
        let makes_carts = parameters.has(Role::Merchant);
        Ok(Descriptor {
            name: "ap2".to_owned(),
            events: if makes_carts { EventKinds::ARTIFACT } else { EventKinds::empty() },
            payload: makes_carts,
            ..Descriptor::new(parameters.uri.clone(), "Checks mandates of agent payments and their signatures.")
        })
    }
}

impl Card for Ap2 {
    fn declare(parameters: &Parameters) -> Result<Declaration, String> {
        for mandate in [schemas::INTENT, schemas::CART, schemas::PAYMENT] {
            schema::compile(mandate)?;
        }
        if parameters.require_signatures && parameters.merchants.is_empty() && parameters.issuers.is_empty() {
            log::warn("signatures are required, but no keys are configured: all carts and payments are refused");
        }
        if parameters.audience.is_empty() {
            log::warn("`audience` is not set: tokens for other agents are accepted too");
        }
        Ok(Declaration { description: None, params: Some(parameters.card_params()?) })
    }
}

impl Message for Ap2 {
    fn check(parameters: &Parameters, request: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        let carts = mandates::check(parameters, &request, &message)?;
        // Kept when the turn begins: another extension may still refuse this message.
        TAKEN.set(carts);
        Ok(Vec::new())
    }
}

impl Transition for Ap2 {
    fn begin(_: &Parameters, _request: Request, _beginning: Beginning) -> Result<Entry, String> {
        let kept = TAKEN.take().iter().try_for_each(memory::keep);
        Ok(match kept {
            Ok(()) => Entry::Proceed,
            // Clients can fill the store, so a full store is not a failure of the extension.
            Err(reason) => Entry::Veto(format!("the cart cannot be kept now: {reason}")),
        })
    }

    fn change(_: &Parameters, _change: StateChange) -> Result<Ruling, String> {
        Ok(Ruling::Pass)
    }
}

impl Response for Ap2 {
    fn respond(parameters: &Parameters, event: Event) -> Result<Option<Patch>, String> {
        let payload = event.payload.unwrap_or_default();
        let artifact =
            Members::of(&payload).and_then(|event| Members::of(event.get("artifactUpdate")?)?.get("artifact"));
        let carts = mandates::own_carts(parameters, artifact.unwrap_or("{}")).map_err(|violations| {
            let all = violations.iter().map(|one| format!("{} {}", one.pointer, one.message));
            format!("the agent sends a cart that cannot be paid: {}", all.collect::<Vec<_>>().join("; "))
        })?;
        carts.iter().try_for_each(memory::keep)?;
        // AP2 has no metadata: all its information is in the mandates.
        Ok(None)
    }
}

annex_sdk::export!(Ap2: card, message, transition, response);
