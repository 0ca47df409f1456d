//! Reads the parts of messages and artifacts.

use serde_json::value::RawValue;

use crate::members::Members;

/// The members that lead from a StreamResponse to its parts.
const WAY: [&str; 5] = ["artifactUpdate", "artifact", "statusUpdate", "status", "message"];

/// The texts of all text parts, joined. `json` is a Message, an Artifact, a StreamResponse or an array of Part. Empty if
/// there is no text.
///
/// ```
/// let message = r#"{"role":"ROLE_USER","parts":[{"text":"Hello, "},{"data":1},{"text":"world!"}]}"#;
/// assert_eq!(annex_sdk::parts::text(message), "Hello, world!");
/// ```
#[must_use]
pub fn text(json: &str) -> String {
    let parts: Vec<&RawValue> = find(json).and_then(|parts| serde_json::from_str(parts).ok()).unwrap_or_default();
    parts.into_iter().filter_map(|part| text_of(&Members::of(part.get())?)).collect()
}

/// The text of a part; `None` if the part has other content.
pub(crate) fn text_of(part: &Members<'_>) -> Option<String> {
    serde_json::from_str(part.get("text")?).ok()
}

/// The array of parts.
fn find(json: &str) -> Option<&str> {
    if json.trim_start().starts_with('[') {
        return Some(json);
    }
    let members = Members::of(json)?;
    members.get("parts").or_else(|| find(WAY.into_iter().find_map(|member| members.get(member))?))
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn the_text_of_each_kind_of_event_is_found() {
        let parts = r#"[{"text":"a\u0062","metadata":{"text":"x"}},{"data":{"text":"x"}},{"text":"c"}]"#;
        for json in [
            parts.to_owned(),
            format!(r#"{{"messageId":"m","parts":{parts}}}"#),
            format!(r#"{{"message":{{"parts":{parts}}}}}"#),
            format!(r#"{{"artifactUpdate":{{"taskId":"t","artifact":{{"parts":{parts}}}}}}}"#),
            format!(r#"{{"statusUpdate":{{"status":{{"message":{{"parts":{parts}}}}}}}}}"#),
        ] {
            assert_eq!(text(&json), "abc", "{json}");
        }
    }

    #[test]
    fn nothing_else_has_a_text() {
        for json in ["", "null", "[]", "{}", r#"{"statusUpdate":{"status":{}}}"#, r#"{"parts":"x"}"#, "[1]"] {
            assert_eq!(text(json), "", "{json}");
        }
    }
}
