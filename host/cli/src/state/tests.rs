use annex_protocol::AgentCard;

use super::{extension, key, read};

fn card() -> AgentCard {
    let card = r#"{"capabilities":{"extensions":[
        {"uri":"https://a.example/time"},
        {"uri":"https://a.example/state","params":{"state_schema":{}}}]}}"#;
    serde_json::from_str(card).unwrap()
}

#[test]
fn the_state_key_is_the_uri_without_its_scheme_and_state() {
    assert_eq!(key(&"https://a.example/v1".into()), "a.example/v1/state");
    assert_eq!(key(&"urn:a".into()), "urn:a/state");
}

#[test]
fn the_extension_with_a_state_schema_takes_the_state() {
    let check = |requested: &[&str], expected: &str| {
        let requested: Vec<_> = requested.iter().map(|&uri| uri.into()).collect();
        assert_eq!(extension(&requested, &card()).unwrap().as_str(), expected);
    };
    check(&[], "https://a.example/state");
    check(&["https://a.example/time", "https://a.example/state"], "https://a.example/state");
    check(&["https://a.example/time"], "https://a.example/state");
    check(&["https://b.example/own"], "https://a.example/state");
}

#[test]
fn where_no_extension_declares_a_state_schema_the_first_that_was_asked_for_takes_the_state() {
    let requested = ["https://b.example/own".into(), "https://b.example/other".into()];
    assert_eq!(extension(&requested, &AgentCard::default()).unwrap().as_str(), "https://b.example/own");
}

#[test]
fn without_a_candidate_the_error_asks_for_one() {
    let error = extension(&[], &AgentCard::default()).unwrap_err().to_string();
    assert!(error.contains("--extension"), "{error}");
}

#[test]
fn the_state_is_kept_as_it_was_written() {
    assert_eq!(
        read(r#"{"b":1.0,"a":9007199254740993}"#).unwrap().to_json_string(),
        r#"{"b":1.0,"a":9007199254740993}"#
    );
}

#[test]
fn a_file_is_read_without_the_mark_that_editors_put_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.json");
    std::fs::write(&file, "\u{feff}{\"a\":1}").unwrap();
    assert_eq!(read(&format!("@{}", file.display())).unwrap().to_json_string(), r#"{"a":1}"#);
}
