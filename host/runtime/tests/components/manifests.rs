//! The manifest that a component's project has put into the component.

use std::fs;

use annex_protocol::{Json, JsonObject, Secret};
use annex_runtime::{
    CallerGrant, Grants, Inspection, Installation, LoadError, MANIFEST_SECTION, MAX_MANIFEST_BYTES, ManifestGrants,
    Quota, SessionStateGrant, StateScope,
};

use crate::capabilities::http;
use crate::support::{component, installation, refused, runtime};

/// The component at `path` with a section of the manifest, in place of its own.
fn with_section(path: &str, content: &[u8]) -> Vec<u8> {
    add_section(without_section(component(path)), content)
}

/// Removes the section of the manifest, which the build of the component has put at the end.
fn without_section(mut component: Vec<u8>) -> Vec<u8> {
    let name = MANIFEST_SECTION.as_bytes();
    let Some(start) = component.windows(name.len()).rposition(|found| found == name) else { return component };
    let size = component.len() - (start - 1);
    // Before the name and its length stand the section's number and size, with seven bits of the size in each byte.
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(7) as usize;
    component.truncate(start - 2 - digits);
    component
}

fn add_section(mut component: Vec<u8>, content: &[u8]) -> Vec<u8> {
    component.push(0);
    let mut length = 1 + MANIFEST_SECTION.len() + content.len();
    while length >= 0x80 {
        component.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    component.push(length as u8);
    component.push(MANIFEST_SECTION.len() as u8);
    component.extend(MANIFEST_SECTION.as_bytes());
    component.extend(content);
    component
}

/// The component that needs the clock, with a manifest with these grants, as JSON.
fn timestamp(grants: &str) -> Vec<u8> {
    let manifest = format!(r#"{{"name":"a","version":"1","grants":{grants}}}"#);
    with_section(annex_components::TIMESTAMP, manifest.as_bytes())
}

fn with_clock() -> Installation {
    Installation { grants: Grants { clock: true, ..Grants::default() }, ..installation() }
}

async fn inspected(bytes: Vec<u8>) -> Result<Inspection, LoadError> {
    runtime().inspect(bytes).await.map(|inspected| inspected.inspection)
}

/// Asserts that the error is about the manifest and contains each text of `expected`.
#[track_caller]
fn check(error: &LoadError, expected: &[&str]) {
    assert!(matches!(error, LoadError::Manifest { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("annex:manifest"), "{text}");
    for expected in expected {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[tokio::test]
async fn a_manifest_that_names_what_the_component_needs_is_accepted() {
    let bytes = timestamp(r#"{"clock":"It stamps answers."}"#);
    let inspection = inspected(bytes.clone()).await.expect("an extension");
    inspection.check_manifest().expect("it names the clock");
    let manifest = inspection.manifest.expect("a manifest");
    assert_eq!((manifest.name.as_str(), manifest.reason("clock")), ("a", Some("It stamps answers.")));
    runtime().load(bytes, with_clock()).await.expect("it loads");
}

#[tokio::test]
async fn a_manifest_that_names_less_than_the_component_needs_is_refused() {
    let bytes = timestamp("{}");
    let inspection = inspected(bytes.clone()).await.expect("an extension");
    let expected = ["it does not name clock, which the component's imports or hooks need", "annex-extension.toml"];
    check(&inspection.check_manifest().expect_err("a difference"), &expected);
    check(&refused(bytes.clone(), with_clock()).await, &expected);
    // Before the operator is told to grant anything.
    check(&refused(bytes, installation()).await, &expected);
}

#[tokio::test]
async fn a_manifest_that_names_more_than_the_component_needs_is_refused() {
    let bytes = timestamp(r#"{"clock":"","http":"","clocks":""}"#);
    let inspection = inspected(bytes.clone()).await.expect("an extension");
    let expected =
        ["http, which no import and no hook of the component needs", "`clocks` (this host has no such grant"];
    check(&inspection.check_manifest().expect_err("a difference"), &expected[1..]);
    check(
        &refused(bytes, with_clock()).await,
        &["names `clocks` (this host has no such grant; did you mean clock?), http"],
    );
    let bytes = timestamp(r#"{"clock":"","http":""}"#);
    check(&refused(bytes, with_clock()).await, &expected[..1]);
}

#[tokio::test]
async fn a_manifest_with_another_uri_than_the_descriptor_is_refused() {
    let manifest = |uri: &str| format!(r#"{{"name":"a","version":"1","uri":"{uri}"}}"#);
    let right = with_section(annex_components::HELLO_EXTENSION, manifest("https://annex.example/hello/v1").as_bytes());
    runtime().load(right, installation()).await.expect("it loads");
    let wrong = with_section(annex_components::HELLO_EXTENSION, manifest("urn:known\\u001b").as_bytes());
    let error = refused(wrong, installation()).await;
    check(&error, &[r"`urn:known\u{1b}`", "`https://annex.example/hello/v1`", "change uri"]);
}

#[tokio::test]
async fn a_manifest_is_bounded_and_a_component_has_one() {
    let large = vec![b' '; MAX_MANIFEST_BYTES + 1];
    let large = with_section(annex_components::HELLO_EXTENSION, &large);
    check(&inspected(large.clone()).await.expect_err("it is too large"), &["65537 bytes; at most 65536"]);
    check(&refused(large, installation()).await, &["65537 bytes; at most 65536"]);

    let once = with_section(annex_components::HELLO_EXTENSION, br#"{"name":"a","version":"1"}"#);
    runtime().load(once.clone(), installation()).await.expect("one manifest");
    let twice = add_section(once, br#"{"name":"b","version":"1"}"#);
    check(&inspected(twice.clone()).await.expect_err("two manifests"), &["two such sections"]);
    check(&refused(twice, installation()).await, &["two such sections"]);
}

#[tokio::test]
async fn a_list_of_grants_and_another_format_load_as_a_component_without_a_manifest() {
    let list = timestamp(r#"["keyvalue"]"#);
    let inspection = inspected(list.clone()).await.expect("an extension");
    inspection.check_manifest().expect("a list is not compared");
    let manifest = inspection.manifest.expect("a manifest");
    assert_eq!(manifest.grants, ManifestGrants::Tested(vec!["keyvalue".to_owned()]));
    runtime().load(list, with_clock()).await.expect("it loads");

    let foreign = with_section(annex_components::TIMESTAMP, b"\0\xff");
    assert_eq!(inspected(foreign.clone()).await.expect("an extension").manifest, None);
    runtime().load(foreign, with_clock()).await.expect("it loads");
}

/// Settings with each grant that a shipped component can need.
fn with_grants(parameters: JsonObject) -> Installation {
    let grants = Grants {
        clock: true,
        http: Some(http(Vec::new())),
        keyvalue: Some(Quota::default()),
        secrets: ["STATE_KEY", "VERIFIER_SECRET"].map(|name| (name.to_owned(), Secret::new("s".repeat(40)))).into(),
        session_state: Some(SessionStateGrant { scopes: vec![StateScope::Temp], ..SessionStateGrant::default() }),
        tasks: true,
        task_resumption: true,
        agent_steps: true,
        steering: true,
        caller: Some(CallerGrant { principal: true, ..CallerGrant::default() }),
        task_metadata: true,
        forget_metadata: true,
        rewrite_message: true,
        rewrite_answer: true,
        answer: true,
        ..Grants::default()
    };
    Installation { grants, parameters, ..installation() }
}

/// A load compares the manifest with the descriptor, and the example with the schema.
#[tokio::test]
async fn each_shipped_component_has_a_manifest_that_says_what_the_component_is() {
    let runtime = runtime();
    for (name, path) in annex_components::shipped() {
        let bytes = fs::read(path).expect("the component was built");
        let inspected = runtime.inspect(bytes.clone()).await.expect("an extension").inspection;
        inspected.check_manifest().unwrap_or_else(|error| panic!("{name}: {error}"));
        let manifest = inspected.manifest.unwrap_or_else(|| panic!("{name} has no manifest"));
        assert_eq!((manifest.name.as_str(), manifest.licence.as_deref()), (name, Some("Apache-2.0")));
        let ManifestGrants::Reasons(reasons) = &manifest.grants else { panic!("{name} gives no reasons") };
        assert!(reasons.values().all(|reason| reason.ends_with('.')), "{name}: {reasons:?}");
        let example = manifest.parameters.as_ref().and_then(|parameters| parameters.example.as_ref());
        let example = example.map(|example| JsonObject::parse(example.get()).expect("an object")).unwrap_or_default();
        let loaded = runtime.load(bytes, with_grants(example)).await;
        let loaded = loaded.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let schema = loaded.descriptor().parameter_schema.clone().map(|schema| Json::parse(schema).expect("JSON"));
        assert_eq!(manifest.parameters.map(|parameters| parameters.schema), schema, "{name}");
    }
}
