//! `auth/secrets`: the secrets that the agent demands, and those that clients send.

use std::collections::BTreeMap;

use annex_sdk::{Interruption, Violation, Waiting, pointer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::parameters::{Kind, Parameters};

/// A secret that the agent needs, for the person who has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

/// Checks the keys of the demands. Each key is a part of the name of a state key, which stands in instructions.
///
/// # Errors
/// A key cannot stand in an instruction.
pub fn check(demands: &BTreeMap<String, Demand>) -> Result<(), String> {
    let is_name = |key: &str| {
        let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_plain && !key.is_empty()
    };
    match demands.keys().find(|key| !is_name(key)) {
        Some(key) => Err(format!("the key {key:?} has characters other than letters, digits and `_`")),
        None => Ok(()),
    }
}

/// The demands as the card and a waiting task have them.
#[must_use]
pub fn params(parameters: &Parameters) -> Value {
    json!({"secret_demands": parameters.secret_demands})
}

/// The reason why the task waits: a message without all secrets.
#[must_use]
pub fn interruption(parameters: &Parameters) -> Interruption {
    let names: Vec<&str> = parameters.secret_demands.values().map(|demand| demand.name.as_str()).collect();
    let text = format!("The agent needs a secret: {}.", names.join(", "));
    let metadata = vec![(Kind::Secrets.uri().to_owned(), params(parameters).to_string())];
    Interruption { waiting: Waiting::Authorization, text, metadata }
}

/// The change of session state: each secret under a key that lasts as long as the turn and is not stored. `pointer` leads to
/// the client's metadata. No error repeats a secret.
///
/// # Errors
/// The client sends something else than secrets that the agent demands.
pub fn delta(parameters: &Parameters, metadata: &str, pointer: &str) -> Result<Map<String, Value>, Vec<Violation>> {
    let wrong = |at: &str, message: &str| Err(vec![Violation::new(at, message)]);
    let Ok(Value::Object(members)) = serde_json::from_str::<Value>(metadata) else {
        return wrong(pointer, "is not an object");
    };
    let at = pointer::child(pointer, "secret_fulfillments");
    let sent = match members.get("secret_fulfillments") {
        None => return Ok(Map::new()),
        Some(Value::Object(sent)) => sent,
        Some(_) => return wrong(&at, "is not an object"),
    };
    let mut delta = Map::new();
    for (key, fulfillment) in sent {
        let at = pointer::child(&at, key);
        if !parameters.secret_demands.contains_key(key) {
            return wrong(&at, "is a secret that the agent does not need");
        }
        match fulfillment.get("secret").and_then(Value::as_str) {
            Some(secret) if !secret.is_empty() => delta.insert(format!("temp:secret_{key}"), secret.into()),
            _ => return wrong(&pointer::child(&at, "secret"), "is no text, or is empty"),
        };
    }
    Ok(delta)
}
