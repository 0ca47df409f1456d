//! An extension that misbehaves on command, so that the host is tested with a real component. README.md lists the
//! commands.

mod command;
mod ends;
mod hooks;
mod parameters;
mod steering;

use std::process::abort;
use std::sync::OnceLock;

use annex_sdk::{
    Activation, Card, Decision, Declaration, Descriptor, Event, EventKind, EventKinds, Extension, ExtensionError, Json,
    MetadataEntry, Patch, Rejection, Request, Response, State, Violation, json,
};

use crate::command::Command;
use crate::hooks::Hooks;
use crate::parameters::Parameters;

/// The metadata key of a request's commands.
const COMMAND_KEY: &str = "test/command";
/// The metadata key that `respond` writes.
const RESPONSE_KEY: &str = "test/response";

/// The commands of the current request. `check` and `validate` read the commands from the metadata of the request.
/// Other hooks run later in the same instance.
static REQUESTED: OnceLock<Hooks> = OnceLock::new();

/// Reads the commands of the request, once.
fn requested(json: &str) -> &'static Hooks {
    // `check` runs before `validate`; the first of these hooks that runs reads the commands for all.
    REQUESTED.get_or_init(|| Hooks::of_request(json))
}

struct TestExtension;

impl Extension for TestExtension {
    type Parameters = Parameters;

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        let command = Command::of("describe", parameters.behaviour.describe.as_deref());
        let metadata_keys =
            if parameters.owns_keys { vec![COMMAND_KEY.to_owned(), RESPONSE_KEY.to_owned()] } else { Vec::new() };
        let mut descriptor = Descriptor {
            name: "test".to_owned(),
            metadata_keys,
            depends_on: parameters.depends_on.clone(),
            grants: parameters.grants.clone(),
            events: EventKinds::all(),
            payload: parameters.payload,
            ..Descriptor::new(parameters.uri.clone(), "Misbehaves on command.")
        };
        match command.name {
            "ok" => {}
            "error" => return Err(command.refusal()),
            "big-result" => descriptor.description = command.filler(),
            "bad-json" => descriptor.parameter_schema = Some("{".to_owned()),
            "deep-json" | "odd-json" => descriptor.parameter_schema = Some(command.unreadable()),
            "schema" => descriptor.parameter_schema = Some(command::unevaluated()),
            "no-uri" => descriptor.uri.clear(),
            _ => command.misbehave(),
        }
        Ok(descriptor)
    }
}

impl Card for TestExtension {
    fn declare(parameters: &Parameters) -> Result<Declaration, String> {
        let command = Command::of("declare", parameters.behaviour.declare.as_deref());
        let params = match command.name {
            "ok" => Some(r#"{"test":true}"#.to_owned()),
            "none" => None,
            "error" => return Err(command.refusal()),
            "big-result" => Some(format!(r#"{{"filler":"{}"}}"#, command.filler())),
            "bad-json" => Some("{".to_owned()),
            "deep-json" | "odd-json" => Some(format!(r#"{{"deep":{}}}"#, command.unreadable())),
            "not-an-object" => Some("[]".to_owned()),
            _ => command.misbehave(),
        };
        Ok(Declaration { params, ..Declaration::default() })
    }
}

impl Activation for TestExtension {
    fn activate(parameters: &Parameters, _request: Request) -> Result<Decision, ExtensionError> {
        let command = Command::of("activate", parameters.behaviour.activate.as_deref());
        match command.name {
            "ok" => Ok(Decision::Active),
            "inactive" => Ok(Decision::Inactive),
            "reject" | "forged-code" | "bad-json" | "big-result" | "deep-json" | "odd-json" => {
                Err(command.extension_error())
            }
            _ => command.misbehave(),
        }
    }
}

impl State for TestExtension {
    fn validate(
        parameters: &Parameters,
        request: Request,
        metadata: Vec<MetadataEntry>,
    ) -> Result<Option<Json>, Rejection> {
        let sent = metadata.iter().find(|entry| entry.key == COMMAND_KEY);
        let requested = requested(sent.map_or("{}", |entry| &entry.value));
        let text = requested.validate.as_deref().or(parameters.behaviour.validate.as_deref());
        let command = Command::of("validate", text);
        let delta = match command.name {
            "ok" | "none" => return Ok(None),
            "violation" => return Err(Violation::new("/message/metadata/test~1command", "was told to object").into()),
            "violations" => return Err(Rejection::Violations(command.violations())),
            "empty-violations" => return Err(Rejection::Violations(Vec::new())),
            "reject" | "forged-code" => return Err(command.extension_error().into()),
            "delta" => r#"{"test":"delta"}"#.to_owned(),
            "seen" => seen(&request, &metadata),
            "scope-escalation" => r#"{"app:x":"escalated"}"#.to_owned(),
            "bad-json" => "{".to_owned(),
            "deep-json" | "odd-json" => format!(r#"{{"deep":{}}}"#, command.unreadable()),
            "not-an-object" => "[]".to_owned(),
            "big-result" => format!(r#"{{"filler":"{}"}}"#, command.filler()),
            _ => command.misbehave(),
        };
        Ok(Some(delta))
    }
}

/// The request as received from the host, without generated ids.
fn seen(request: &Request, metadata: &[MetadataEntry]) -> Json {
    let requested = request.requested.join(" ");
    let entries: Vec<String> =
        metadata.iter().map(|entry| format!("{:?} {}={}", entry.location, entry.key, entry.value)).collect();
    let text = format!("{} asks for {requested} with {}", request.operation, entries.join(", "));
    format!(r#"{{"test":{}}}"#, json::string(&text))
}

impl Response for TestExtension {
    fn respond(parameters: &Parameters, event: Event) -> Result<Option<Patch>, String> {
        let requested = REQUESTED.get().and_then(|hooks| hooks.respond.as_deref());
        let command = Command::of("respond", requested.or(parameters.behaviour.respond.as_deref()));
        let patch = match command.name {
            "ok" => Patch::entry(RESPONSE_KEY, json::string(kind(&event))),
            "none" => return Ok(None),
            "turn" if command.has_turned() => abort(),
            "turn" => Patch::entry(RESPONSE_KEY, json::string(kind(&event))),
            "empty" => Patch { metadata: Vec::new() },
            "payload" => Patch::entry(RESPONSE_KEY, event.payload.unwrap_or_else(|| "null".to_owned())),
            "error" => return Err(command.refusal()),
            "foreign-key" => Patch::entry("someone/else", "true"),
            "bad-json" => Patch::entry(RESPONSE_KEY, "{"),
            "deep-json" | "odd-json" => Patch::entry(RESPONSE_KEY, command.unreadable()),
            "big-result" => Patch::entry(RESPONSE_KEY, json::string(&command.filler())),
            _ => command.misbehave(),
        };
        Ok(Some(patch))
    }
}

fn kind(event: &Event) -> &'static str {
    match event.kind {
        EventKind::Message => "message",
        EventKind::Status => "status",
        EventKind::Artifact => "artifact",
    }
}

annex_sdk::export!(TestExtension: card, activation, message, state, transition, response, method, client);
