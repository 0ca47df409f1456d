//! Which parts are A2UI, and the messages in them.

use annex_sdk::Violation;
use annex_sdk::members::Members;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::version::Version;

/// A part with A2UI.
#[derive(Debug)]
pub struct UiPart<'a> {
    /// The index of the part.
    pub index: usize,
    /// The members of the part.
    pub members: Members<'a>,
    /// Its data.
    pub data: Option<Value>,
}

/// The parts of a JSON array that are A2UI by their media type.
pub fn ui_parts<'a>(parts: &[&'a RawValue], version: Version) -> Vec<UiPart<'a>> {
    let read = |(index, part): (usize, &&'a RawValue)| {
        let members = Members::of(part.get())?;
        if !is_ui(&members, version) {
            return None;
        }
        let data = members.get("data").and_then(|data| serde_json::from_str(data).ok());
        Some(UiPart { index, members, data })
    };
    parts.iter().enumerate().filter_map(read).collect()
}

/// The parts of a message or of the content of an answer.
pub fn parts_of(array: Option<&str>) -> Vec<&RawValue> {
    array.and_then(|parts| serde_json::from_str(parts).ok()).unwrap_or_default()
}

fn is_ui(part: &Members<'_>, version: Version) -> bool {
    let metadata = part.get("metadata").and_then(Members::of).unwrap_or_default();
    // A2A 0.3 has no `mediaType`, so A2UI names the type in the metadata.
    let named = [part.get("mediaType"), metadata.get("mimeType")];
    named.into_iter().flatten().any(|name| {
        let name: String = serde_json::from_str(name).unwrap_or_default();
        let essence = name.split(';').next().unwrap_or_default().trim();
        version.media_types().iter().any(|media_type| media_type.eq_ignore_ascii_case(essence))
    })
}

/// The messages in the data of a part, each with its pointer below the part. Libraries write a single message in place of
/// a list, so both are taken.
///
/// # Errors
/// The data is neither.
pub fn messages(data: Option<&Value>) -> Result<Vec<(&Value, String)>, Violation> {
    match data {
        Some(Value::Array(list)) => {
            Ok(list.iter().enumerate().map(|(index, message)| (message, format!("/data/{index}"))).collect())
        }
        Some(message @ Value::Object(_)) => Ok(vec![(message, "/data".to_owned())]),
        _ => Err(Violation::new("", "an A2UI part has data: a list of messages")),
    }
}

/// The kind and the body of a message. `kinds` has the schema of each kind.
///
/// # Errors
/// The value is no message of the version.
pub fn kind_of<'a>(
    version: Version,
    kinds: &Map<String, Value>,
    message: &'a Value,
    at: &str,
) -> Result<(&'a str, &'a Value), Violation> {
    let members = message.as_object().ok_or_else(|| Violation::new(at, "an A2UI message is an object"))?;
    let mut allowed = members.len();
    if version.is_named_in_messages() {
        allowed = allowed.saturating_sub(1);
        let versions = version.names();
        match members.get("version") {
            Some(Value::String(named)) if versions.contains(&named.as_str()) => {}
            found => {
                let at = if found.is_some() { format!("{at}/version") } else { at.to_owned() };
                return Err(Violation::new(at, format!("the version is {}", versions.join(" or "))));
            }
        }
    }
    let found = members.iter().find(|(kind, _)| kinds.contains_key(*kind)).filter(|_| allowed == 1);
    found.map(|(kind, body)| (kind.as_str(), body)).ok_or_else(|| {
        let names: Vec<&str> = kinds.keys().map(String::as_str).collect();
        Violation::new(at, format!("a message has exactly one of {}", names.join(", ")))
    })
}
