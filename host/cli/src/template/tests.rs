use annex_protocol::Json;

use super::Template;

fn check(schema: &str, expected: &str, optional: &[&str]) {
    let template = Template::of(&Json::parse(schema.to_owned()).unwrap()).unwrap();
    let compact: String = template.json.lines().map(str::trim_start).collect();
    assert_eq!(compact, expected);
    assert_eq!(template.optional, optional);
}

#[test]
fn properties_keep_their_order_and_show_their_types() {
    check(
        r#"{"type":"object","required":["z"],"properties":{
            "z":{"type":"object","required":["email"],"properties":{"email":{"type":"string","format":"email"},"age":{"type":"integer"}}},
            "tags":{"type":"array","items":{"type":"string"}},"any":true,"maybe":{"type":["null","boolean"]}}}"#,
        r#"{"z": {"email": "<email>","age": "<integer>"},"tags": ["<string>"],"any": "<any value>","maybe": "<boolean>"}"#,
        &["/z/age", "/tags", "/any", "/maybe"],
    );
}

#[test]
fn what_the_schema_names_stands_instead_of_a_placeholder() {
    check(
        r#"{"required":["a","b","c","d"],"properties":{"a":{"default":1.0},"b":{"const":"x"},
            "c":{"type":"string","examples":["Ada","Bob"]},"d":{"enum":["low","high"]}}}"#,
        r#"{"a": 1.0,"b": "x","c": "Ada","d": "low"}"#,
        &[],
    );
}

#[test]
fn references_and_combinations_are_followed() {
    check(
        r##"{"allOf":[{"$ref":"#/$defs/user"},{"properties":{"role":{"type":"string"}}}],"required":["role"],
            "$defs":{"user":{"required":["name"],"properties":{"name":{"$ref":"#/$defs/name"}}},"name":{"type":"string"}}}"##,
        r#"{"name": "<string>","role": "<string>"}"#,
        &[],
    );
    check(
        r#"{"oneOf":[{"required":["a"],"properties":{"a":{"type":"number"}}},{"properties":{"b":{}}}]}"#,
        r#"{"a": "<number>"}"#,
        &[],
    );
}

#[test]
fn a_schema_without_bounds_is_refused() {
    for schema in [r##"{"properties":{"next":{"$ref":"#"}}}"##, r#"{"$ref":"https://a.example/s"}"#, r#"{"type":"x"}"#]
    {
        let error = Template::of(&Json::parse(schema.to_owned()).unwrap()).unwrap_err().to_string();
        assert!(error.contains("cannot be used"), "{error}");
    }
}
