//! The hook `output`.

use annex_sdk::{Content, Json, Output, Place, Replacement, Verdict, json};
use serde_json::value::RawValue;

use crate::imports::{self, command_for};
use crate::{TestSteering, told};

/// States that no extension can prevent.
const FINAL: [&str; 3] = ["TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"];

impl Output for TestSteering {
    fn revise(parameters: &Self::Parameters, content: Content) -> Result<Verdict, String> {
        let command = command_for("revise", told(parameters, |hooks| &hooks.revise));
        match command.name {
            "ok" => return Ok(Verdict::Leave),
            name if imports::is_done(name) => return Ok(Verdict::Leave),
            "rewrite" => return Verdict::text(&content, |_| "rewritten".to_owned()),
            "upper" => return Verdict::text(&content, str::to_uppercase),
            "add" => return Verdict::add(&content, vec![text_part("added")]),
            "error" => return Err(command.refusal()),
            "refuse" | "refuse-final" => return Ok(refusal(command.name, &content)),
            "hold" | "hold-for-ever" | "hold-last" | "hold-message" => return Ok(held(command.name, &content)),
            _ => {}
        }
        let count = count(&content.parts);
        // A status without a message has no part to replace.
        if count == 0 && command.name != "no-part" {
            return Ok(Verdict::Leave);
        }
        let replace = |part: u32, parts: Vec<Json>| Replacement { part, parts, dropped: None };
        let first = |part: Json| vec![replace(0, vec![part])];
        Ok(Verdict::Replace(match command.name {
            "seen" => first(text_part(&seen(&content))),
            "empty" => (0..count).map(|part| replace(part, Vec::new())).collect(),
            "no-part" => vec![replace(count + 1, Vec::new())],
            "twice" => vec![replace(0, vec![text_part("once")]), replace(0, vec![text_part("twice")])],
            "foreign-metadata" => first(r#"{"text":"x","metadata":{"someone/else":true}}"#.to_owned()),
            "drop-metadata" => first(text_part("without metadata")),
            "drop-with-reason" => {
                let dropped = Some("it was told to".to_owned());
                vec![Replacement { dropped, ..replace(0, vec![text_part("without metadata")]) }]
            }
            "bad-json" => first("{".to_owned()),
            "deep-json" | "odd-json" => first(format!(r#"{{"data":{}}}"#, command.unreadable())),
            "no-content" => first("{}".to_owned()),
            "big-result" => first(text_part(&command.filler())),
            _ => command.misbehave(),
        }))
    }
}

/// Refuses messages and artifacts, or states that no extension can prevent.
fn refusal(command: &str, content: &Content) -> Verdict {
    let is_final = matches!(&content.place, Place::Status(state) if FINAL.contains(&state.as_str()));
    if is_final == (command == "refuse-final") && (is_final || !matches!(content.place, Place::Status(_))) {
        return Verdict::Refuse("revise was told to refuse".to_owned());
    }
    Verdict::Leave
}

fn held(command: &str, content: &Content) -> Verdict {
    let is_held = match (&content.place, command) {
        (Place::Artifact(chunk), "hold") => !chunk.last,
        (Place::Artifact(chunk), "hold-last") => chunk.last,
        (Place::Artifact(_), "hold-for-ever") => true,
        (Place::Message | Place::Status(_), "hold-message") => true,
        _ => false,
    };
    if is_held { Verdict::Hold } else { Verdict::Leave }
}

/// The content as received from the host.
fn seen(content: &Content) -> String {
    let place = match &content.place {
        Place::Message => "message".to_owned(),
        Place::Status(state) => state.clone(),
        Place::Artifact(chunk) => {
            format!("{}{}{}", chunk.artifact_id, mark(chunk.first, " first"), mark(chunk.last, " last"))
        }
    };
    format!("{place}, {} held: {}", content.held, content.parts)
}

fn mark(is_set: bool, text: &'static str) -> &'static str {
    if is_set { text } else { "" }
}

fn count(parts: &str) -> u32 {
    let parts: Vec<&RawValue> = serde_json::from_str(parts).unwrap_or_default();
    u32::try_from(parts.len()).unwrap_or(u32::MAX)
}

fn text_part(text: &str) -> Json {
    format!(r#"{{"text":{}}}"#, json::string(text))
}
