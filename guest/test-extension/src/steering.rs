//! The hooks that decide about the content of a message and the states of a task.

use annex_sdk::{
    Beginning, Entry, Interruption, Json, Message, Rejection, Request, Rewrite, Ruling, StateChange, Transition,
    Violation, Waiting, json,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::command::Command;
use crate::{COMMAND_KEY, REQUESTED, RESPONSE_KEY, TestExtension, requested};

/// The part of a message that this extension reads.
#[derive(Deserialize)]
struct MessageParts<'a> {
    #[serde(borrow, default)]
    metadata: std::collections::BTreeMap<String, &'a RawValue>,
}

impl Message for TestExtension {
    fn check(parameters: &Self::Parameters, _: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        let seen: Option<MessageParts<'_>> = serde_json::from_str(&message).ok();
        let sent = seen.as_ref().and_then(|seen| seen.metadata.get(COMMAND_KEY)).map(|value| value.get());
        let text = requested(sent.unwrap_or("{}")).check.as_deref().or(parameters.behaviour.check.as_deref());
        let command = Command::of("check", text);
        let replacement = match command.name {
            "ok" => return Ok(Vec::new()),
            "violation" => return Err(Violation::new("/message/parts/0", "was told to object").into()),
            "empty-violations" => return Err(Rejection::Violations(Vec::new())),
            "reject" | "forged-code" => return Err(command.extension_error().into()),
            "rewrite" => text_part("rewritten"),
            "seen" => text_part(&message),
            "no-part" => return Ok(vec![Rewrite { part: 99, replacement: Vec::new() }]),
            "empty" => return Ok(vec![Rewrite { part: 0, replacement: Vec::new() }]),
            "bad-json" => "{".to_owned(),
            "deep-json" | "odd-json" => format!(r#"{{"data":{}}}"#, command.unreadable()),
            "big-result" => text_part(&command.filler()),
            _ => command.misbehave(),
        };
        Ok(vec![Rewrite { part: 0, replacement: vec![replacement] }])
    }
}

fn text_part(text: &str) -> Json {
    format!(r#"{{"text":{}}}"#, json::string(text))
}

impl Transition for TestExtension {
    fn begin(parameters: &Self::Parameters, _: Request, beginning: Beginning) -> Result<Entry, String> {
        let requested = REQUESTED.get().and_then(|hooks| hooks.begin.as_deref());
        let command = Command::of("begin", requested.or(parameters.behaviour.begin.as_deref()));
        match command.name {
            "ok" => Ok(Entry::Proceed),
            "interrupt" | "authorize" | "foreign-key" | "bad-json" | "odd-json" | "big-result" => {
                Ok(Entry::Interrupt(interruption(&command)))
            }
            // A waiting task resumes with its client's next message, and then runs.
            "first" if beginning.waits_in.is_none() => Ok(Entry::Interrupt(interruption(&command))),
            "first" => Ok(Entry::Proceed),
            "veto" => Ok(Entry::Veto("begin was told to veto".to_owned())),
            "error" => Err(command.refusal()),
            _ => command.misbehave(),
        }
    }

    fn change(parameters: &Self::Parameters, change: StateChange) -> Result<Ruling, String> {
        let requested = REQUESTED.get().and_then(|hooks| hooks.change.as_deref());
        let told = requested.or(parameters.behaviour.change.as_deref());
        // The test's task runs as usual, and the command applies to its cancellation.
        let told = match told.and_then(|told| told.strip_suffix("-canceled")) {
            Some(_) if change.next != "TASK_STATE_CANCELED" => return Ok(Ruling::Pass),
            Some(told) => Some(told),
            None => told,
        };
        let command = Command::of("change", told);
        let is_last = change.next == "TASK_STATE_COMPLETED";
        Ok(match command.name {
            "ok" => Ruling::Pass,
            "annotate" => annotation(json::string(&format!("{} to {}", change.current, change.next))),
            "interrupt" if is_last => Ruling::Interrupt(interruption(&command)),
            "veto" if is_last => Ruling::Veto("change was told to veto".to_owned()),
            "interrupt" | "veto" => Ruling::Pass,
            "always-interrupt" => Ruling::Interrupt(interruption(&command)),
            "always-veto" => Ruling::Veto("change was told to veto".to_owned()),
            "error" => return Err(command.refusal()),
            "foreign-key" => Ruling::Annotate(vec![("someone/else".to_owned(), "true".to_owned())]),
            "bad-json" => annotation("{".to_owned()),
            "deep-json" | "odd-json" => annotation(command.unreadable()),
            "big-result" => annotation(json::string(&command.filler())),
            _ => command.misbehave(),
        })
    }
}

fn annotation(value: Json) -> Ruling {
    Ruling::Annotate(vec![(RESPONSE_KEY.to_owned(), value)])
}

fn interruption(command: &Command<'_>) -> Interruption {
    let (key, value) = match command.name {
        "foreign-key" => ("someone/else", "true".to_owned()),
        "bad-json" => (RESPONSE_KEY, "{".to_owned()),
        "odd-json" => (RESPONSE_KEY, command.unreadable()),
        "big-result" => (RESPONSE_KEY, json::string(&command.filler())),
        _ => (RESPONSE_KEY, json::string(command.name)),
    };
    let waiting = if command.name == "authorize" { Waiting::Authorization } else { Waiting::Input };
    Interruption { waiting, text: "Go on?".to_owned(), metadata: vec![(key.to_owned(), value)] }
}
