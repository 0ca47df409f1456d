//! An extension that uses each capability of the host on command, so that grants are tested with a real component. It
//! is built for `wasm32-wasip2`, like extensions that need the standard library. README.md lists the commands.

mod command;

use std::sync::Mutex;

use annex_sdk::members::Members;
use annex_sdk::{
    Answer, Descriptor, Event, EventKinds, Extension, Json, MetadataEntry, Method, MethodDeclaration, Patch, Rejection,
    Request, Response, State, json,
};
use serde::Deserialize;

use crate::command::Command;

/// The metadata key of a request's commands for `validate`.
const COMMAND_KEY: &str = "test/capability";
/// The metadata key of a request's commands for `respond`.
const LATER_KEY: &str = "test/later";
/// The metadata key that `respond` writes.
const RESULT_KEY: &str = "test/result";

/// The commands that `validate` read for `respond`. An instance serves one turn.
static LATER: Mutex<Vec<Command>> = Mutex::new(Vec::new());

struct TestCapabilities;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    uri: String,
    /// The names of the methods.
    methods: Vec<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { uri: "https://annex.example/capabilities/v1".to_owned(), methods: Vec::new() }
    }
}

impl Extension for TestCapabilities {
    type Parameters = Parameters;

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "test-capabilities".to_owned(),
            metadata_keys: vec![COMMAND_KEY.to_owned(), LATER_KEY.to_owned(), RESULT_KEY.to_owned()],
            events: EventKinds::ARTIFACT,
            ..Descriptor::new(parameters.uri.clone(), "Uses what it is granted.")
        })
    }
}

fn commands(metadata: &[MetadataEntry], key: &str) -> Option<Vec<Command>> {
    let sent = metadata.iter().find(|entry| entry.key == key)?;
    Some(Command::read(&sent.value))
}

fn results(commands: &[Command]) -> Json {
    let results: Vec<Json> = commands.iter().map(|command| json::string(&command.run())).collect();
    format!("[{}]", results.join(","))
}

impl State for TestCapabilities {
    /// Runs the commands of the request. The delta has their results.
    fn validate(
        _parameters: &Parameters,
        _request: Request,
        metadata: Vec<MetadataEntry>,
    ) -> Result<Option<Json>, Rejection> {
        // `respond` does not get the request, so its commands are stored here.
        if let (Some(sent), Ok(mut later)) = (commands(&metadata, LATER_KEY), LATER.lock()) {
            *later = sent;
        }
        let Some(sent) = commands(&metadata, COMMAND_KEY) else { return Ok(None) };
        Ok(Some(format!(r#"{{"results":{}}}"#, results(&sent))))
    }
}

impl Response for TestCapabilities {
    /// Runs the request's commands for this hook, or returns the task.
    fn respond(_parameters: &Parameters, _event: Event) -> Result<Option<Patch>, String> {
        let later = LATER.lock().map_err(|error| error.to_string())?;
        let shown = if later.is_empty() { json::string(&Command::Task.run()) } else { results(&later) };
        Ok(Some(Patch::entry(RESULT_KEY, shown)))
    }
}

impl Method for TestCapabilities {
    fn methods(parameters: &Parameters) -> Result<Vec<MethodDeclaration>, String> {
        let declared = |name: &String| MethodDeclaration::new(name.as_str(), "Runs commands.");
        Ok(parameters.methods.iter().map(declared).collect())
    }

    /// Runs the commands in the member `commands`, and answers with their results.
    fn call(_parameters: &Parameters, _request: Request, _name: &str, params: Json) -> Result<Answer, Rejection> {
        let commands = Members::of(&params).and_then(|params| params.get("commands").map(Command::read));
        Ok(Answer::Value(results(&commands.unwrap_or_default())))
    }
}

annex_sdk::export!(TestCapabilities: state, response, method);
