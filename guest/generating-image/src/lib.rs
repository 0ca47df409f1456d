//! The sub-state "generating-image" of the A2A documentation: a working task shows that its agent generates an image.
//!
//! This file has the hooks; their decisions are in [`logic`].

pub mod logic;

use annex_sdk::{Descriptor, Extension, Ruling, StateChange, Transition};

use crate::logic::{PARAMETER_SCHEMA, Parameters};

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct GeneratingImage;

impl Extension for GeneratingImage {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "generating-image".to_owned(),
            metadata_keys: vec![parameters.key.clone()],
            ..Descriptor::new(parameters.uri.clone(), "Marks the status of a working task that generates an image.")
        })
    }
}

impl Transition for GeneratingImage {
    fn change(parameters: &Parameters, change: StateChange) -> Result<Ruling, String> {
        // Extensions must not add states to A2A, so a sub-state is an entry of the metadata.
        let annotation = || Ruling::Annotate(vec![(parameters.key.clone(), "true".to_owned())]);
        Ok(if logic::generates_image(parameters, &change) { annotation() } else { Ruling::Pass })
    }
}

annex_sdk::export!(GeneratingImage: transition);
