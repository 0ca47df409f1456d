//! Finds violations of the profile in the parts of a message.

use annex_sdk::members::Members;
use annex_sdk::{Violation, schema};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::parameters::{Parameters, Rule};

/// The maximum number of violations in one answer. The client sees further violations when it sends the corrected
/// message.
const MAX_VIOLATIONS: usize = 64;

/// The violations of the profile by a message (JSON), with pointers into the request.
pub fn check(parameters: &Parameters, message: &str) -> Vec<Violation> {
    let parts = parts(message);
    let mut violations = Vec::new();
    let mut has_data = false;
    for (number, part) in parts.iter().enumerate() {
        let part = Members::of(part.get()).unwrap_or_default();
        has_data |= part.get("data").is_some();
        violations.extend(check_part(parameters, &format!("/message/parts/{number}"), &part));
    }
    if parameters.require_data && !has_data {
        violations.push(Violation::new("/message/parts", "must have at least one data part"));
    }
    violations.truncate(MAX_VIOLATIONS);
    violations
}

/// The parts of a message. The host has checked the form of the message.
fn parts(message: &str) -> Vec<&RawValue> {
    let message = Members::of(message).unwrap_or_default();
    message.get("parts").and_then(|parts| serde_json::from_str(parts).ok()).unwrap_or_default()
}

fn check_part(parameters: &Parameters, pointer: &str, part: &Members<'_>) -> Vec<Violation> {
    let refusal = |kind| vec![Violation::new(pointer, format!("must be a data part: {kind} is not taken here"))];
    match part.get("data") {
        Some(data) => check_data(parameters, pointer, part, data),
        None if part.get("text").is_some() => {
            if parameters.allow_text {
                Vec::new()
            } else {
                refusal("text")
            }
        }
        None => {
            if parameters.allow_files {
                Vec::new()
            } else {
                refusal("a file")
            }
        }
    }
}

fn check_data(parameters: &Parameters, pointer: &str, part: &Members<'_>, data: &str) -> Vec<Violation> {
    // The first rule for the part decides, even if a later rule would accept the data of the part.
    let Some(rule) = parameters.schemas.iter().find(|rule| is_for(rule, part)) else {
        return vec![Violation::new(pointer, is_for_none(parameters))];
    };
    let base = format!("{pointer}/data");
    match schema::validate(&rule.schema, data) {
        Ok(violations) => violations
            .into_iter()
            // The host's pointers begin at the data, those of the answer at the request.
            .map(|violation| Violation::new(format!("{base}{}", violation.pointer), violation.message))
            .collect(),
        // The schema was compiled at load, so the data is at fault, for example because it nests too deeply.
        Err(error) => vec![Violation::new(base, format!("cannot be validated: {error}"))],
    }
}

/// True if a part meets all conditions of a rule.
fn is_for(rule: &Rule, part: &Members<'_>) -> bool {
    // Compared as values: `application\/x` in JSON is `application/x`.
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    let has_type = rule.media_type.as_ref().is_none_or(|wanted| {
        part.get("mediaType").and_then(value).is_some_and(|media_type| media_type == wanted.as_str())
    });
    let metadata = part.get("metadata").and_then(Members::of).unwrap_or_default();
    has_type && rule.metadata.iter().all(|(key, wanted)| metadata.get(key).and_then(value).as_ref() == Some(wanted))
}

/// The message of the violation for data that matches no rule. It lists the conditions of all rules.
fn is_for_none(parameters: &Parameters) -> String {
    // The error also lists the accepted kinds, so that a client need not read the card.
    let conditions = |rule: &Rule| {
        let media_type = rule.media_type.iter().map(|media_type| format!("mediaType {media_type:?}"));
        let metadata = rule.metadata.iter().map(|(key, value)| format!("metadata {key:?} = {value}"));
        media_type.chain(metadata).collect::<Vec<_>>().join(" and ")
    };
    let all: Vec<String> = parameters.schemas.iter().map(conditions).collect();
    format!("is of no kind that is taken here: it needs {}", all.join(", or "))
}

#[cfg(test)]
mod tests {
    use annex_sdk::Rejection;
    use annex_sdk::testing::{self, Host};

    use super::*;
    use crate::StrictParts;

    /// A validator for tests: reports a violation at `/x` unless the data equals the schema's text.
    fn equality(data_schema: &str, data: &str) -> Result<Vec<Violation>, String> {
        match data {
            "\"deep\"" => Err("nested too deeply".to_owned()),
            _ if data == data_schema => Ok(Vec::new()),
            _ => Ok(vec![Violation::new("/x", format!("is not {data_schema}"))]),
        }
    }

    fn found(parameters: &str, parts: &str) -> Vec<(String, String)> {
        let host = Host::new().parameters(parameters).schema(equality);
        let message = format!(r#"{{"messageId": "m", "role": "ROLE_USER", "parts": {parts}}}"#);
        let violations = match host.check::<StrictParts>(testing::request(), message) {
            Ok(rewrites) => {
                assert_eq!(rewrites, []);
                Vec::new()
            }
            Err(Rejection::Violations(violations)) => violations,
            Err(Rejection::Error(error)) => panic!("{error:?}"),
        };
        violations.into_iter().map(|violation| (violation.pointer, violation.message)).collect()
    }

    fn pointers(parameters: &str, parts: &str) -> Vec<String> {
        found(parameters, parts).into_iter().map(|(pointer, _)| pointer).collect()
    }

    #[test]
    fn data_that_matches_is_taken() {
        assert!(pointers(r#"{"schemas": [{"schema": {"a":1}}]}"#, r#"[{"data": {"a":1}}]"#).is_empty());
    }

    #[test]
    fn violations_point_into_the_data_of_their_part() {
        let found = found(r#"{"schemas": [{"schema": {"a":1}}]}"#, r#"[{"data": {"a":1}}, {"data": null}]"#);
        assert_eq!(found, [("/message/parts/1/data/x".to_owned(), r#"is not {"a":1}"#.to_owned())]);
        let deep = pointers(r#"{"schemas": [{"schema": {"a":1}}]}"#, r#"[{"data": "deep"}]"#);
        assert_eq!(deep, ["/message/parts/0/data"]);
    }

    #[test]
    fn text_and_files_are_refused_unless_they_are_allowed() {
        let parts = r#"[{"text": ""}, {"url": "https://a"}, {"raw": "AA=="}, {"data": 1}]"#;
        assert_eq!(
            pointers(r#"{"schemas": [{"schema": "1"}]}"#, parts),
            ["/message/parts/0", "/message/parts/1", "/message/parts/2"]
        );
        let text = pointers(r#"{"allow_text": true, "schemas": [{"schema": "1"}]}"#, parts);
        assert_eq!(text, ["/message/parts/1", "/message/parts/2"]);
        let all = pointers(r#"{"allow_text": true, "allow_files": true, "schemas": [{"schema": "1"}]}"#, parts);
        assert!(all.is_empty());
    }

    #[test]
    fn a_message_without_data_is_refused_unless_that_is_allowed() {
        let parts = r#"[{"text": "hi"}]"#;
        let needed = pointers(r#"{"allow_text": true, "schemas": [{"schema": "1"}]}"#, parts);
        assert_eq!(needed, ["/message/parts"]);
        let text = r#"{"allow_text": true, "require_data": false, "schemas": [{"schema": "1"}]}"#;
        assert!(pointers(text, parts).is_empty());
    }

    #[test]
    fn the_first_schema_that_is_for_a_part_is_applied() {
        let parameters = r#"{"schemas": [
            {"media_type": "application/order", "schema": "1"},
            {"metadata": {"kind": "order", "v": 2}, "schema": "2"},
            {"media_type": "application/order", "schema": "3"}
        ]}"#;
        let parts = r#"[
            {"data": 1, "mediaType": "application\/order"},
            {"data": 2, "metadata": {"kind": "order", "v": 2, "more": true}},
            {"data": 1, "mediaType": "application/order", "metadata": {"kind": "order", "v": 2}}
        ]"#;
        assert!(pointers(parameters, parts).is_empty());
    }

    #[test]
    fn data_of_no_kind_is_refused_with_the_kinds_that_there_are() {
        let parameters = r#"{"schemas": [
            {"media_type": "application/order", "schema": "1"}, {"metadata": {"kind": "order"}, "schema": "2"}
        ]}"#;
        let found = found(parameters, r#"[{"data": 1, "metadata": {"kind": "other"}}]"#);
        let message =
            r#"is of no kind that is taken here: it needs mediaType "application/order", or metadata "kind" = "order""#;
        assert_eq!(found, [("/message/parts/0".to_owned(), message.to_owned())]);
    }

    #[test]
    fn the_number_of_violations_is_bounded() {
        let parts = format!("[{}]", vec![r#"{"text": ""}"#; 100].join(","));
        assert_eq!(pointers(r#"{"schemas": [{"schema": "1"}]}"#, &parts).len(), MAX_VIOLATIONS);
    }

    #[test]
    fn a_schema_that_cannot_be_used_stops_the_load_and_is_named_by_its_number() {
        let host = Host::new()
            .parameters(r#"{"schemas": [{"media_type": "a/b", "schema": "1"}, {"schema": "2"}]}"#)
            .compile(|schema| if schema == "2" { Err("is no schema".to_owned()) } else { Ok(()) });
        let error = host.declare::<StrictParts>().unwrap_err();
        assert_eq!(error, "the schema of `schemas[1]` cannot be used: is no schema");
    }
}
