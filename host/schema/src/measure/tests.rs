use serde_json::{Map, Value, json};

use super::measure;

fn refused(schema: &Value, expected: &str) {
    let error = measure(schema).expect_err("refused");
    assert!(error.contains(expected), "{error}");
}

#[test]
fn schemas_whose_work_has_no_bound_are_refused() {
    refused(&json!({"properties": {"next": {"$ref": "#"}}}), "leads back to itself");
    refused(&json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}), "leads back to itself");
    refused(&json!({"$ref": "https://example.com/s"}), "form #/");
    refused(&json!({"$ref": "#/$defs/none"}), "leads nowhere");
    refused(&json!({"$dynamicRef": "#x"}), "$dynamicRef");
    refused(&json!({"$schema": "https://example.com/my-dialect"}), "$schema");
}

/// The validator decodes references before following them: `%24` is `$`, and `%2F` a slash.
#[test]
fn a_reference_leads_where_the_validator_goes() {
    let decoys = json!({"$ref": "#/%24defs/a", "%24defs": {"a": true}, "$defs": {"a": {"$ref": "#/%24defs/a"}}});
    refused(&decoys, "an escape with %");
    refused(&json!({"$ref": "#/a%2Fb", "a%2Fb": true, "a": {"b": {"$ref": "#"}}}), "an escape with %");
    measure(&json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": true}})).expect("it is followed");
}

#[test]
fn each_name_that_may_be_missing_is_a_violation() {
    let names: Vec<String> = (0..500).map(|number| format!("n{number}")).collect();
    assert!(measure(&json!({"required": names})).expect("a schema").assertions > 500);
    assert!(measure(&json!({"dependentRequired": {"a": names}})).expect("a schema").assertions > 500);
    refused(&json!({"format": "regex"}), "format regex");
}

#[test]
fn unevaluated_keywords_are_admitted_only_with_a_bound() {
    for beside in ["allOf", "anyOf", "oneOf"] {
        refused(&json!({beside: [true], "unevaluatedProperties": false}), beside);
        refused(&json!({beside: [true], "unevaluatedItems": false}), beside);
    }
    refused(&json!({"$ref": "#/$defs/a", "$defs": {"a": {}}, "unevaluatedProperties": false}), "$ref");
    refused(&json!({"contains": {}, "unevaluatedItems": false}), "contains");
    refused(&json!({"unevaluatedProperties": {"type": "string"}}), "true or false");
    measure(&json!({"properties": {"a": {}}, "unevaluatedProperties": false})).expect("it has a bound");
    measure(&json!({"allOf": [{"properties": {"a": {}}, "unevaluatedProperties": false}]})).expect("it has a bound");
}

#[test]
fn a_schema_that_multiplies_with_each_reference_is_refused_at_once() {
    let definitions: Map<String, Value> = (0..10)
        .map(|level| {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            (format!("d{level}"), json!({"allOf": vec![next; 10]}))
        })
        .chain([("d10".to_owned(), json!(true))])
        .collect();
    refused(&json!({"$ref": "#/$defs/d0", "$defs": definitions}), "more than 10000 parts");
}

#[test]
fn a_long_chain_of_references_is_refused_in_any_order() {
    let link = |level: usize| (format!("d{level}"), json!({"$ref": format!("#/$defs/d{}", level + 1)}));
    let end = ("d300".to_owned(), json!(true));
    let forwards: Map<String, Value> = (0..300).map(link).chain([end.clone()]).collect();
    let backwards: Map<String, Value> = [end].into_iter().chain((0..300).rev().map(link)).collect();
    for definitions in [forwards, backwards] {
        refused(&json!({"$defs": definitions, "$ref": "#/$defs/d0"}), "nests deeper");
    }
}

#[test]
fn a_property_may_have_the_name_of_a_keyword() {
    let schema = json!({"properties": {"$ref": {"type": "string"}, "id": {"type": "string"}, "pattern": true}});
    assert_eq!(measure(&schema).expect("a schema").patterns, 0);
    measure(&json!({"enum": [{"$ref": "#"}], "const": {"$id": "x"}, "default": {"$dynamicRef": "#"}})).expect("values");
}

#[test]
fn patterns_are_bounded_together() {
    let patterns = |pattern: &dyn Fn(usize) -> String, count: usize| {
        let properties: Map<String, Value> =
            (0..count).map(|number| (format!("p{number}"), json!({"pattern": pattern(number)}))).collect();
        json!({"properties": properties})
    };
    refused(&patterns(&|number| format!("\\p{{L}}{{{}}}", number % 9 + 1), 60), "automata");
    refused(&patterns(&|number| format!("{}{number}", "a".repeat(500)), 60), "8192 bytes together");
    measure(&patterns(&|number| format!("^[a-z]+-{number}$"), 30)).expect("small ones");
}

#[test]
fn names_that_are_repeated_in_the_path_of_every_part_are_weighed() {
    let inner: Map<String, Value> = (0..2_000).map(|number| (format!("{number}"), json!({"type": "null"}))).collect();
    let schema = json!({"properties": {"n".repeat(20_000): {"properties": inner}}});
    refused(&schema, "would take");
}
