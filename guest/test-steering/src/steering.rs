//! The hook `steering`.

use annex_sdk::{
    Json, ModelCall, ModelChange, ModelVerdict, Pause, Remark, Steering, ToolCall, ToolResult, ToolVerdict, json,
};

use crate::command::Command;
use crate::imports::{self, command_for};
use crate::{RESULT_KEY, TestSteering, told};

/// The default number of parts of `remark-flood` and `many-instructions`.
const FLOOD: usize = 10_000;

impl Steering for TestSteering {
    fn before_model(parameters: &Self::Parameters, call: ModelCall) -> Result<(ModelVerdict, Option<Remark>), String> {
        let text = told(parameters, |hooks| &hooks.before_model);
        let command = command_for("before-model", text);
        if command.name == "error" {
            return Err(command.refusal());
        }
        if let Some(remark) = remark(&command, &format!("{call:?}")) {
            return Ok((ModelVerdict::Pass, Some(remark)));
        }
        let argument = argument(text);
        let with_model = |model: &str| ModelChange { model: Some(model.to_owned()), ..ModelChange::default() };
        let with_parameters = |json: &str| ModelChange { parameters: Some(json.to_owned()), ..ModelChange::default() };
        let with_instruction = |more: Vec<String>| {
            let instruction = call.instruction.iter().cloned().chain(more).collect();
            ModelChange { instruction: Some(instruction), ..ModelChange::default() }
        };
        let change = match command.name {
            "ok" => return Ok((ModelVerdict::Pass, None)),
            name if imports::is_done(name) => return Ok((ModelVerdict::Pass, None)),
            "deny" | "refuse" => {
                return Ok((ModelVerdict::Refuse(argument.unwrap_or("it was told to").to_owned()), None));
            }
            "refuse-with-remark" => {
                return Ok((ModelVerdict::Refuse("it was told to".to_owned()), Some(Remark::text("a remark"))));
            }
            "change" => with_instruction(vec![argument.unwrap_or("changed").to_owned()]),
            "replace" => ModelChange {
                instruction: Some(vec![argument.unwrap_or("replaced").to_owned()]),
                ..ModelChange::default()
            },
            "parameters" => with_parameters(argument.unwrap_or(r#"{"temperature":0.5}"#)),
            "no-change" => ModelChange::default(),
            // The model's own name without an argument, which every operator lends.
            "model" => with_model(argument.unwrap_or(&call.model)),
            "lent-model" => with_model(call.lent.iter().find(|lent| **lent != call.model).unwrap_or(&call.model)),
            "unlent-model" => with_model("the model of someone else"),
            "bad-parameters" => with_parameters(r#"{"temperature":"hot"}"#),
            "bad-range" => with_parameters(r#"{"temperature":1000000}"#),
            "unknown-parameter" => with_parameters(r#"{"topK":1}"#),
            "not-an-object" => with_parameters("[]"),
            "bad-json" => with_parameters("{"),
            "deep-json" | "odd-json" => with_parameters(&format!(r#"{{"stop":{}}}"#, command.unreadable())),
            "big-result" => with_parameters(&format!(r#"{{"stop":[{}]}}"#, json::string(&command.filler()))),
            "huge-instruction" => with_instruction(vec![command.filler()]),
            "many-instructions" => with_instruction(vec!["Be short.".to_owned(); number(text)]),
            _ => command.misbehave(),
        };
        Ok((ModelVerdict::Change(change), None))
    }

    fn before_tool(parameters: &Self::Parameters, call: ToolCall) -> Result<(ToolVerdict, Option<Remark>), String> {
        let text = told(parameters, |hooks| &hooks.before_tool);
        let command = command_for("before-tool", text);
        if command.name == "error" {
            return Err(command.refusal());
        }
        if let Some(remark) = remark(&command, &format!("{call:?}")) {
            return Ok((ToolVerdict::Pass, Some(remark)));
        }
        let argument = argument(text);
        let deny = || ToolVerdict::Deny(format!("{} was denied", call.name));
        let change = |arguments: &str| ToolVerdict::Change(arguments.to_owned());
        let once = |pause: Pause| if call.has_waited { ToolVerdict::Pass } else { ToolVerdict::Wait(pause) };
        let question = || Pause::input(format!("May {} be called?", call.name));
        let with_entry = |key: &str| Pause { metadata: vec![(key.to_owned(), call.arguments.clone())], ..question() };
        let is_named = argument == Some(call.name.as_str());
        let verdict = match command.name {
            "ok" => ToolVerdict::Pass,
            name if imports::is_done(name) => ToolVerdict::Pass,
            "change" => change(argument.unwrap_or(r#"{"changed":true}"#)),
            "deny" => argument.map_or_else(deny, |text| ToolVerdict::Deny(text.to_owned())),
            "deny-with-bad-remark" => {
                return Ok((deny(), Some(Remark { parts: Vec::new(), ..Remark::text("") })));
            }
            "deny-tool" if is_named => deny(),
            "wait" => once(question()),
            "wait-tool" if is_named => once(question()),
            "deny-tool" | "wait-tool" => ToolVerdict::Pass,
            "authorize" => once(Pause::authorization("Who are you?")),
            "wait-for-ever" => ToolVerdict::Wait(question()),
            "change-after-wait" if call.has_waited => change(argument.unwrap_or(r#"{"changed":true}"#)),
            "deny-after-wait" if call.has_waited => deny(),
            "change-after-wait" | "deny-after-wait" => ToolVerdict::Wait(question()),
            "wait-with-own-key" => once(with_entry(RESULT_KEY)),
            "wait-with-foreign-key" => once(with_entry("someone/else")),
            "wait-without-text" => once(Pause::input("")),
            "wait-with-big-text" => once(Pause::input(command.filler())),
            "not-an-object" => change("[]"),
            "bad-json" => change("{"),
            "deep-json" | "odd-json" => change(&format!(r#"{{"x":{}}}"#, command.unreadable())),
            "big-result" => change(&format!(r#"{{"x":{}}}"#, json::string(&command.filler()))),
            "big-denial" => ToolVerdict::Deny(command.filler()),
            _ => command.misbehave(),
        };
        Ok((verdict, None))
    }

    fn after_tool(parameters: &Self::Parameters, made: ToolResult) -> Result<(Option<Json>, Option<Remark>), String> {
        let text = told(parameters, |hooks| &hooks.after_tool);
        let command = command_for("after-tool", text);
        if command.name == "error" {
            return Err(command.refusal());
        }
        if let Some(remark) = remark(&command, &format!("{made:?}")) {
            return Ok((None, Some(remark)));
        }
        let output = match command.name {
            "ok" => return Ok((None, None)),
            name if imports::is_done(name) => return Ok((None, None)),
            "change" => argument(text).unwrap_or(r#"{"changed":true}"#).to_owned(),
            "bad-json" => "{".to_owned(),
            "deep-json" | "odd-json" => command.unreadable(),
            "big-result" => json::string(&command.filler()),
            _ => command.misbehave(),
        };
        Ok((Some(output), None))
    }
}

/// The text after the name of a command; `None` if there is none.
fn argument(text: Option<&str>) -> Option<&str> {
    text?.split_once(' ').map(|(_, argument)| argument)
}

fn number(text: Option<&str>) -> usize {
    argument(text).and_then(|argument| argument.parse().ok()).unwrap_or(FLOOD)
}

/// The remark of a command; `None` if the command makes none. `seen` is what the hook got, as text.
fn remark(command: &Command<'_>, seen: &str) -> Option<Remark> {
    let with_entry = |key: &str, value: &str| {
        let metadata = vec![(key.to_owned(), value.to_owned())];
        Remark { metadata, ..Remark::text("a remark") }
    };
    let of_part = |part: &str| Remark { parts: vec![part.to_owned()], metadata: Vec::new() };
    Some(match command.name {
        "seen" => Remark::text(seen),
        "remark" => Remark::text("a remark"),
        "remark-data" => Remark::data(r#"{"a":"remark"}"#),
        "own-key" => with_entry(RESULT_KEY, "true"),
        "foreign-key" => with_entry("someone/else", "true"),
        "remark-bad-value" => with_entry(RESULT_KEY, "{"),
        "remark-foreign-metadata" => of_part(r#"{"text":"x","metadata":{"someone/else":true}}"#),
        "remark-without-parts" => Remark { parts: Vec::new(), ..Remark::text("") },
        "remark-bad-json" => of_part("{"),
        "remark-big" => Remark::text(&command.filler()),
        "remark-flood" => Remark { parts: vec![r#"{"text":"x"}"#.to_owned(); FLOOD], ..Remark::text("") },
        _ => return None,
    })
}
