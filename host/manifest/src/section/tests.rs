//! Tests of what a section may say.

use super::{MAX_MANIFEST_BYTES, ManifestError, ManifestSection};

fn parsed(json: &str) -> ManifestSection {
    ManifestSection::parse(json.as_bytes()).expect("no limit is exceeded").expect("a manifest")
}

#[track_caller]
fn check_refused(result: Result<(), ManifestError>, expected: &[&str]) {
    let reason = result.expect_err("a refusal").to_string();
    for expected in expected {
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
}

#[test]
fn a_manifest_comes_back_as_it_was_written() {
    let json = r#"{"name":"a","version":"1","grants":{"clock":"why"},"uri":"urn:a","licence":"MIT","source":"https://a.example","parameters":{"schema":{"type":"object"},"example":{"limit":1.0}}}"#;
    let manifest = parsed(json);
    assert_eq!(String::from_utf8(manifest.to_section().expect("a section")).expect("JSON"), json);
    assert_eq!(manifest.reason("clock"), Some("why"));
    assert_eq!(manifest.reason("random"), None);
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
