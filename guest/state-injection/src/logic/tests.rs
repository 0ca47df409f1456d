use std::cell::RefCell;
use std::collections::HashMap;

use super::*;

const URI: &str = "https://a.example/state/v1";
const KEY: &str = "a.example/state/v1/state";
const POINTER: &str = "/message/metadata/a.example~1state~1v1~1state";
const USER_SCHEMA: &str =
    r#"{"type":"object","properties":{"user_info":{"type":"object"},"tone":{}},"required":["user_info"]}"#;

/// A host with a stored state and prepared violations, which records the validated instances.
#[derive(Default)]
struct FakeHost {
    stored: HashMap<&'static str, &'static str>,
    writable: Option<Scopes>,
    found: Vec<Violation>,
    unusable: bool,
    validated: RefCell<Vec<String>>,
}

impl Host for FakeHost {
    fn snapshot(&self) -> Json {
        object(self.stored.iter().map(|(key, value)| (*key, *value)))
    }

    fn writable(&self) -> Scopes {
        self.writable.unwrap_or(Scopes::SESSION)
    }

    fn violations(&self, _state_schema: &str, instance: &str) -> Result<Vec<Violation>, String> {
        self.validated.borrow_mut().push(instance.to_owned());
        if self.unusable { Err("nested too deeply".to_owned()) } else { Ok(self.found.clone()) }
    }
}

fn parameters(state_schema: Option<&str>) -> Parameters {
    let get = |key: &str| match key {
        "uri" => Some(URI.to_owned()),
        "state_schema" => state_schema.map(str::to_owned),
        _ => None,
    };
    Parameters::look_up(|key| Ok(get(key))).unwrap()
}

fn entry(location: Location, key: &str, value: &str) -> MetadataEntry {
    MetadataEntry { location, key: key.to_owned(), value: value.to_owned() }
}

fn send(state: &str) -> Vec<MetadataEntry> {
    vec![entry(Location::Message, KEY, state)]
}

fn violations(result: Result<Option<Json>, Rejection>) -> Vec<(String, String)> {
    match result {
        Err(Rejection::Violations(violations)) => {
            violations.into_iter().map(|violation| (violation.pointer, violation.message)).collect()
        }
        other => panic!("expected violations, not {other:?}"),
    }
}

#[test]
fn a_card_supports_the_extension_when_it_declares_the_very_uri() {
    let card =
        |uri: &str| format!(r#"{{"name":"a","capabilities":{{"extensions":[{{"uri":"x"}},{{"uri":"{uri}"}}]}}}}"#);
    assert!(is_supported(&parameters(None), &card(URI)));
    for other in ["https://a.example/state/v2", "https://a.example/state/v1/", "https://A.example/state/v1"] {
        assert!(!is_supported(&parameters(None), &card(other)), "{other}");
    }
    for bare in ["{}", r#"{"capabilities":{}}"#, "no card"] {
        assert!(!is_supported(&parameters(None), bare), "{bare}");
    }
}

#[test]
fn the_card_shows_the_schema_as_the_operator_wrote_it() {
    let schema = r#"{ "z":1.0,  "a": 9007199254740993 }"#;
    let declaration = agent_extension(&parameters(Some(schema)));
    assert_eq!(declaration.params.unwrap(), format!(r#"{{"state_schema":{schema}}}"#));
    assert_eq!(agent_extension(&parameters(None)).params, None);
}

#[test]
fn state_is_found_under_its_key_before_the_bare_uri_and_on_the_message_before_the_request() {
    let places =
        [(Location::Request, URI), (Location::Message, URI), (Location::Request, KEY), (Location::Message, KEY)];
    let mut metadata = Vec::new();
    assert_eq!(has_state(&parameters(None), &metadata), None);
    for (location, key) in places {
        let better = entry(location, key, "{}");
        metadata.push(better.clone());
        assert_eq!(has_state(&parameters(None), &metadata), Some(&better));
    }
}

#[test]
fn valid_state_is_handed_on_byte_for_byte() {
    let sent = r#" {"user_info": {"b":9007199254740993, "a":1.0},  "n":1e400} "#;
    let host = FakeHost::default();
    assert_eq!(get_state(&parameters(Some(USER_SCHEMA)), &send(sent), &host), Ok(Some(sent.to_owned())));
    assert_eq!(*host.validated.borrow(), [sent]);
}

#[test]
fn without_a_schema_any_object_will_do() {
    let host = FakeHost::default();
    assert_eq!(get_state(&parameters(None), &send("{}"), &host), Ok(Some("{}".to_owned())));
    assert!(host.validated.borrow().is_empty());
}

#[test]
fn a_missing_state_is_a_violation_that_names_the_key_and_what_the_schema_requires() {
    let result = get_state(&parameters(Some(USER_SCHEMA)), &[], &FakeHost::default());
    let message = "is required: session state as a JSON object with user_info";
    assert_eq!(violations(result), [(POINTER.to_owned(), message.to_owned())]);

    let host = FakeHost { found: vec![Violation::new("", "has less than one property")], ..FakeHost::default() };
    let result = get_state(&parameters(Some(r#"{"minProperties":1}"#)), &[], &host);
    let message = "is required: session state as a JSON object";
    assert_eq!(violations(result), [(POINTER.to_owned(), message.to_owned())]);
}

#[test]
fn a_missing_state_is_none_where_nothing_is_required_of_it() {
    let host = FakeHost::default();
    assert_eq!(get_state(&parameters(None), &[], &host), Ok(None));
    assert!(host.validated.borrow().is_empty());
    assert_eq!(get_state(&parameters(Some(r#"{"properties":{"tone":{}}}"#)), &[], &host), Ok(None));
    assert_eq!(*host.validated.borrow(), ["{}"]);
}

#[test]
fn a_later_turn_may_leave_the_state_out_when_the_stored_one_is_valid() {
    let host = FakeHost { stored: HashMap::from([("user_info", "{}"), ("answer", "1")]), ..FakeHost::default() };
    assert_eq!(get_state(&parameters(Some(USER_SCHEMA)), &[], &host), Ok(None));
    assert_eq!(*host.validated.borrow(), [r#"{"user_info":{}}"#], "the agent's own keys are not the schema's business");
    assert_eq!(get_state(&parameters(None), &[], &host), Ok(None));
    assert_eq!(get_state(&parameters(Some(r#"{"type":"object"}"#)), &[], &host), Ok(None));
}

#[test]
fn a_stored_state_that_does_not_satisfy_the_schema_does_not_replace_a_missing_one() {
    let stored = HashMap::from([("tone", "\"dry\"")]);
    let host = FakeHost { stored, found: vec![Violation::new("", "no user_info")], ..FakeHost::default() };
    assert_eq!(violations(get_state(&parameters(Some(USER_SCHEMA)), &[], &host)).len(), 1);

    let host = FakeHost { stored: HashMap::from([("answer", "1")]), ..FakeHost::default() };
    assert_eq!(violations(get_state(&parameters(Some(USER_SCHEMA)), &[], &host)).len(), 1);
}

#[test]
fn state_that_is_no_object_is_refused_where_it_stands() {
    for value in ["null", "\"{}\"", "[1]", "1", "true"] {
        let result = get_state(&parameters(None), &send(value), &FakeHost::default());
        assert_eq!(violations(result), [(POINTER.to_owned(), "must be a JSON object".to_owned())], "{value}");
    }
    let in_request = [entry(Location::Request, URI, "null")];
    let result = get_state(&parameters(None), &in_request, &FakeHost::default());
    assert_eq!(violations(result)[0].0, "/metadata/https:~1~1a.example~1state~1v1");
}

#[test]
fn each_key_of_a_scope_that_is_not_granted_is_refused_by_name() {
    let sent = r#"{"user:a/b":1,"k":2,"app:c":3,"temp:d":4,"users:e":5,"user":6}"#;
    let host = FakeHost { writable: Some(Scopes::SESSION | Scopes::APP), ..FakeHost::default() };
    let refused = violations(get_state(&parameters(None), &send(sent), &host));
    let pointers: Vec<_> = refused.iter().map(|(pointer, _)| pointer.as_str()).collect();
    assert_eq!(pointers, [format!("{POINTER}/user:a~1b"), format!("{POINTER}/temp:d")]);
    assert_eq!(refused[0].1, "must not be sent: the scope `user:` is not granted to this extension");
}

#[test]
fn keys_of_a_granted_scope_are_handed_on_but_not_validated() {
    let sent = r#"{"user:a":1, "user_info":{}, "tone":1.0}"#;
    let host = FakeHost { writable: Some(Scopes::USER), ..FakeHost::default() };
    assert_eq!(get_state(&parameters(Some(USER_SCHEMA)), &send(sent), &host), Ok(Some(sent.to_owned())));
    assert_eq!(*host.validated.borrow(), [r#"{"user_info":{},"tone":1.0}"#]);
}

#[test]
fn a_later_turn_is_validated_over_what_is_stored() {
    let cases = [
        ("{}", r#"{"user_info":{"name":"a"}}"#),
        (r#"{"tone":null}"#, r#"{"user_info":{"name":"a"},"tone":null}"#),
        (r#"{"user_info": {}}"#, r#"{"user_info": {}}"#),
        (r#"{"extra":1}"#, r#"{"user_info":{"name":"a"},"extra":1}"#),
    ];
    for (sent, validated) in cases {
        let stored = HashMap::from([("user_info", r#"{"name":"a"}"#), ("answer", "1")]);
        let host = FakeHost { stored, ..FakeHost::default() };
        assert_eq!(get_state(&parameters(Some(USER_SCHEMA)), &send(sent), &host), Ok(Some(sent.to_owned())));
        assert_eq!(*host.validated.borrow(), [validated]);
    }
}

#[test]
fn violations_of_the_schema_are_found_in_the_request() {
    let found = vec![Violation::new("/user_info/email", "is no email"), Violation::new("", "lacks tone")];
    let host = FakeHost { found, ..FakeHost::default() };
    let refused = violations(get_state(&parameters(Some(USER_SCHEMA)), &send("{}"), &host));
    assert_eq!(refused[0], (format!("{POINTER}/user_info/email"), "is no email".to_owned()));
    assert_eq!(refused[1], (POINTER.to_owned(), "lacks tone".to_owned()));
}

#[test]
fn a_state_that_the_host_cannot_validate_is_refused() {
    let host = FakeHost { unusable: true, ..FakeHost::default() };
    let refused = violations(get_state(&parameters(Some(USER_SCHEMA)), &send("{}"), &host));
    assert_eq!(refused, [(POINTER.to_owned(), "cannot be validated: nested too deeply".to_owned())]);
}

#[test]
fn the_state_goes_out_with_messages_last_chunks_and_else_with_the_last_status() {
    let event = |kind, last_chunk| Event {
        kind,
        task_id: None,
        context_id: "c".to_owned(),
        task_state: None,
        has_message: true,
        last_chunk,
        present: Vec::new(),
        payload: None,
    };
    for is_returned in [false, true] {
        assert!(carries_state(&event(EventKind::Message, false), is_returned));
        assert!(carries_state(&event(EventKind::Artifact, true), is_returned));
        assert!(!carries_state(&event(EventKind::Artifact, false), is_returned));
    }
    let status = |state: &str| Event { task_state: Some(state.to_owned()), ..event(EventKind::Status, false) };
    for answered in ["COMPLETED", "INPUT_REQUIRED", "AUTH_REQUIRED"] {
        let status = status(&format!("TASK_STATE_{answered}"));
        assert!(carries_state(&status, false) && !carries_state(&status, true), "{answered}");
    }
    for other in ["SUBMITTED", "WORKING", "FAILED", "CANCELED", "REJECTED"] {
        assert!(!carries_state(&status(&format!("TASK_STATE_{other}")), false), "{other}");
    }
    let patch = add_state(&parameters(None), r#"{"k":1.0}"#.to_owned());
    assert_eq!(patch.metadata, [(KEY.to_owned(), r#"{"k":1.0}"#.to_owned())]);
}
