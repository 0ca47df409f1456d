//! Compliance badges on the Agent Card: the standards that the agent meets, and the issuer of each badge.
//!
//! A data-only extension: it has an entry on the card, and takes no part in requests. [`badges`] makes the entry.

pub mod badges;

use annex_sdk::{Card, Declaration, Descriptor, Extension};

use crate::badges::{PARAMETER_SCHEMA, Parameters};

/// The extension. The type has no data: each hook gets the parameters as an argument.
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
