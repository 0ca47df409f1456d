//! The decisions of the extension, as functions of their arguments alone. The names are those of the functions in the
//! article that the extension comes from; spec.md says which hook calls which.

use annex_sdk::members::Members;
use annex_sdk::{
    Declaration, Event, EventKind, Json, Location, MetadataEntry, Patch, Rejection, Scopes, Violation, json, pointer,
};
use serde::Deserialize;

use crate::parameters::{Parameters, StateSchema};

/// The functions of the host that the decisions need.
pub trait Host {
    /// All stored session-scope keys, as one JSON object.
    fn snapshot(&self) -> Json;
    /// The scopes that a delta may write.
    fn writable(&self) -> Scopes;
    /// The violations of a schema by an instance. The error is for a schema or an instance that cannot be used at all.
    fn violations(&self, state_schema: &str, instance: &str) -> Result<Vec<Violation>, String>;
}

/// True if an Agent Card (JSON) declares the extension. It is for the client, which looks before it sends state.
pub fn is_supported(parameters: &Parameters, card: &str) -> bool {
    serde_json::from_str::<AgentCard>(card)
        .is_ok_and(|card| card.capabilities.extensions.iter().any(|extension| extension.uri == parameters.uri))
}

/// The extension's entry on the Agent Card: the schema, so that a client knows what to send.
pub fn agent_extension(parameters: &Parameters) -> Declaration {
    // As the operator wrote it: the card shows the same digits and the same order of keys.
    let params = parameters.state_schema.as_ref().map(|schema| format!(r#"{{"state_schema":{}}}"#, schema.text));
    Declaration { description: Some(parameters.description.clone()), params }
}

/// The entry that holds the state: under the state key before the bare URI, on the message before the request.
pub fn has_state<'a>(parameters: &Parameters, metadata: &'a [MetadataEntry]) -> Option<&'a MetadataEntry> {
    // The first that is there counts. The published article uses the state key, examples of A2A the bare URI.
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

/// The state delta of a request, exactly as it was sent. `None` when nothing was sent and nothing is missing: the session
/// has what the schema wants from an earlier turn, or there is no schema.
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
    // The schema could judge one of the two values, and the session keep the other.
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

/// The violations of the schema by the sent state, laid over the stored state: a later turn may send only what changed.
/// Keys of other scopes are not the schema's business.
pub fn is_valid_schema(
    schema: &StateSchema,
    entry: &MetadataEntry,
    state: &Members<'_>,
    host: &impl Host,
) -> Vec<Violation> {
    let snapshot = host.snapshot();
    let stored = stored_members(schema, &snapshot, |name| state.get(name).is_none());
    // Where there is nothing to lay the sent state over, it is validated as it came.
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
        // The schema was compiled at load, so it is the instance, for instance one that is nested too deeply.
        Err(error) => vec![Violation::new(base, format!("cannot be validated: {error}"))],
    }
}

/// The states in which the agent has answered. A turn that failed, was canceled or was rejected has no answer.
const ANSWERED: [&str; 3] = ["TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"];

/// True if an event ends what it belongs to, so that the state on it is that after the turn. An agent that answers by a
/// status or in the history sends no other event than statuses: the last one carries the state, unless the answer has it
/// already.
pub fn carries_state(event: &Event, is_returned: bool) -> bool {
    match event.kind {
        EventKind::Message => true,
        EventKind::Artifact => event.last_chunk,
        EventKind::Status => !is_returned && event.task_state.as_deref().is_some_and(|state| ANSWERED.contains(&state)),
    }
}

/// The session's state for the metadata of an answer.
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

/// A scope other than the session's own.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scope {
    User,
    App,
    Temp,
}

impl Scope {
    /// `None` for a key of the session's own.
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

/// Violations in one answer; a client that has sent more keys than that learns of the rest when these are mended.
const MAX_VIOLATIONS: usize = 64;

/// One violation for each key whose scope the extension may not write.
fn refused_scopes(entry: &MetadataEntry, state: &Members<'_>, host: &impl Host) -> Vec<Violation> {
    let scoped: Vec<(&str, Scope)> = state.keys().filter_map(|key| Some((key, Scope::of(key)?))).collect();
    // Most requests name no scope, and need no call of the host for it.
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

/// True if the session has the state that a request without state needs, from earlier turns. Without a schema it needs
/// nothing.
fn is_stored(parameters: &Parameters, host: &impl Host) -> bool {
    let Some(schema) = &parameters.state_schema else { return true };
    let snapshot = host.snapshot();
    let stored = stored_members(schema, &snapshot, |_| true);
    let is_stored = |name: &String| stored.iter().any(|(stored, _)| stored == name);
    // Most sessions are new and have nothing, which is found without calling the host.
    schema.outline().required.iter().all(is_stored)
        && host.violations(&schema.text, &object(stored.iter().copied())).is_ok_and(|violations| violations.is_empty())
}

/// Says what is missing, and where to put it.
fn is_missing(parameters: &Parameters) -> Violation {
    let required = parameters.state_schema.as_ref().map_or(&[][..], |schema| &schema.outline().required);
    let mut message = "is required: session state as a JSON object".to_owned();
    if !required.is_empty() {
        message.push_str(" with ");
        message.push_str(&required.join(", "));
    }
    // The pointer names the first place that would have been looked at.
    Violation::new(pointer::metadata(Location::Message, &parameters.state_key), message)
}

/// The stored values of those names of the schema that are wanted. Of most sessions there is nothing: they are new.
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

/// A JSON object of members whose values are JSON text.
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
