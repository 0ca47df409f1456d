use annex_protocol::Json;

use super::pretty;

fn check(json: &str, expected: &str) {
    assert_eq!(pretty(&Json::parse(json.to_owned()).unwrap()), expected);
}

#[test]
fn numbers_and_the_order_of_keys_stay_as_they_are() {
    let expected = "{\n  \"z\": 1.0,\n  \"a\": [\n    9007199254740993,\n    true\n  ]\n}";
    check(r#"{"z":1.0, "a" : [9007199254740993,true]}"#, expected);
}

#[test]
fn empty_objects_and_arrays_stay_on_their_line() {
    check(r#"{"a":{ },"b":[]}"#, "{\n  \"a\": {},\n  \"b\": []\n}");
    check("[[]]", "[\n  []\n]");
    check("{}", "{}");
}

#[test]
fn brackets_commas_and_quotes_in_strings_are_text() {
    check(r#"["{,\"}: \\",1]"#, "[\n  \"{,\\\"}: \\\\\",\n  1\n]");
}
