//! The decisions of the extension, as functions of their arguments only. The names of the functions come from the
//! article that introduced the extension. `spec.md` lists the hook that calls each function.

use annex_sdk::members::Members;
use annex_sdk::{
    Declaration, Event, EventKind, Json, Location, MetadataEntry, Patch, Rejection, Scopes, Violation, json, pointer,
};
use serde::Deserialize;

use crate::parameters::{Parameters, StateSchema};

/// The host's functions that the decisions need.
pub trait Host {
    /// All stored session-scope keys, as one JSON object.
    fn snapshot(&self) -> Json;
    /// The scopes that a delta may change.
    fn writable(&self) -> Scopes;
    /// The violations of a schema by an instance. Fails if the schema is unusable or the instance cannot be validated.
    fn violations(&self, state_schema: &str, instance: &str) -> Result<Vec<Violation>, String>;
}

/// True if an Agent Card (JSON) declares the extension. A client checks this before it sends state.
pub fn is_supported(parameters: &Parameters, card: &str) -> bool {
    serde_json::from_str::<AgentCard>(card)
        .is_ok_and(|card| card.capabilities.extensions.iter().any(|extension| extension.uri == parameters.uri))
}

/// The extension's entry on the Agent Card, with the schema of the state for clients.
pub fn agent_extension(parameters: &Parameters) -> Declaration {
    // The operator's text unchanged, so that the card shows the same digits and order of keys.
    let params = parameters.state_schema.as_ref().map(|schema| format!(r#"{{"state_schema":{}}}"#, schema.text));
    Declaration { description: Some(parameters.description.clone()), params }
}

/// Finds the metadata entry with the state, in this order: under the state key in the message, under the state key in
/// the request, under the bare URI in the message, under the bare URI in the request.
pub fn has_state<'a>(parameters: &Parameters, metadata: &'a [MetadataEntry]) -> Option<&'a MetadataEntry> {
    // The first entry counts. The published article uses the state key, examples of A2A the bare URI.
    let places = [
        (Location::Message, &parameters.state_key),
        (Location::Request, &parameters.state_key),
        (Location::Message, &parameters.uri),
        (Location::Request, &parameters.uri),
    ];
    places
        .iter()
        .find_map(|(location, key)| metadata.iter().find(|entry| entry.location == *location && entry.key == **key))
}

/// The state delta of a request, exactly as received. `None` if the request has no state and need not have any: there
/// is no schema, or the session has the required state from an earlier turn.
pub fn get_state(
    parameters: &Parameters,
    metadata: &[MetadataEntry],
    host: &impl Host,
) -> Result<Option<Json>, Rejection> {
    let Some(entry) = has_state(parameters, metadata) else {
        return if is_stored(parameters, host) { Ok(None) } else { Err(is_missing(parameters).into()) };
    };
    let Some(state) = Members::of(&entry.value) else {
        return Err(Violation::new(entry.pointer(), "must be a JSON object").into());
    };
    // The schema could be applied to one of the two values, and the session could store the other.
    if let Some(key) = state.repeated() {
        return Err(Violation::new(pointer::child(&entry.pointer(), key), "must not be sent twice").into());
    }
    let mut violations = refused_scopes(entry, &state, host);
    if let Some(schema) = &parameters.state_schema {
        violations.extend(is_valid_schema(schema, entry, &state, host));
    }
    // The text as it was sent, so that numbers and the order of keys survive.
    if violations.is_empty() { Ok(Some(entry.value.clone())) } else { Err(Rejection::Violations(violations)) }
}

/// Validates the received state together with the stored state, and returns the violations. Because of the stored
/// state, a later turn may send only the values that it changes. Keys of scopes other than `session` are not validated.
pub fn is_valid_schema(
    schema: &StateSchema,
    entry: &MetadataEntry,
    state: &Members<'_>,
    host: &impl Host,
) -> Vec<Violation> {
    let snapshot = host.snapshot();
    let stored = stored_members(schema, &snapshot, |name| state.get(name).is_none());
    // Without stored values to merge, the received text is validated unchanged.
    let untouched = stored.is_empty() && state.keys().all(|key| Scope::of(key).is_none());
    let violations = if untouched {
        host.violations(&schema.text, &entry.value)
    } else {
        let sent = state.iter().filter(|(key, _)| Scope::of(key).is_none());
        host.violations(&schema.text, &object(stored.into_iter().chain(sent)))
    };
    let base = entry.pointer();
    match violations {
        Ok(violations) => violations
            .into_iter()
            .map(|violation| Violation::new(format!("{base}{}", violation.pointer), violation.message))
            .collect(),
        // The schema was compiled at load, so the instance is at fault, for example because it nests too deeply.
        Err(error) => vec![Violation::new(base, format!("cannot be validated: {error}"))],
    }
}

/// The states in which the agent has answered. A failed, canceled or rejected turn has no answer.
const ANSWERED: [&str; 3] = ["TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"];

/// True if the event should carry the state after the turn: a message, the last chunk of an artifact, or a status of an
/// answered task. A status carries the state only if no earlier event did, because some agents answer in statuses or
/// the history only.
pub fn carries_state(event: &Event, is_returned: bool) -> bool {
    match event.kind {
        EventKind::Message => true,
        EventKind::Artifact => event.last_chunk,
        EventKind::Status => !is_returned && event.task_state.as_deref().is_some_and(|state| ANSWERED.contains(&state)),
    }
}

/// The patch that adds the session's state to an answer.
pub fn add_state(parameters: &Parameters, snapshot: Json) -> Patch {
    Patch::entry(parameters.state_key.clone(), snapshot)
}

#[derive(Deserialize)]
struct AgentCard {
    #[serde(default)]
    capabilities: Capabilities,
}

#[derive(Default, Deserialize)]
struct Capabilities {
    #[serde(default)]
    extensions: Vec<AgentExtension>,
}

#[derive(Deserialize)]
struct AgentExtension {
    uri: String,
}

/// A state scope other than `session`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scope {
    User,
    App,
    Temp,
}

impl Scope {
    /// The scope of a key; `None` for the scope `session`.
    fn of(key: &str) -> Option<Self> {
        match key.split_once(':')?.0 {
            "user" => Some(Self::User),
            "app" => Some(Self::App),
            "temp" => Some(Self::Temp),
            _ => None,
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::User => "user:",
            Self::App => "app:",
            Self::Temp => "temp:",
        }
    }

    fn flag(self) -> Scopes {
        match self {
            Self::User => Scopes::USER,
            Self::App => Scopes::APP,
            Self::Temp => Scopes::TEMP,
        }
    }
}

/// The maximum number of violations in one answer. The client sees further violations when it sends the corrected
/// message.
const MAX_VIOLATIONS: usize = 64;

/// A violation for each key whose scope the extension may not change.
fn refused_scopes(entry: &MetadataEntry, state: &Members<'_>, host: &impl Host) -> Vec<Violation> {
    let scoped: Vec<(&str, Scope)> = state.keys().filter_map(|key| Some((key, Scope::of(key)?))).collect();
    // Most requests use no scope, and need no call of the host.
    if scoped.is_empty() {
        return Vec::new();
    }
    let base = entry.pointer();
    let writable = host.writable();
    scoped
        .into_iter()
        .filter(|(_, scope)| !writable.contains(scope.flag()))
        .map(|(key, scope)| {
            let message = format!("must not be sent: the scope `{}` is not granted to this extension", scope.prefix());
            Violation::new(pointer::child(&base, key), message)
        })
        .take(MAX_VIOLATIONS)
        .collect()
}

/// True if the session has the required state from earlier turns. Without a schema no state is required.
fn is_stored(parameters: &Parameters, host: &impl Host) -> bool {
    let Some(schema) = &parameters.state_schema else { return true };
    let snapshot = host.snapshot();
    let stored = stored_members(schema, &snapshot, |_| true);
    let is_stored = |name: &String| stored.iter().any(|(stored, _)| stored == name);
    // Most sessions are new and empty, which is found without calling the host.
    schema.outline().required.iter().all(is_stored)
        && host.violations(&schema.text, &object(stored.iter().copied())).is_ok_and(|violations| violations.is_empty())
}

/// The violation for missing state, with the key for the state.
fn is_missing(parameters: &Parameters) -> Violation {
    let required = parameters.state_schema.as_ref().map_or(&[][..], |schema| &schema.outline().required);
    let mut message = "is required: session state as a JSON object".to_owned();
    if !required.is_empty() {
        message.push_str(" with ");
        message.push_str(&required.join(", "));
    }
    // The pointer names the preferred place for the state.
    Violation::new(pointer::metadata(Location::Message, &parameters.state_key), message)
}

/// The stored values whose names are in the schema and for which `is_wanted` returns true. New sessions, the most
/// common case, have no stored values.
fn stored_members<'a>(
    schema: &'a StateSchema,
    snapshot: &'a str,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<(&'a str, &'a str)> {
    let state = Members::of(snapshot).unwrap_or_default();
    if state.is_empty() {
        return Vec::new();
    }
    let wanted = schema.outline().names.iter().filter(|name| is_wanted(name));
    wanted.filter_map(|name| Some((name.as_str(), state.get(name)?))).collect()
}

/// A JSON object from names and the JSON text of values.
fn object<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> Json {
    let mut text = String::from("{");
    for (key, value) in members {
        if text.len() > 1 {
            text.push(',');
        }
        // Keys were decoded and are escaped again. Values are JSON text already.
        text.push_str(&json::string(key));
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests;
