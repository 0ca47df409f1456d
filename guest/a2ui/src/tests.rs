mod answers;
mod bounds;
mod clients;
mod libraries;
mod messages;

use annex_sdk::testing::{self, Host};
use annex_sdk::{Content, Place, Rejection, Verdict, Violation};
use serde_json::{Value, json};

use crate::A2ui;

pub(crate) const BASIC: &str = "https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json";

/// Stands for the host's JSON Schema, of which the component uses patterns and formats.
fn validate(schema: &str, instance: &str) -> Result<Vec<Violation>, String> {
    let schema: Value = serde_json::from_str(schema).map_err(|error| error.to_string())?;
    let text: String = serde_json::from_str(instance).map_err(|error| error.to_string())?;
    let is_colour = |text: &str| text.strip_prefix('#').is_some_and(|digits| digits.len() == 6);
    let fits = match (schema["pattern"].as_str(), schema["format"].as_str()) {
        (Some("^#[0-9a-fA-F]{6}$"), _) => is_colour(&text),
        (Some("^@([^@]|$)"), _) => text.starts_with('@'),
        (Some(r"^[\p{XID_Start}_][\p{XID_Continue}]*$"), _) => !text.contains('-'),
        (_, Some("date-time")) => text.ends_with('Z'),
        (_, Some("uri")) => text.contains(':'),
        other => return Err(format!("{other:?} is not known to the tests")),
    };
    Ok(if fits { Vec::new() } else { vec![Violation::new("", "does not match")] })
}

/// A host with these parameters.
pub(crate) fn host(parameters: &Value) -> Host {
    Host::new().parameters(parameters.to_string()).schema(validate)
}

/// A message of a client.
pub(crate) fn message(parts: &Value, metadata: &Value) -> String {
    json!({"messageId": "m", "role": "ROLE_USER", "parts": parts, "metadata": metadata}).to_string()
}

/// The capabilities of a client that has the basic catalogue.
pub(crate) fn capabilities(version: &str) -> Value {
    match version {
        "0.8" => json!({"a2uiClientCapabilities": {"supportedCatalogIds": [basic(version)]}}),
        "1.0" => json!({"a2uiRendererCapabilities": {"v1.0": {"supportedCatalogIds": [basic(version)]}}}),
        _ => json!({"a2uiClientCapabilities": {"v0.9": {"supportedCatalogIds": [basic(version)]}}}),
    }
}

pub(crate) fn basic(version: &str) -> &'static str {
    match version {
        "0.8" => "https://a2ui.org/specification/v0_8/standard_catalog_definition.json",
        "1.0" => "https://a2ui.org/specification/v1_0/catalogs/basic/catalog.json",
        _ => BASIC,
    }
}

/// The pointers of the violations of a message.
pub(crate) fn pointers(host: &Host, message: &str) -> Vec<String> {
    match host.check::<A2ui>(testing::request(), message) {
        Ok(rewrites) => {
            assert_eq!(rewrites, []);
            Vec::new()
        }
        Err(Rejection::Violations(violations)) => violations.into_iter().map(|violation| violation.pointer).collect(),
        Err(Rejection::Error(error)) => panic!("{error:?}"),
    }
}

/// A part with messages of A2UI.
pub(crate) fn part(messages: &Value) -> Value {
    json!({"data": messages, "metadata": {"mimeType": "application/a2ui+json"}})
}

/// The verdict on an artifact with these parts.
pub(crate) fn revise(host: &Host, parts: &Value) -> Verdict {
    host.revise::<A2ui>(Content { parts: parts.to_string(), ..testing::content() }).unwrap()
}

/// The verdict on a status with these parts.
pub(crate) fn revise_status(host: &Host, state: &str, parts: &Value) -> Verdict {
    let place = Place::Status(state.to_owned());
    host.revise::<A2ui>(Content { parts: parts.to_string(), place, ..testing::content() }).unwrap()
}

/// The reason of a refusal.
pub(crate) fn refusal(verdict: Verdict) -> String {
    let Verdict::Refuse(reason) = verdict else { panic!("{verdict:?}") };
    reason
}

/// A surface with one component that is `root`.
pub(crate) fn surface(surface: &str, component: &Value) -> Value {
    let mut root = component.clone();
    root["id"] = json!("root");
    json!([
        {"version": "v0.9.1", "createSurface": {"surfaceId": surface, "catalogId": BASIC}},
        {"version": "v0.9.1", "updateComponents": {"surfaceId": surface, "components": [root]}},
    ])
}
