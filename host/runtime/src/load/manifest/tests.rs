//! Tests of what a manifest may say.

use super::{MAX_MANIFEST_BYTES, ManifestGrants, ManifestSection};
use crate::confinement::grants::{GrantNeeded, StateScope};
use crate::error::LoadError;

fn parsed(json: &str) -> ManifestSection {
    ManifestSection::parse(json.as_bytes()).expect("no limit is exceeded").expect("a manifest")
}

/// A manifest with these grants, as JSON.
fn with_grants(grants: &str) -> ManifestSection {
    parsed(&format!(r#"{{"name":"a","version":"1","grants":{grants}}}"#))
}

#[track_caller]
fn check_refused(result: Result<(), LoadError>, expected: &[&str]) {
    let reason = result.expect_err("a refusal").to_string();
    for expected in expected {
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
}

#[test]
fn a_manifest_names_the_grants_that_are_needed_and_no_others() {
    let needs = [GrantNeeded::Clock, GrantNeeded::Steering];
    with_grants(r#"{"clock":"a","agent-steps.steer":"b"}"#).check_needs(&needs).expect("it names both");
    check_refused(
        with_grants(r#"{"clock":"a"}"#).check_needs(&needs),
        &["does not name agent-steps.steer", "[grants] in annex-extension.toml"],
    );
    check_refused(
        with_grants(r#"{"clock":"a","agent-steps.steer":"b","http":"c"}"#).check_needs(&needs),
        &["it names http, which no import and no hook"],
    );
    check_refused(with_grants("{}").check_needs(&needs), &["does not name clock, agent-steps.steer"]);
    check_refused(
        with_grants("{\"clok\":\"a\",\"\\u001b[31m\":\"\"}").check_needs(&[]),
        &["`clok` (this host has no such grant; did you mean clock?)", r"`\u{1b}[31m` (this host has no such grant)"],
    );
}

/// Whether the component needs these grants is known only after it has run.
#[test]
fn a_manifest_may_name_grants_that_have_no_import_and_no_hook() {
    let grants = r#"{"rewrite-message":"a","forget-metadata":"b","session-state.scopes.user":"c"}"#;
    let manifest = with_grants(grants);
    manifest.check_needs(&[]).expect("these grants may be needed");
    let described = ["rewrite-message".to_owned(), "session-state.scopes.user".to_owned()];
    manifest.check_descriptor("urn:a", &described).expect("they are named");
    let described = ["session-state.scopes.app".to_owned()];
    check_refused(manifest.check_descriptor("urn:a", &described), &["does not name session-state.scopes.app"]);

    let unseen = GrantNeeded::ALL.into_iter().filter(|grant| !grant.has_import_or_hook());
    let expected = [
        GrantNeeded::Scope(StateScope::User),
        GrantNeeded::Scope(StateScope::App),
        GrantNeeded::Scope(StateScope::Temp),
        GrantNeeded::ForgetMetadata,
        GrantNeeded::RewriteMessage,
    ];
    assert_eq!(unseen.collect::<Vec<_>>(), expected);
}

#[test]
fn a_list_of_grants_is_read_and_says_nothing_about_what_is_needed() {
    let manifest = with_grants(r#"["clock","secrets"]"#);
    assert_eq!(manifest.grants, ManifestGrants::Tested(vec!["clock".to_owned(), "secrets".to_owned()]));
    manifest.check_needs(&[GrantNeeded::Http]).expect("a list is not compared");
    assert_eq!(manifest.reason(GrantNeeded::Clock), None);
    assert_eq!(parsed(r#"{"name":"a","version":"1","new":1}"#).grants, ManifestGrants::default());
}

#[test]
fn a_manifest_comes_back_as_it_was_written() {
    let json = r#"{"name":"a","version":"1","grants":{"clock":"why"},"uri":"urn:a","licence":"MIT","source":"https://a.example","parameters":{"schema":{"type":"object"},"example":{"limit":1.0}}}"#;
    let manifest = parsed(json);
    assert_eq!(String::from_utf8(manifest.to_section().expect("a section")).expect("JSON"), json);
    assert_eq!(manifest.reason(GrantNeeded::Clock), Some("why"));
    assert_eq!(manifest.reason(GrantNeeded::Random), None);
}

#[test]
fn each_part_of_a_manifest_is_bounded() {
    let long = "x".repeat(2049);
    for (key, limit) in [("name", 256), ("version", 256), ("uri", 2048), ("licence", 256), ("source", 2048)] {
        let mut manifest = serde_json::json!({"name": "a", "version": "1"});
        manifest[key] = long.as_str().into();
        let refused = ManifestSection::parse(manifest.to_string().as_bytes());
        let expected = format!("{key} has 2049 bytes; at most {limit} are allowed");
        check_refused(refused.map(drop), &[&expected]);
    }
    let reason = format!(r#"{{"name":"a","version":"1","grants":{{"clock":"{long}"}}}}"#);
    check_refused(ManifestSection::parse(reason.as_bytes()).map(drop), &["the reason for `clock` has 2049 bytes"]);
    let many: std::collections::BTreeMap<String, &str> = (0..65).map(|number| (number.to_string(), "")).collect();
    let many = serde_json::json!({"name": "a", "version": "1", "grants": many}).to_string();
    check_refused(ManifestSection::parse(many.as_bytes()).map(drop), &["it names 65 grants; at most 64"]);

    let schema = "x".repeat(MAX_MANIFEST_BYTES);
    let whole = format!(r#"{{"name":"a","version":"1","parameters":{{"schema":"{schema}"}}}}"#);
    let expected = format!("it has {} bytes; at most 65536 are allowed", whole.len());
    check_refused(ManifestSection::parse(whole.as_bytes()).map(drop), &[&expected]);
}

#[test]
fn a_section_in_another_format_is_no_manifest() {
    for section in ["", "{\"a\":", "{}", r#"{"name":1,"version":"1"}"#, "\u{0}"] {
        assert_eq!(ManifestSection::parse(section.as_bytes()).expect("it is ignored"), None, "{section}");
    }
}
