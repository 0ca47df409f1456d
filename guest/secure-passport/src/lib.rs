//! The Secure Passport extension, version 1: a client sends statements about the client and its user. If the agent
//! accepts only signed statements, the client signs the statements.
//!
//! This file has the hooks. The format of a passport is in [`passport`], its signature in [`signature`], the server's
//! side in [`server`], and the client's side in [`client`].

pub mod client;
pub mod parameters;
pub mod passport;
pub mod server;
pub mod signature;

use annex_sdk::{
    Addition, Card, Client, Declaration, Descriptor, Extension, Json, MetadataEntry, Outgoing, Rejection, Request,
    State,
};

use crate::parameters::{PARAMETER_SCHEMA, Parameters};

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct SecurePassport;

impl Extension for SecurePassport {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        // At load, so that a key that cannot be used stops the load and not each request.
        parameters.check_keys()?;
        Ok(Descriptor {
            name: "secure-passport".to_owned(),
            metadata_keys: vec![parameters.uri.clone()],
            ..Descriptor::new(parameters.uri.clone(), "Takes a client's statements about itself, signed or unsigned.")
        })
    }
}

impl Card for SecurePassport {
    fn declare(parameters: &Parameters) -> Result<Declaration, String> {
        Ok(Declaration { description: None, params: Some(parameters.card_params()?) })
    }
}

impl State for SecurePassport {
    fn validate(
        parameters: &Parameters,
        _request: Request,
        metadata: Vec<MetadataEntry>,
    ) -> Result<Option<Json>, Rejection> {
        server::state_delta(parameters, &metadata)
    }
}

impl Client for SecurePassport {
    fn before(parameters: &Parameters, call: Outgoing) -> Result<Addition, Rejection> {
        client::addition(parameters, &call)
    }
}

annex_sdk::export!(SecurePassport: card, state, client);
