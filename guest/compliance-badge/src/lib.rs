//! Compliance badges on the Agent Card: which standards the agent meets, and who vouches for it.
//!
//! A data-only extension: it declares, and takes no part in requests. The declaration is made in [`badges`].

pub mod badges;

use annex_sdk::{Card, Declaration, Descriptor, Extension};

use crate::badges::{PARAMETER_SCHEMA, Parameters};

/// The extension; its parameters are all that it knows.
#[derive(Debug)]
pub struct ComplianceBadge;

impl Extension for ComplianceBadge {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "compliance-badge".to_owned(),
            ..Descriptor::new(parameters.uri.clone(), "Shows which standards the agent meets, and who vouches for it.")
        })
    }
}

impl Card for ComplianceBadge {
    fn declare(parameters: &Parameters) -> Result<Declaration, String> {
        Ok(Declaration { description: None, params: Some(badges::card_params(parameters)?) })
    }
}

// No hook of a request is exported, so no request ever enters the component.
annex_sdk::export!(ComplianceBadge: card);
