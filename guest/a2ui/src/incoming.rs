//! Checks the capabilities, the data model and the messages of a client, such as actions.

use annex_sdk::members::Members;
use annex_sdk::{Location, Violation, pointer};
use serde_json::{Map, Value, json};

use crate::catalogue::{Catalogues, Document, Offer, id_of};
use crate::parameters::Parameters;
use crate::parts;
use crate::schema::{Node, Steps, Walk};
use crate::version;

/// Maximum number of A2UI messages in one message of A2A.
const MAX_MESSAGES: usize = 64;
/// Maximum length of the catalogues that a client brings, in bytes of JSON.
const MAX_INLINE_BYTES: usize = 64 << 10;
/// Maximum number of violations in one answer.
const MAX_VIOLATIONS: usize = 64;

/// The result of reading a message.
#[derive(Debug, PartialEq)]
pub enum Reading {
    /// The message has the capabilities of another version of A2UI alone, and does not name the URI of this version.
    AnotherVersion,
    /// The message has an offer, which may be empty.
    Offer(Offer),
}

/// Checks a message as JSON. `is_requested` is true if the request names the URI.
///
/// # Errors
/// Everything that is wrong, with pointers into the request.
pub fn check(parameters: &Parameters, message: &str, is_requested: bool) -> Result<Reading, Vec<Violation>> {
    let message = Members::of(message).unwrap_or_default();
    let metadata = message.get("metadata").and_then(Members::of).unwrap_or_default();
    let (key, capabilities) = capabilities(parameters, &metadata);
    let is_requested = is_requested || names_uri(&message, &parameters.uri);
    if !is_requested && capabilities.as_ref().is_some_and(|value| own(parameters, value).is_none()) {
        return Ok(Reading::AnotherVersion);
    }
    let offer = read_offer(parameters, &pointer::metadata(Location::Message, key), capabilities.as_ref());
    let mut wrong = offer.as_ref().err().cloned().unwrap_or_default();
    wrong.extend(data_model(parameters, &metadata));
    wrong.extend(check_parts(parameters, message.get("parts")));
    wrong.truncate(MAX_VIOLATIONS);
    match offer {
        Ok(offer) if wrong.is_empty() => Ok(Reading::Offer(offer)),
        _ => Err(wrong),
    }
}

fn names_uri(message: &Members<'_>, uri: &str) -> bool {
    let named: Option<Vec<String>> = message.get("extensions").and_then(|named| serde_json::from_str(named).ok());
    named.is_some_and(|named| named.iter().any(|named| named == uri))
}

/// The metadata key with the capabilities of this version, or else the first key with capabilities.
fn capabilities(parameters: &Parameters, metadata: &Members<'_>) -> (&'static str, Option<Value>) {
    let read = |key: &'static str| Some((key, serde_json::from_str(metadata.get(key)?).ok()?));
    let all: Vec<(&str, Value)> = parameters.version.capabilities_keys().iter().copied().filter_map(read).collect();
    let best = all.iter().find(|(_, value)| own(parameters, value).is_some()).or(all.first());
    best.map_or((parameters.version.capabilities_key(), None), |(key, value)| (key, Some(value.clone())))
}

/// The capabilities for this version, with their member. Those of 0.8 may have no member.
fn own<'a>(parameters: &Parameters, capabilities: &'a Value) -> Option<(&'static str, &'a Value)> {
    let named = parameters.version.names().iter().find_map(|name| Some((*name, capabilities.get(*name)?)));
    let bare = || capabilities.get("supportedCatalogIds").map(|_| ("", capabilities));
    named.or_else(|| if parameters.version.is_named_in_messages() { None } else { bare() })
}

/// Reads capabilities, which stand at `at`.
///
/// # Errors
/// They are missing, wrong, or have no catalogue that the agent uses.
pub fn read_offer(parameters: &Parameters, at: &str, capabilities: Option<&Value>) -> Result<Offer, Vec<Violation>> {
    let Some(capabilities) = capabilities else {
        let reason = format!("lacks {}, which each message has", parameters.version.capabilities_key());
        let missing = vec![Violation::new("/message/metadata", reason)];
        return if parameters.require_capabilities { Err(missing) } else { Ok(Offer::default()) };
    };
    let Some((name, own)) = own(parameters, capabilities) else {
        let names = parameters.version.names().join(", ");
        return Err(vec![Violation::new(at, format!("has none of the versions {names}"))]);
    };
    let at = if name.is_empty() { at.to_owned() } else { pointer::child(at, name) };
    let wrong = walk(parameters, &metadata_schemas(), "/capabilities", own, &at);
    if wrong.is_empty() { offered(parameters, own, &at).map_err(|violation| vec![violation]) } else { Err(wrong) }
}

/// The offer of capabilities that match their schema.
fn offered(parameters: &Parameters, capabilities: &Value, at: &str) -> Result<Offer, Violation> {
    let list = |member: &str| capabilities.get(member).and_then(Value::as_array).cloned().unwrap_or_default();
    let ids: Vec<String> = list("supportedCatalogIds").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let inline = list("inlineCatalogs");
    let refused = |member: &str, reason: String| Err(Violation::new(format!("{at}/{member}"), reason));
    if !inline.is_empty() && !parameters.accepts_inline_catalogs {
        return refused("inlineCatalogs", "this agent takes no catalogues of clients".to_owned());
    }
    if inline.iter().map(|document| document.to_string().len()).sum::<usize>() > MAX_INLINE_BYTES {
        return refused("inlineCatalogs", format!("have more than {MAX_INLINE_BYTES} bytes together"));
    }
    if let Some(id) = inline.iter().filter_map(id_of).find(|id| ids.iter().any(|offered| offered == id)) {
        return refused("inlineCatalogs", format!("{id} is among the supported catalogues already"));
    }
    let version = parameters.version;
    let is_used = |id: &String| {
        let basic = version.is_basic(id) && parameters.supported_catalogs.iter().any(|used| version.is_basic(used));
        basic || parameters.supported_catalogs.contains(id)
    };
    if inline.is_empty() && !ids.iter().any(is_used) {
        let used = parameters.supported_catalogs.join(", ");
        return refused("supportedCatalogIds", format!("has no catalogue that this agent uses: {used}"));
    }
    Ok(Offer { ids: Some(ids), inline })
}

fn data_model(parameters: &Parameters, metadata: &Members<'_>) -> Vec<Violation> {
    let Some(key) = parameters.version.data_model_key() else { return Vec::new() };
    let Some(value) = metadata.get(key).and_then(|value| serde_json::from_str(value).ok()) else { return Vec::new() };
    let at = pointer::metadata(Location::Message, key);
    let wrong = walk(parameters, &metadata_schemas(), "/dataModel", &value, &at);
    let names = parameters.version.names();
    if !wrong.is_empty() || value.get("version").and_then(Value::as_str).is_some_and(|found| names.contains(&found)) {
        return wrong;
    }
    vec![Violation::new(format!("{at}/version"), format!("the version is {}", names.join(" or ")))]
}

/// Checks the A2UI parts of a message. `array` is the JSON array of its parts.
pub fn check_parts(parameters: &Parameters, array: Option<&str>) -> Vec<Violation> {
    let array = parts::parts_of(array);
    let parts = parts::ui_parts(&array, parameters.version);
    if parts.is_empty() {
        return Vec::new();
    }
    let schemas = match version::schemas(parameters.version) {
        Ok(schemas) => schemas,
        Err(error) => return vec![Violation::new("/message/parts", error)],
    };
    let none = Map::new();
    let kinds = schemas.get("client").and_then(Value::as_object).unwrap_or(&none);
    let mut wrong = Vec::new();
    let mut count = 0;
    for part in &parts {
        let at = format!("/message/parts/{}", part.index);
        let messages = match parts::messages(part.data.as_ref()) {
            Ok(messages) => messages,
            Err(violation) => {
                wrong.push(Violation::new(at, violation.message));
                continue;
            }
        };
        count += messages.len();
        if count > MAX_MESSAGES {
            return vec![Violation::new("/message/parts", format!("have more than {MAX_MESSAGES} A2UI messages"))];
        }
        for (message, below) in messages {
            let at = format!("{at}{below}");
            match parts::kind_of(parameters.version, kinds, message, &at) {
                Ok((kind, body)) => {
                    let schema = pointer::child("/client", kind);
                    wrong.extend(walk(parameters, schemas, &schema, body, &pointer::child(&at, kind)));
                }
                Err(violation) => wrong.push(violation),
            }
        }
    }
    wrong
}

/// The schemas of the metadata, which all versions share. Most messages need no others.
fn metadata_schemas() -> Value {
    let text = json!({"type": "string"});
    let inline = json!({
        "type": "object",
        "properties": {"catalogId": text, "components": {"type": "object"}},
        "required": ["catalogId"],
    });
    json!({
        "common": {},
        "capabilities": {
            "type": "object",
            "properties": {
                "supportedCatalogIds": {"type": "array", "items": text},
                "inlineCatalogs": {"type": "array", "items": inline},
            },
            "required": ["supportedCatalogIds"],
        },
        "dataModel": {
            "type": "object",
            "properties": {"version": text, "surfaces": {"type": "object", "additionalProperties": {"type": "object"}}},
            "required": ["version", "surfaces"],
            "additionalProperties": false,
        },
    })
}

/// Checks by a schema of a document. No surface is known here, so functions are not looked up.
fn walk(parameters: &Parameters, schemas: &Value, schema: &str, value: &Value, at: &str) -> Vec<Violation> {
    static NONE: Value = Value::Null;
    let offer = Offer::default();
    let catalogues = Catalogues::new(parameters, &offer, &NONE);
    let steps = Steps::new();
    let (Some(schema), Some(common)) = (schemas.pointer(schema), schemas.get("common")) else { return Vec::new() };
    Walk::new(common, &catalogues, Document::Opaque, at, &steps).violations(Node { root: schemas, schema }, value)
}
