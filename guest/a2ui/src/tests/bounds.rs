//! Messages and catalogues of strangers are checked with bounded work.

use annex_sdk::Verdict;
use serde_json::{Value, json};

use super::{capabilities, host, message, part, pointers, refusal, revise, surface};

/// Calls of `not` within each other.
fn calls(depth: usize) -> Value {
    (0..depth).fold(json!(true), |value, _| json!({"call": "not", "args": {"value": value}}))
}

fn check_box(depth: usize) -> Value {
    json!({"component": "CheckBox", "label": "x", "value": calls(depth)})
}

#[test]
fn calls_within_calls_are_checked_to_a_depth() {
    let host = host(&json!({}));
    assert_eq!(revise(&host, &json!([part(&surface("a", &check_box(12)))])), Verdict::Leave);
    let reason = refusal(revise(&host, &json!([part(&surface("b", &check_box(30)))])));
    assert!(reason.contains("too deeply"), "{reason}");
}

#[test]
fn many_components_are_checked_and_too_many_are_refused() {
    let host = host(&json!({}));
    let many = |count: usize| {
        let components: Vec<Value> =
            (0..count).map(|number| json!({"id": format!("c{number}"), "component": "Text", "text": "x"})).collect();
        let mut messages = surface("s", &json!({"component": "Text", "text": "x"}));
        messages[1]["updateComponents"]["components"] = json!(components);
        json!([part(&messages)])
    };
    let reason = refusal(revise(&host, &many(20_000)));
    assert!(reason.contains("too long"), "{reason}");
    assert_eq!(revise(&host, &many(1_000)), Verdict::Leave);
}

#[test]
fn a_catalogue_that_refers_to_itself_ends() {
    let loop_of_two = json!({
        "catalogId": "own",
        "components": {"A": {"$ref": "#/components/B"}, "B": {"anyOf": [{"$ref": "#/components/A"}, {"$ref": "#/components/A"}]}},
    });
    let host = host(&json!({"accepts_inline_catalogs": true}));
    let offer =
        json!({"a2uiClientCapabilities": {"v0.9": {"supportedCatalogIds": [], "inlineCatalogs": [loop_of_two]}}});
    assert!(pointers(&host, &message(&json!([{"text": "x"}]), &offer)).is_empty());
    let mut messages = surface("s", &json!({"component": "A"}));
    messages[0]["createSurface"]["catalogId"] = json!("own");
    refusal(revise(&host, &json!([part(&messages)])));
}

#[test]
fn patterns_of_a_client_are_matched_a_bounded_number_of_times() {
    let patterns: Value =
        (0..1_000).map(|number| (format!("x{number}"), json!(true))).collect::<serde_json::Map<_, _>>().into();
    let catalogue = json!({"catalogId": "own", "components": {"A": {"patternProperties": patterns}}});
    let host = host(&json!({"accepts_inline_catalogs": true}));
    let offer = json!({"a2uiClientCapabilities": {"v0.9": {"supportedCatalogIds": [], "inlineCatalogs": [catalogue]}}});
    assert!(pointers(&host, &message(&json!([{"text": "x"}]), &offer)).is_empty());
    let mut messages = surface("s", &json!({"component": "A"}));
    messages[0]["createSurface"]["catalogId"] = json!("own");
    let reason = refusal(revise(&host, &json!([part(&messages)])));
    assert!(reason.contains("too long"), "{reason}");
}

#[test]
fn many_names_under_many_schemas_take_too_long() {
    let wide = json!({"A": {"allOf": vec![json!({}); 1_000]}});
    let mut nested = json!({"A": {"$ref": "#/components/B35"}, "B0": {"unevaluatedProperties": true}});
    for level in 1..=35 {
        nested[format!("B{level}")] = json!({"allOf": [{"$ref": format!("#/components/B{}", level - 1)}]});
    }
    for (count, components) in [(5_000, wide), (12_000, nested)] {
        let catalogue = json!({"catalogId": "own", "components": components});
        let host = host(&json!({"accepts_inline_catalogs": true}));
        let offer =
            json!({"a2uiClientCapabilities": {"v0.9": {"supportedCatalogIds": [], "inlineCatalogs": [catalogue]}}});
        assert!(pointers(&host, &message(&json!([{"text": "x"}]), &offer)).is_empty());
        let mut component = json!({"component": "A"});
        for number in 0..count {
            component[format!("n{number}")] = json!(1);
        }
        let mut messages = surface("s", &component);
        messages[0]["createSurface"]["catalogId"] = json!("own");
        let reason = refusal(revise(&host, &json!([part(&messages)])));
        assert!(reason.contains("too long"), "{reason}");
    }
}

#[test]
fn long_names_cannot_make_a_check_expensive() {
    let host = host(&json!({}));
    let calls = vec![calls(1); 1_000];
    let check = json!({"condition": {"call": "x".repeat(50_000), "args": {"y".repeat(50_000): calls}}, "message": "x"});
    let field = json!({"component": "TextField", "label": "x", "checks": [check.clone()]});
    assert!(!refusal(revise(&host, &json!([part(&surface("a", &field))]))).is_empty());
    let long = json!({"component": "Row", "children": [], "z".repeat(50_000): vec![check; 3]});
    assert!(!refusal(revise(&host, &json!([part(&surface("b", &long))]))).is_empty());
}

#[test]
fn a_client_sends_a_bounded_number_of_messages() {
    let many = vec![json!({"version": "v0.9", "action": {}}); 65];
    let found = pointers(&host(&json!({})), &message(&json!([part(&json!(many))]), &capabilities("0.9.1")));
    assert_eq!(found, ["/message/parts"]);
}
