//! An extension that uses what a host may offer, on command, so that grants are tested against the real thing. It is
//! built for `wasm32-wasip2`, as extensions of authors are who need the standard library. README.md lists the commands.

mod command;

use annex_sdk::{
    Descriptor, Event, EventKinds, Extension, Json, MetadataEntry, Patch, Rejection, Request, Response, State, json,
};
use serde::Deserialize;

use crate::command::Command;

/// Where a request carries commands, and the one for `respond` is repeated.
const COMMAND_KEY: &str = "test/capability";
/// What `respond` writes.
const RESULT_KEY: &str = "test/result";

struct TestCapabilities;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    uri: String,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { uri: "https://annex.example/capabilities/v1".to_owned() }
    }
}

impl Extension for TestCapabilities {
    type Parameters = Parameters;

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "test-capabilities".to_owned(),
            metadata_keys: vec![COMMAND_KEY.to_owned(), RESULT_KEY.to_owned()],
            events: EventKinds::ARTIFACT,
            ..Descriptor::new(parameters.uri.clone(), "Uses what it is granted.")
        })
    }
}

impl State for TestCapabilities {
    /// Runs the commands of the request; the delta has what came of them.
    fn validate(
        _parameters: &Parameters,
        _request: Request,
        metadata: Vec<MetadataEntry>,
    ) -> Result<Option<Json>, Rejection> {
        let Some(sent) = metadata.iter().find(|entry| entry.key == COMMAND_KEY) else { return Ok(None) };
        let results: Vec<Json> =
            Command::read(&sent.value).into_iter().map(|command| json::string(&command.run())).collect();
        Ok(Some(format!(r#"{{"results":[{}]}}"#, results.join(","))))
    }
}

impl Response for TestCapabilities {
    /// Shows the task.
    fn respond(_parameters: &Parameters, _event: Event) -> Result<Option<Patch>, String> {
        Ok(Some(Patch::entry(RESULT_KEY, json::string(&Command::Task.run()))))
    }
}

annex_sdk::export!(TestCapabilities: state, response);
