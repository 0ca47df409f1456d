//! The Agent Payments Protocol (AP2), versions 0.1 and 0.2. Mandates arrive as data parts, and are checked before the
//! agent runs. The extension moves no money and signs nothing.
//!
//! This file has the hooks. [`mandates`] finds mandates; [`cart`], [`payment`] and [`presentation`] check each kind of
//! version 0.1, and `v0_2` those of version 0.2; [`jws`] verifies signatures; [`memory`] stores data between turns.

pub mod cart;
mod dates;
pub mod jws;
pub mod mandates;
pub mod memory;
pub mod parameters;
pub mod payment;
pub mod presentation;
pub mod schemas;
pub mod strict_json;
mod v0_2;
pub mod version;

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
use crate::v0_2::AcceptedMandates;
use crate::version::Version;

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct Ap2;

thread_local! {
    /// The carts of the turn's message. An instance lives for one turn.
    static CARTS: RefCell<Vec<Cart>> = const { RefCell::new(Vec::new()) };
    /// The checkouts and tokens of the turn's message.
    static ACCEPTED: RefCell<AcceptedMandates> = RefCell::new(AcceptedMandates::default());
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
            ..Descriptor::new(parameters.uri(), "Checks mandates of agent payments and their signatures.")
        })
    }
}

impl Card for Ap2 {
    fn declare(parameters: &Parameters) -> Result<Declaration, String> {
        if parameters.version == Version::V0_1 {
            for mandate in [schemas::INTENT, schemas::CART, schemas::PAYMENT] {
                schema::compile(mandate)?;
            }
        }
        if parameters.require_signatures && parameters.merchants.is_empty() && parameters.issuers.is_empty() {
            log::warn(
                "signatures are required, but no keys are configured: all carts, checkouts and payments are refused",
            );
        }
        if parameters.audience.is_empty() {
            log::warn("`audience` is not set: tokens for other agents are accepted too");
        }
        Ok(Declaration { description: None, params: Some(parameters.card_params()?) })
    }
}

impl Message for Ap2 {
    fn check(parameters: &Parameters, request: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        // Kept when the turn begins: another extension may still refuse this message.
        match parameters.version {
            Version::V0_1 => CARTS.set(mandates::check(parameters, &request, &message)?),
            Version::V0_2 => ACCEPTED.set(v0_2::check(parameters, &request, &message)?),
        }
        Ok(Vec::new())
    }
}

impl Transition for Ap2 {
    fn begin(_: &Parameters, _request: Request, _beginning: Beginning) -> Result<Entry, String> {
        let AcceptedMandates { checkouts, tokens } = ACCEPTED.take();
        let carts = CARTS.take().iter().try_for_each(memory::keep).map_err(|reason| ("cart", reason));
        let checkouts = checkouts.iter().try_for_each(v0_2::keep).map_err(|reason| ("checkout", reason));
        let tokens = memory::keep_for_task(&tokens).map_err(|reason| ("mandate", reason));
        Ok(match carts.and(checkouts).and(tokens) {
            Ok(()) => Entry::Proceed,
            // Clients can fill the store, so a full store is not a failure of the extension.
            Err((what, reason)) => Entry::Veto(format!("the {what} cannot be kept now: {reason}")),
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
        let artifact = artifact.unwrap_or("{}");
        match parameters.version {
            Version::V0_1 => keep_carts(parameters, artifact)?,
            Version::V0_2 => v0_2::keep_own(parameters, artifact)?,
        }
        // AP2 has no metadata: all its information is in the mandates.
        Ok(None)
    }
}

/// Checks and stores the carts in an artifact that this agent sends.
fn keep_carts(parameters: &Parameters, artifact: &str) -> Result<(), String> {
    let carts = mandates::own_carts(parameters, artifact).map_err(|violations| {
        let all = violations.iter().map(|one| format!("{} {}", one.pointer, one.message));
        format!("the agent sends a cart that cannot be paid: {}", all.collect::<Vec<_>>().join("; "))
    })?;
    carts.iter().try_for_each(memory::keep)
}

annex_sdk::export!(Ap2: card, message, transition, response);
