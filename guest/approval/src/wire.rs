//! Requests and decisions in the metadata of messages.

use annex_sdk::members::Members;
use annex_sdk::{Json, clock, json};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::decisions::{Choice, Decision};
use crate::parameters::{Parameters, Wire};
use crate::record::Record;

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
            (format!("the tool {name}"), value)
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
