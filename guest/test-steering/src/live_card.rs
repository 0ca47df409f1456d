//! The hook `live-card`.

use annex_sdk::keyvalue::Keys;
use annex_sdk::{Json, LiveCard, LiveDeclaration, json};
use serde_json::Value;

use crate::TestSteering;
use crate::command::Command;

/// The key that counts the declarations.
const DECLARATIONS: &str = "declarations";

impl LiveCard for TestSteering {
    fn declare_live(parameters: &Self::Parameters) -> Result<LiveDeclaration, String> {
        match &parameters.live {
            Value::Null => Ok(LiveDeclaration { description: None, params: None, seconds: 0 }),
            Value::String(text) => carry_out(text),
            entry => Ok(LiveDeclaration {
                description: entry.get("description").and_then(Value::as_str).map(str::to_owned),
                params: entry.get("params").map(Value::to_string),
                seconds: entry
                    .get("seconds")
                    .and_then(Value::as_u64)
                    .map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX)),
            }),
        }
    }
}

fn carry_out(text: &str) -> Result<LiveDeclaration, String> {
    let command = Command::of("declare-live", Some(text));
    // With a number of good declarations before it, such as `error-after 1`.
    if let Some(name) = command.name.strip_suffix("-after") {
        let good = text.split_once(' ').and_then(|(_, good)| good.parse::<u64>().ok()).unwrap_or(1);
        let number = count()?;
        return if number <= good { Ok(numbered(number)) } else { wrong(&Command::of("declare-live", Some(name))) };
    }
    match command.name {
        "counter" => Ok(numbered(count()?)),
        _ => wrong(&command),
    }
}

/// Counts the declaration. The number outlives the instance.
fn count() -> Result<u64, String> {
    Keys::open()?.increment(DECLARATIONS, 1)
}

fn numbered(number: u64) -> LiveDeclaration {
    entry(format!(r#"{{"n":{number}}}"#))
}

fn entry(params: Json) -> LiveDeclaration {
    LiveDeclaration::params(params, 1)
}

fn wrong(command: &Command<'_>) -> Result<LiveDeclaration, String> {
    Ok(match command.name {
        "error" => return Err(command.refusal()),
        "big" => entry(format!(r#"{{"x":{}}}"#, json::string(&command.filler()))),
        "bad-json" => entry("{".to_owned()),
        "not-an-object" => entry("[]".to_owned()),
        "big-description" => LiveDeclaration { description: Some(command.filler()), params: None, seconds: 1 },
        _ => command.misbehave(),
    })
}
