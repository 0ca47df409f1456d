//! The hooks `method` and `client`.

use std::sync::atomic::{AtomicUsize, Ordering};

use annex_sdk::{
    Addition, Answer, Client, Incoming, Json, Location, MetadataEntry, Method, MethodDeclaration, Outgoing, Rejection,
    Request, Violation, json,
};
use serde::Deserialize;

use crate::command::Command;
use crate::{COMMAND_KEY, TestExtension};

/// The number of results of a stream so far.
static RESULTS: AtomicUsize = AtomicUsize::new(0);

/// The parameters of a method, or a program's input for the hook `client`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct CallCommand {
    command: Option<String>,
}

impl CallCommand {
    fn read(json: &str) -> Self {
        // Parameters that are no command let the method behave.
        serde_json::from_str(json).unwrap_or_default()
    }
}

impl Method for TestExtension {
    fn methods(parameters: &Self::Parameters) -> Result<Vec<MethodDeclaration>, String> {
        let command = Command::of("methods", parameters.behaviour.methods.as_deref());
        let declared = |name: &String| MethodDeclaration {
            params_schema: Some(r#"{"properties":{"command":{"type":"string"}}}"#.to_owned()),
            // The result of `wrong-result` is a text, which this schema does not take.
            result_schema: Some(r#"{"type":["object","integer"]}"#.to_owned()),
            streams: name.ends_with("stream"),
            ..MethodDeclaration::new(name, "Does as it is told.")
        };
        let mut methods: Vec<MethodDeclaration> = parameters.methods.iter().map(declared).collect();
        match command.name {
            "ok" => {}
            "error" => return Err(command.refusal()),
            "bad-json" => methods.iter_mut().for_each(|method| method.params_schema = Some("{".to_owned())),
            "big-result" => methods.iter_mut().for_each(|method| method.description = command.filler()),
            _ => command.misbehave(),
        }
        Ok(methods)
    }

    fn call(_: &Self::Parameters, request: Request, name: &str, params: Json) -> Result<Answer, Rejection> {
        let told = CallCommand::read(&params);
        let command = Command::of("call", told.command.as_deref());
        Ok(Answer::Value(match command.name {
            "ok" if name.ends_with("stream") => return Ok(Answer::Results),
            "ok" => format!(r#"{{"operation":{},"params":{params}}}"#, json::string(&request.operation)),
            "results" => return Ok(Answer::Results),
            "violation" => return Err(Violation::new("/command", "was told to object").into()),
            "empty-violations" => return Err(Rejection::Violations(Vec::new())),
            "reject" | "forged-code" => return Err(command.extension_error().into()),
            "wrong-result" => "\"a string\"".to_owned(),
            "bad-json" => "{".to_owned(),
            "deep-json" | "odd-json" => format!(r#"{{"deep":{}}}"#, command.unreadable()),
            "big-result" => format!(r#"{{"filler":"{}"}}"#, command.filler()),
            _ => command.misbehave(),
        }))
    }

    /// Returns three results, and then follows the behaviour in the parameters.
    fn next(parameters: &Self::Parameters) -> Result<Option<Json>, Rejection> {
        let result = RESULTS.fetch_add(1, Ordering::Relaxed);
        if result < 3 {
            return Ok(Some(result.to_string()));
        }
        let command = Command::of("next", parameters.behaviour.next.as_deref());
        match command.name {
            "ok" => Ok(None),
            "reject" | "forged-code" => Err(command.extension_error().into()),
            "endless" => Ok(Some(result.to_string())),
            "wrong-result" => Ok(Some("\"a string\"".to_owned())),
            _ => command.misbehave(),
        }
    }
}

impl Client for TestExtension {
    fn before(_: &Self::Parameters, call: Outgoing) -> Result<Addition, Rejection> {
        let told = CallCommand::read(call.input.as_deref().unwrap_or("{}"));
        let command = Command::of("before", told.command.as_deref());
        let seen = [&call.operation, &call.agent].map(|text| json::string(text)).join(",");
        let seen = format!(
            r#"{{"seen":[{seen}],"declaration":{},"message":{}}}"#,
            call.declaration.as_deref().unwrap_or("null"),
            call.message.as_deref().unwrap_or("null")
        );
        match command.name {
            "ok" => Ok(Addition::entry(COMMAND_KEY, seen)),
            "none" => Ok(Addition::none()),
            "request" => {
                let entry = MetadataEntry { location: Location::Request, key: COMMAND_KEY.to_owned(), value: seen };
                Ok(Addition { activate: true, metadata: vec![entry] })
            }
            "violation" => Err(Violation::new("/command", "was told to object").into()),
            "reject" | "forged-code" => Err(command.extension_error().into()),
            "foreign-key" => Ok(Addition::entry("someone/else", "true")),
            "bad-json" => Ok(Addition::entry(COMMAND_KEY, "{")),
            "big-result" => Ok(Addition::entry(COMMAND_KEY, json::string(&command.filler()))),
            _ => command.misbehave(),
        }
    }

    fn after(parameters: &Self::Parameters, event: Incoming) -> Result<Option<Json>, String> {
        let command = Command::of("after", parameters.behaviour.after.as_deref());
        match command.name {
            "ok" => {
                let keys: Vec<String> = event.metadata.iter().map(|(key, _)| json::string(key)).collect();
                Ok(Some(format!(r#"{{"active":{},"keys":[{}]}}"#, event.active, keys.join(","))))
            }
            "none" => Ok(None),
            "error" => Err(command.refusal()),
            "bad-json" => Ok(Some("{".to_owned())),
            _ => command.misbehave(),
        }
    }
}
