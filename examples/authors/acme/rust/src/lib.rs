//! Greets the callers of one organisation, and takes no part in the requests of others.

use annex_sdk::{
    Activation, Decision, Descriptor, Event, EventKinds, Extension, ExtensionError, NoParameters, Patch, Request,
    Response, caller,
};

const URI: &str = "https://annex.example/acme/v1";
const KEY: &str = "annex.example/acme/v1/greeting";

struct Acme;

impl Extension for Acme {
    type Parameters = NoParameters;

    fn descriptor(_: &NoParameters) -> Result<Descriptor, String> {
        let acme = Descriptor::new(URI, "Greets the callers of one organisation.");
        Ok(Descriptor { metadata_keys: vec![KEY.to_owned()], events: EventKinds::ARTIFACT, ..acme })
    }
}

impl Activation for Acme {
    fn activate(_: &NoParameters, _: Request) -> Result<Decision, ExtensionError> {
        let is_ours = caller::current().is_ok_and(|caller| caller.claim("org").as_deref() == Some("acme"));
        Ok(if is_ours { Decision::Active } else { Decision::Inactive })
    }
}

impl Response for Acme {
    fn respond(_: &NoParameters, _: Event) -> Result<Option<Patch>, String> {
        Ok(Some(Patch::entry(KEY, r#""Hello, Acme!""#)))
    }
}

annex_sdk::export!(Acme: activation, response);
