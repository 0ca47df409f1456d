//! The source of `contract_0_1_0.wasm`: an extension with each hook that the contract had before the hooks `live-card`,
//! `reply`, `steering`, `output` and `reads`.

use annex_sdk::{
    Activation, Addition, Answer, Beginning, Card, Client, Decision, Declaration, Descriptor, Entry, Event, EventKinds,
    Extension, ExtensionError, Incoming, Json, Message, MetadataEntry, Method, MethodDeclaration, NoParameters,
    Outgoing, Patch, Rejection, Request, Response, Rewrite, Ruling, State, StateChange, Transition, log,
};

/// The metadata key that the extension reads and writes.
const KEY: &str = "earlier";

struct Earlier;

impl Extension for Earlier {
    type Parameters = NoParameters;

    fn descriptor(_: &NoParameters) -> Result<Descriptor, String> {
        let earlier = Descriptor::new("https://annex.example/earlier/v1", "Has the hooks of an earlier contract.");
        let name = "earlier".to_owned();
        Ok(Descriptor { name, metadata_keys: vec![KEY.into()], events: EventKinds::all(), ..earlier })
    }
}

impl Card for Earlier {
    fn declare(_: &NoParameters) -> Result<Declaration, String> {
        Ok(Declaration { params: Some(r#"{"earlier":true}"#.into()), ..Declaration::default() })
    }
}

impl Activation for Earlier {
    fn activate(_: &NoParameters, _: Request) -> Result<Decision, ExtensionError> {
        log::info("activate");
        Ok(Decision::Active)
    }
}

impl Message for Earlier {
    fn check(_: &NoParameters, _: Request, _: Json) -> Result<Vec<Rewrite>, Rejection> {
        log::info("check");
        Ok(Vec::new())
    }
}

impl State for Earlier {
    fn validate(_: &NoParameters, _: Request, metadata: Vec<MetadataEntry>) -> Result<Option<Json>, Rejection> {
        Ok(metadata.into_iter().next().map(|entry| format!(r#"{{"earlier":{}}}"#, entry.value)))
    }
}

impl Transition for Earlier {
    fn begin(_: &NoParameters, _: Request, _: Beginning) -> Result<Entry, String> {
        log::info("begin");
        Ok(Entry::Proceed)
    }

    fn change(_: &NoParameters, _: StateChange) -> Result<Ruling, String> {
        Ok(Ruling::Annotate(vec![(KEY.into(), r#""changed""#.into())]))
    }
}

impl Response for Earlier {
    fn respond(_: &NoParameters, _: Event) -> Result<Option<Patch>, String> {
        Ok(Some(Patch::entry(KEY, r#""responded""#)))
    }
}

impl Method for Earlier {
    fn methods(_: &NoParameters) -> Result<Vec<MethodDeclaration>, String> {
        Ok(vec![MethodDeclaration::new("earlier/echo", "Returns its parameters.")])
    }

    fn call(_: &NoParameters, _: Request, _: &str, params: Json) -> Result<Answer, Rejection> {
        Ok(Answer::Value(params))
    }
}

impl Client for Earlier {
    fn before(_: &NoParameters, _: Outgoing) -> Result<Addition, Rejection> {
        Ok(Addition::entry(KEY, r#""sent""#))
    }

    fn after(_: &NoParameters, _: Incoming) -> Result<Option<Json>, String> {
        Ok(Some(r#""read""#.into()))
    }
}

annex_sdk::export!(Earlier: card, activation, message, state, transition, response, method, client);
