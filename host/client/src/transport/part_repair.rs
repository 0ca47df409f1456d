//! Repairs parts that do not have the form of the protocol version in use. Converts parts in the form of another
//! version, and drops empty parts.

use annex_protocol::v0_3::{self, rest};
use annex_protocol::{Json, JsonObject, Part};

/// The names of the JSON fields that lead to messages and artifacts.
const PATH: [&str; 11] = [
    "task",
    "tasks",
    "message",
    "status",
    "history",
    "artifact",
    "artifacts",
    "statusUpdate",
    "artifactUpdate",
    "status_update",
    "artifact_update",
];
/// The maximum number of nested objects and arrays around parts. The deepest parts are in a message in the history of a
/// task in a list.
const MAX_LEVELS: usize = 6;
/// The JSON fields that hold a part's content, except `file`.
const CONTENT: [&str; 4] = ["text", "raw", "url", "data"];
/// The JSON fields that hold the content of a file in 0.3.
const FILE_CONTENT: [&str; 2] = ["bytes", "uri"];

/// Converts a part to the form of one version; the part may have the form of 1.0 or of 0.3. `None` if the value is not
/// a part.
pub(super) type WritePart = fn(&Json) -> Option<Json>;

/// Repairs the parts of an answer that could not be read. `None` if nothing needed repair.
pub(super) fn mended(answer: &Json, write: WritePart) -> Option<Json> {
    mended_within(answer, write, MAX_LEVELS)
}

/// Writes a part of 1.0 or of 0.3 in the form of 1.0. `None` if the value is not a part.
pub(super) fn of_1_0(part: &Json) -> Option<Json> {
    if part.to::<Part>().is_ok() {
        return Some(part.clone());
    }
    let part = v0_3::answer::part(part).ok()?;
    Json::from_peer(&part).ok()
}

/// Writes a part of 1.0 or of 0.3 in the form of 0.3. `None` if the value is not a part.
pub(super) fn of_0_3(part: &Json) -> Option<Json> {
    if v0_3::answer::part(part).is_ok() {
        return Some(part.clone());
    }
    let part: Part = part.to().ok()?;
    Json::from_peer(&v0_3::Part(&part)).ok()
}

/// Writes a part of 1.0 or of 0.3 in the form of HTTP+JSON of 0.3. `None` if the value is not a part.
pub(super) fn of_0_3_over_http_json(part: &Json) -> Option<Json> {
    if rest::part(part).is_ok() {
        return Some(part.clone());
    }
    let part = part.to::<Part>().or_else(|_| v0_3::answer::part(part)).ok()?;
    Json::from_peer(&rest::Part(&part)).ok()
}

fn mended_within(json: &Json, write: WritePart, levels: usize) -> Option<Json> {
    let levels = levels.checked_sub(1)?;
    if json.get().starts_with('[') {
        let mut elements: Vec<Json> = json.to().ok()?;
        let mut is_changed = false;
        for element in &mut elements {
            if let Some(mended) = mended_within(element, write, levels) {
                *element = mended;
                is_changed = true;
            }
        }
        return if is_changed { Json::from_peer(&elements).ok() } else { None };
    }
    let mut object: JsonObject = json.to().ok()?;
    let mend = |(key, value): (&str, &Json)| {
        let value = match key {
            // Messages have their parts in `content` over HTTP+JSON of 0.3.
            "parts" | "content" => mended_parts(value, write)?,
            _ if PATH.contains(&key) => mended_within(value, write, levels)?,
            _ => return None,
        };
        Some((key.to_owned(), value))
    };
    let changes: Vec<(String, Json)> = object.iter().filter_map(mend).collect();
    if changes.is_empty() {
        return None;
    }
    object.extend(changes);
    Json::from_peer(&object).ok()
}

fn mended_parts(json: &Json, write: WritePart) -> Option<Json> {
    let parts: Vec<Json> = json.to().ok()?;
    let mend = |part: &Json| match write(part) {
        None if is_empty(part) => None,
        written => Some(written.unwrap_or_else(|| part.clone())),
    };
    let mended: Vec<Json> = parts.iter().filter_map(mend).collect();
    if mended == parts {
        return None;
    }
    tracing::debug!("parts that are empty or of another version of A2A were dropped or converted");
    Json::from_peer(&mended).ok()
}

/// True for a part without content, such as a file with only a name.
fn is_empty(part: &Json) -> bool {
    let is_empty_file =
        |file: &Json| file.is_null() || file.to::<JsonObject>().is_ok_and(|file| has_none(&file, &FILE_CONTENT));
    let has_no_file = |part: &JsonObject| part.get("file").is_none_or(is_empty_file);
    part.is_null() || part.to::<JsonObject>().is_ok_and(|part| has_none(&part, &CONTENT) && has_no_file(&part))
}

fn has_none(object: &JsonObject, fields: &[&str]) -> bool {
    fields.iter().all(|name| object.get(name).is_none_or(Json::is_null))
}

#[cfg(test)]
mod tests {
    use annex_protocol::Json;

    use super::{WritePart, mended, of_0_3, of_1_0};

    fn check(write: WritePart, sent: &str, expected: Option<&str>) {
        let sent = Json::parse(sent.to_owned()).unwrap();
        assert_eq!(mended(&sent, write).as_ref().map(Json::get), expected, "{sent:?}");
    }

    #[test]
    fn empty_parts_are_left_out_wherever_parts_stand() {
        for write in [of_1_0 as WritePart, of_0_3] {
            for (before, behind) in [
                (r#"{"message":"#, "}"),
                (r#"{"task":{"history":["#, "]}}"),
                (r#"{"status":{"message":"#, "}}"),
                (r#"{"artifactUpdate":{"artifact":"#, "}}"),
                (r#"{"tasks":[{"artifacts":["#, "]}]}"),
            ] {
                let empty =
                    r#"{},{"kind":"file","file":{}},{"file":{"bytes":null,"name":"n"}},{"kind":"file","file":null}"#;
                let sent = format!(r#"{before}{{"parts":[{empty},{{"text":"a"}},null,{{"text":null}}]}}{behind}"#);
                let expected = format!(r#"{before}{{"parts":[{{"text":"a"}}]}}{behind}"#);
                check(write, &sent, Some(&expected));
            }
        }
    }

    #[test]
    fn a_part_of_the_other_version_is_translated() {
        let file = r#"{"parts":[{"kind":"file","file":{"uri":"http://a.example/","name":"n"}}]}"#;
        check(of_1_0, file, Some(r#"{"parts":[{"url":"http://a.example/","filename":"n"}]}"#));
        check(of_0_3, file, None);
        let raw = r#"{"parts":[{"raw":"AAAA"}]}"#;
        check(of_0_3, raw, Some(r#"{"parts":[{"kind":"file","file":{"bytes":"AAAA"}}]}"#));
        check(of_1_0, raw, None);
    }

    #[test]
    fn what_is_no_part_stays_as_it_is() {
        for sent in [
            r#"{"parts":[{"file":7}]}"#,
            r#"{"parts":[{"text":7}]}"#,
            r#"{"parts":{}}"#,
            r#"{"metadata":{"parts":[{}]}}"#,
            "[]",
            "7",
        ] {
            check(of_1_0, sent, None);
        }
    }
}
