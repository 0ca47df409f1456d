//! Tests of what a manifest may say.

use annex_manifest::{ManifestGrants, ManifestSection};
use annex_protocol::JsonObject;

use super::{check_descriptor, check_needs};
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
    check_needs(&with_grants(r#"{"clock":"a","agent-steps.steer":"b"}"#), &needs).expect("it names both");
    check_refused(
        check_needs(&with_grants(r#"{"clock":"a"}"#), &needs),
        &["does not name agent-steps.steer", "[grants] in annex-extension.toml"],
    );
    check_refused(
        check_needs(&with_grants(r#"{"clock":"a","agent-steps.steer":"b","http":"c"}"#), &needs),
        &["it names http, which no import and no hook"],
    );
    check_refused(check_needs(&with_grants("{}"), &needs), &["does not name clock, agent-steps.steer"]);
    check_refused(
        check_needs(&with_grants("{\"clok\":\"a\",\"\\u001b[31m\":\"\"}"), &[]),
        &["`clok` (this host has no such grant; did you mean clock?)", r"`\u{1b}[31m` (this host has no such grant)"],
    );
}

/// Whether the component needs these grants is known only after it has run.
#[test]
fn a_manifest_may_name_grants_that_have_no_import_and_no_hook() {
    let grants = r#"{"rewrite-message":"a","forget-metadata":"b","session-state.scopes.user":"c"}"#;
    let manifest = with_grants(grants);
    check_needs(&manifest, &[]).expect("these grants may be needed");
    let described = ["rewrite-message".to_owned(), "session-state.scopes.user".to_owned()];
    check_descriptor(&manifest, "urn:a", &described, &JsonObject::new()).expect("they are named");
    let described = ["session-state.scopes.app".to_owned()];
    check_refused(
        check_descriptor(&manifest, "urn:a", &described, &JsonObject::new()),
        &["does not name session-state.scopes.app"],
    );

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
    check_needs(&manifest, &[GrantNeeded::Http]).expect("a list is not compared");
    assert_eq!(manifest.reason("clock"), None);
    assert_eq!(parsed(r#"{"name":"a","version":"1","new":1}"#).grants, ManifestGrants::default());
}

#[test]
fn an_operator_may_choose_another_uri_than_that_of_the_manifest() {
    let manifest = parsed(r#"{"name":"a","version":"1","uri":"urn:a"}"#);
    let parameters = JsonObject::parse(r#"{"limit":1,"uri":"urn:b"}"#).expect("an object");
    for uri in ["urn:a", "urn:b"] {
        check_descriptor(&manifest, uri, &[], &parameters).expect("the author's URI, or the operator's");
    }
    check_refused(check_descriptor(&manifest, "urn:c", &[], &parameters), &["has the URI `urn:a`", "as `urn:c`"]);
}
