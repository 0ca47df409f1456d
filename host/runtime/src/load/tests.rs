//! Tests of the checks on a descriptor before its extension is installed.

use super::check_descriptor;
use crate::confinement::limits::Limits;
use crate::contract::{Description, Events};
use crate::error::LoadError;
use crate::load::installation::Installation;

fn refusal(uri: &str, metadata_keys: &[&str]) -> String {
    let installation = Installation::with_limits(Limits::standard());
    let described = Description {
        uri: uri.to_owned(),
        name: String::new(),
        version: String::new(),
        description: String::new(),
        parameter_schema: None,
        metadata_keys: metadata_keys.iter().map(|key| (*key).to_owned()).collect(),
        depends_on: Vec::new(),
        grants: Vec::new(),
        events: Events::default(),
        payload: false,
    };
    match check_descriptor(described, &installation) {
        Err(LoadError::Description { reason }) => reason,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_metadata_key_is_named_once() {
    assert_eq!(refusal("urn:x", &["a", "b", "a"]), "it names its metadata key a twice");
}

#[test]
fn a_metadata_key_must_not_begin_with_a_reserved_prefix() {
    let expected = r#"its metadata key "annex/not-carried" begins with annex/, which is reserved for this server"#;
    assert_eq!(refusal("urn:x", &["a", "annex/not-carried"]), expected);
    let expected = r#"its metadata key "adk_type" begins with adk_, which is reserved for this server"#;
    assert_eq!(refusal("urn:x", &["a", "adk_type"]), expected);
}

#[test]
fn the_reason_is_cut_if_the_guests_text_is_long() {
    assert!(refusal(&"no uri ".repeat(100_000), &[]).len() <= 4 << 10);
}
