//! Reads tasks, answers and receipts from the JSON that a client got.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::KEY_PREFIX;
use super::content::{canonical_sha256, value_of, value_sha256};

/// The maximum number of objects around a task, as in the response to a request of JSON-RPC.
const MAX_ENVELOPES: usize = 4;

/// The reason why an input has nothing to check.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The text is neither JSON nor a receipt.
    #[error("it is neither JSON nor a receipt in compact form")]
    NotJson(#[source] serde_json::Error),
    /// The JSON has no task, no message and no receipt.
    #[error("it has no task, no message of an agent and no receipt")]
    Nothing,
}

/// A part of an input that can be checked.
pub(super) enum InputPart {
    Task(Box<SeenTask>),
    Answer(Box<SeenAnswer>),
    Receipt(String),
}

/// A task as a client got it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SeenTask {
    pub(super) id: String,
    pub(super) context_id: String,
    pub(super) status: SeenStatus,
    #[serde(default)]
    pub(super) history: Vec<Content>,
    #[serde(default)]
    pub(super) artifacts: Vec<Content>,
    #[serde(default)]
    metadata: BTreeMap<String, Value>,
    /// Only tasks of 0.3 have a kind.
    kind: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct SeenStatus {
    pub(super) state: String,
    pub(super) message: Option<Content>,
}

/// A message that is the answer to a message.
pub(super) struct SeenAnswer {
    pub(super) id: String,
    pub(super) context_id: Option<String>,
    /// The digest without the receipts in the metadata. `None` if the JSON has no canonical form.
    pub(super) sha256: Option<String>,
    pub(super) receipts: BTreeMap<String, Value>,
}

/// The JSON of a message or an artifact.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Content(Box<RawValue>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ids {
    message_id: Option<String>,
    artifact_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerFields {
    message_id: String,
    context_id: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, Value>,
}

/// The fields by which a task, a message and a response differ, and the fields of a response that can hold a task.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    message_id: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    task: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    tasks: Option<&'a RawValue>,
}

impl SeenTask {
    /// True for a task in the form of 0.3, whose messages and artifacts have other JSON than the receipt covers.
    pub(super) fn is_of_0_3(&self) -> bool {
        self.kind.is_some()
    }

    /// The receipts by their metadata keys.
    pub(super) fn receipts(&self) -> impl Iterator<Item = (&str, &Value)> {
        receipts_in(&self.metadata)
    }

    /// The message with this id, in the history or the status.
    pub(super) fn message(&self, id: &str) -> Option<&Content> {
        let mut messages = self.history.iter().chain(&self.status.message);
        messages.find(|message| message.id().as_deref() == Some(id))
    }
}

impl SeenAnswer {
    pub(super) fn receipts(&self) -> impl Iterator<Item = (&str, &Value)> {
        receipts_in(&self.receipts)
    }
}

impl Content {
    /// The id of the message or the artifact.
    pub(super) fn id(&self) -> Option<String> {
        let ids: Ids = serde_json::from_str(self.0.get()).ok()?;
        ids.message_id.or(ids.artifact_id)
    }

    pub(super) fn sha256(&self) -> Option<String> {
        canonical_sha256(self.0.get()).ok()
    }
}

fn receipts_in(metadata: &BTreeMap<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    metadata.iter().filter(|(key, _)| key.starts_with(KEY_PREFIX)).map(|(key, value)| (key.as_str(), value))
}

/// Reads an input: a task, the answer of an agent, a list of tasks, the response of a server with one of these, or a receipt.
pub(super) fn read(text: &str) -> Result<Vec<InputPart>, InputError> {
    let text = text.trim();
    if !text.starts_with(['{', '[', '"']) && text.matches('.').count() == 2 {
        return Ok(vec![InputPart::Receipt(text.to_owned())]);
    }
    let json: &RawValue = serde_json::from_str(text).map_err(InputError::NotJson)?;
    let mut seen = Vec::new();
    collect(json, MAX_ENVELOPES, &mut seen)?;
    if seen.is_empty() { Err(InputError::Nothing) } else { Ok(seen) }
}

fn collect(json: &RawValue, envelopes: usize, seen: &mut Vec<InputPart>) -> Result<(), InputError> {
    let text = json.get();
    match text.as_bytes() {
        [b'"', ..] => seen.push(InputPart::Receipt(serde_json::from_str(text).map_err(InputError::NotJson)?)),
        [b'[', ..] if envelopes > 0 => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(InputError::NotJson)?;
            for item in items {
                collect(item, envelopes - 1, seen)?;
            }
        }
        [b'{', ..] => {
            let envelope: Envelope<'_> = serde_json::from_str(text).map_err(InputError::NotJson)?;
            if envelope.status.is_some() {
                seen.push(InputPart::Task(serde_json::from_str(text).map_err(InputError::NotJson)?));
            } else if envelope.message_id.is_some() {
                seen.push(InputPart::Answer(Box::new(answer(text).map_err(InputError::NotJson)?)));
            } else if envelopes > 0 {
                let Envelope { result, task, message, tasks, .. } = envelope;
                for inner in [result, task, message, tasks].into_iter().flatten() {
                    collect(inner, envelopes - 1, seen)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Reads a message. The digest is that of the message before it got its receipt.
fn answer(text: &str) -> Result<SeenAnswer, serde_json::Error> {
    let AnswerFields { message_id, context_id, metadata } = serde_json::from_str(text)?;
    let sha256 = value_of(text).ok().and_then(|mut value| {
        if let Value::Object(message) = &mut value
            && let Some(Value::Object(metadata)) = message.get_mut("metadata")
        {
            metadata.retain(|key, _| !key.starts_with(KEY_PREFIX));
            if metadata.is_empty() {
                message.remove("metadata");
            }
        }
        value_sha256(&value).ok()
    });
    Ok(SeenAnswer { id: message_id, context_id, sha256, receipts: metadata })
}
