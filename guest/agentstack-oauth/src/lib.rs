//! The extension `auth/oauth` of agentstack: a task waits until a person has granted access at an authorization server.
//!
//! This file has the hooks. [`flow`] has the authorization, and [`url`] the queries of its URLs.

pub mod flow;
pub mod parameters;
pub mod url;

#[cfg(test)]
mod tests;

use std::cell::RefCell;

use annex_sdk::{
    Beginning, Card, Declaration, Descriptor, Entry, Extension, Interruption, Json, MetadataEntry, Rejection, Request,
    Ruling, State, StateChange, Transition, Violation, Waiting, pointer,
};
use serde_json::{Value, json};

use crate::parameters::{PARAMETER_SCHEMA, Parameters};

/// The URI and the metadata key, as agentstack's SDK has them.
pub const URI: &str = "https://a2a-extensions.agentstack.beeai.dev/auth/oauth/v1";

/// The key of session state with the token. It lasts as long as the turn, and is not stored.
const TOKEN: &str = "temp:oauth_token";

/// The only demand: the agent has one authorization server.
const DEMAND: &str = "default";

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct Oauth;

/// The client's part of the turn. An instance serves one turn.
#[derive(Default)]
enum Sent {
    #[default]
    Nothing,
    /// The URI at which the client takes the code.
    RedirectUri(String),
    /// The code, which has been exchanged for a token.
    Code,
}

thread_local! {
    static SENT: RefCell<Sent> = RefCell::default();
}

impl Extension for Oauth {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        parameters.check()?;
        Ok(Descriptor {
            name: "agentstack-oauth".to_owned(),
            metadata_keys: vec![URI.to_owned()],
            grants: vec!["forget-metadata".to_owned(), "session-state.scopes.temp".to_owned()],
            ..Descriptor::new(URI, "Lets a task wait until a person has granted access by OAuth.")
        })
    }
}

impl Card for Oauth {
    fn declare(_: &Parameters) -> Result<Declaration, String> {
        let params = json!({"oauth_demands": {DEMAND: {"redirect_uri": true}}});
        Ok(Declaration { description: None, params: Some(params.to_string()) })
    }
}

impl State for Oauth {
    fn validate(
        parameters: &Parameters,
        request: Request,
        metadata: Vec<MetadataEntry>,
    ) -> Result<Option<Json>, Rejection> {
        SENT.set(Sent::Nothing);
        let Some(entry) = metadata.first() else { return Ok(None) };
        if let Some(second) = metadata.get(1) {
            return Err(Violation::new(second.pointer(), "is there twice: in the message and in the request").into());
        }
        let at = entry.pointer();
        // An error of the parser could repeat a part of the code.
        let Ok(Value::Object(members)) = serde_json::from_str::<Value>(&entry.value) else {
            return Err(Violation::new(at, "is not an object").into());
        };
        if let Some(answer) = members.get("redirect_uri") {
            let at = pointer::child(&at, "redirect_uri");
            let Some(answer) = answer.as_str() else { return Err(Violation::new(at, "is not a text").into()) };
            let Some(task_id) = &request.task_id else { return Err(Violation::new(at, "answers no task").into()) };
            let token = flow::finish(parameters, task_id, answer).map_err(|error| Violation::new(at, error))?;
            SENT.set(Sent::Code);
            return Ok(Some(json!({TOKEN: token}).to_string()));
        }
        if let Some(uri) = members.get("oauth_fulfillments").and_then(|sent| sent.get(DEMAND)?.get("redirect_uri")) {
            let at = ["oauth_fulfillments", DEMAND, "redirect_uri"].iter().fold(at, |at, key| pointer::child(&at, key));
            let uri = uri.as_str().unwrap_or_default();
            let is_same = |known: &&String| known.trim_end_matches('/') == uri.trim_end_matches('/');
            let Some(known) = parameters.redirect_uris.iter().find(is_same) else {
                return Err(Violation::new(at, "is none of the redirect URIs that the agent allows").into());
            };
            SENT.set(Sent::RedirectUri(known.clone()));
        }
        Ok(None)
    }
}

impl Transition for Oauth {
    fn begin(parameters: &Parameters, _request: Request, beginning: Beginning) -> Result<Entry, String> {
        let redirect_uri = match SENT.take() {
            Sent::Code => return Ok(Entry::Proceed),
            Sent::RedirectUri(uri) => Some(uri),
            Sent::Nothing => flow::redirect_uri()?,
        };
        let Some(redirect_uri) = redirect_uri else {
            let reason =
                format!("The agent needs an authorization, and the message names no redirect URI under {URI}.");
            return Ok(Entry::Veto(reason));
        };
        let url = flow::begin(parameters, &beginning.task_id, &redirect_uri)?;
        let metadata = vec![(URI.to_owned(), json!({"authorization_endpoint_url": url}).to_string())];
        let text = "Authorization required".to_owned();
        Ok(Entry::Interrupt(Interruption { waiting: Waiting::Authorization, text, metadata }))
    }

    fn change(_: &Parameters, _change: StateChange) -> Result<Ruling, String> {
        Ok(Ruling::Pass)
    }
}

annex_sdk::export!(Oauth: card, state, transition);
