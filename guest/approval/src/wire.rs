//! Requests and decisions in the metadata of messages.

use annex_sdk::members::Members;
use annex_sdk::{Json, clock, json};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::decisions::{Choice, Decision};
use crate::digest;
use crate::parameters::{Parameters, Wire};
use crate::record::Record;

/// The maximum number of integers that the text of a request repeats.
const MAX_EXACT_SHOWN: usize = 20;
/// The maximum length of the place of such an integer, in characters.
const MAX_PLACE: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    call: String,
    digest: String,
    decision: Choice,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Agentstack {
    decision: Choice,
}

/// The decision in a message. `None` if the message has none: an empty object only activates the extension.
///
/// # Errors
/// The entry is no decision. The text is a fragment.
pub fn read(parameters: &Parameters, message: &str) -> Result<Option<Decision>, String> {
    let message = Members::of(message).unwrap_or_default();
    let metadata = message.get("metadata").and_then(Members::of).unwrap_or_default();
    let Some(entry) = metadata.get(parameters.uri()) else { return Ok(None) };
    if Members::of(entry).is_some_and(|members| members.is_empty()) {
        return Ok(None);
    }
    let wrong = |error: serde_json::Error| format!("is no decision: {error}");
    Ok(Some(match parameters.wire {
        Wire::Own => {
            let Own { call, digest, decision } = serde_json::from_str(entry).map_err(wrong)?;
            Decision { about: Some((call, digest)), choice: decision }
        }
        Wire::Agentstack => {
            let Agentstack { decision } = serde_json::from_str(entry).map_err(wrong)?;
            Decision { about: None, choice: decision }
        }
    }))
}

/// The subject of a request, for the client.
pub enum Subject<'a> {
    /// A call of a tool.
    Call {
        /// The tool's name.
        name: &'a str,
        /// The server of the tool.
        origin: &'a str,
        /// The arguments.
        input: &'a Value,
    },
    /// The result of the task.
    Result,
}

/// The text and the metadata of a request.
///
/// # Errors
/// The metadata cannot be written.
pub fn request(
    parameters: &Parameters,
    record: &Record,
    subject: &Subject<'_>,
) -> Result<(String, Vec<(String, Json)>), String> {
    let (what, value) = match subject {
        Subject::Call { name, origin, input } => {
            let value = match parameters.wire {
                Wire::Own => own(
                    parameters,
                    record,
                    json!({"action": "tool-call", "name": name, "origin": origin, "input": input}),
                )?,
                Wire::Agentstack => {
                    json!({
                        "action": "tool-call",
                        "title": null,
                        "description": null,
                        "name": name,
                        "input": input,
                        "server": null,
                    })
                }
            };
            (format!("the tool {name}{}", exact(input)), value)
        }
        Subject::Result => {
            let value = match parameters.wire {
                Wire::Own => own(parameters, record, json!({"action": "acceptance"}))?,
                Wire::Agentstack => json!({"action": "generic", "title": "Accept the result", "description": null}),
            };
            ("the result of the task".to_owned(), value)
        }
    };
    let text = format!("{} It is about {what}. Digest: {}.", parameters.text, record.digest);
    Ok((text, vec![(parameters.uri().to_owned(), json::text(&value)?)]))
}

/// The arguments whose digits a client in JavaScript would change, as a part of a sentence.
fn exact(input: &Value) -> String {
    let mut numbers = digest::large_integers(input);
    let more = numbers.len().saturating_sub(MAX_EXACT_SHOWN);
    numbers.truncate(MAX_EXACT_SHOWN);
    let mut text: String =
        numbers.iter().map(|(place, digits)| format!(", with {} = {digits}", shown(place))).collect();
    if more > 0 {
        text.push_str(&format!(", and {more} more numbers above 2^53"));
    }
    text
}

/// A place in the text for the approver. The caller of the tool chooses the names in a place, so a place that could read
/// like a sentence is quoted and cut.
fn shown(place: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-.~".contains(&byte);
    if place.len() <= MAX_PLACE && place.bytes().all(is_plain) {
        return place.to_owned();
    }
    let cut: String = place.chars().take(MAX_PLACE).collect();
    format!("{cut:?}")
}

/// Adds the data that a decision in our own form needs.
fn own(parameters: &Parameters, record: &Record, mut value: Value) -> Result<Value, String> {
    let expires = clock::text(record.until.saturating_mul(1_000));
    let approved = record.approvals()?;
    if let Some(members) = value.as_object_mut() {
        members.insert("call".to_owned(), record.call.clone().into());
        members.insert("digest".to_owned(), record.digest.clone().into());
        members.insert("expires".to_owned(), expires.into());
        members.insert("quorum".to_owned(), parameters.quorum.into());
        members.insert("approved".to_owned(), approved.into());
    }
    Ok(value)
}
