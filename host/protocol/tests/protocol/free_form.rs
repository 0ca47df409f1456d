//! User data passes through byte for byte.

use annex_protocol::{Json, JsonObject, Part, SendMessageRequest};

fn request_with_metadata(metadata: &str) -> String {
    format!(
        r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"data":{metadata}}}],"metadata":{{"k":{metadata}}}}},"metadata":{{"k":{metadata}}}}}"#
    )
}

#[test]
fn numbers_key_order_spelling_and_unknown_fields_survive() {
    let values = [
        "9007199254740993",
        "1.0",
        "-0",
        "1e300",
        "0.1000000000000000055511151231257827",
        "123456789012345678901234567890",
        r#"{"z":1,"a":2,"m":{"b":null,"a":[]}}"#,
        r#"[{"once":1},{"once":{"once":2}}]"#,
        r#""\u00e9\/\ud83d\ude00 é 😀""#,
        "{ \"spaced\" :\t[ 1 , 2 ] }",
        "null",
    ];
    for value in values {
        let json = request_with_metadata(value);
        let request: SendMessageRequest = serde_json::from_str(&json).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), json);
    }
}

#[test]
fn what_not_everybody_can_read_is_refused_alone_and_replaced_as_a_part() {
    let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(Json::MAX_DEPTH), "]".repeat(Json::MAX_DEPTH));
    for (value, replaced) in [
        (r#""\ud800""#, r#""\ufffd""#),
        ("1e400", r#""1e400""#),
        ("{\n\"\\udc00\":1}", r#"{"\ufffd":1}"#),
        (r#"{"twice":1,"once":[],"twice":2}"#, r#"{"once":[],"twice":2}"#),
        (r#"[{"a":{"twice":1,"tw\u0069ce":{"twice":2,"twice":3}}}]"#, r#"[{"a":{"tw\u0069ce":{"twice":3}}}]"#),
        (r#"{"\ud800":1,"\udc00":2}"#, r#"{"\ufffd":2}"#),
        (&nested(r#"{"a":1}"#), &nested(r#""{\"a\":1}""#)),
    ] {
        assert!(Json::parse(value.to_owned()).is_err() && JsonObject::parse(&format!(r#"{{"k":{value}}}"#)).is_err());
        let request: SendMessageRequest = serde_json::from_str(&request_with_metadata(value)).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), request_with_metadata(replaced));
    }
}

#[test]
fn values_that_nest_too_deeply_are_refused_without_recursion() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let deepest = nested(Json::MAX_DEPTH);
    assert_eq!(Json::parse(deepest.clone()).unwrap().get(), deepest);
    for depth in [Json::MAX_DEPTH + 1, 100_000] {
        let error = Json::parse(nested(depth)).unwrap_err().to_string();
        assert!(error.contains("nest deeper than 40 levels"), "{error}");
    }
    let many = format!("[{}\"[[[[\\\"[[[\"]", "[],".repeat(1_000));
    assert_eq!(
        Json::parse(many.clone()).unwrap().get(),
        many,
        "brackets beside each other and in strings do not count"
    );
}

#[test]
fn a_value_over_several_lines_is_written_on_one() {
    let pretty = "{\r\n  \"text\" : \"a \\n \\\" b\\\\\" ,\r\n\t\"list\": [\n 1.0 ,\r 2 ]\n}";
    let compact = r#"{"text":"a \n \" b\\","list":[1.0,2]}"#;
    assert_eq!(Json::parse(pretty.to_owned()).unwrap().get(), compact);
    assert_eq!(serde_json::from_str::<Json>(pretty).unwrap().get(), compact);

    let request: SendMessageRequest = serde_json::from_str(&request_with_metadata(pretty)).unwrap();
    assert_eq!(serde_json::to_string(&request).unwrap(), request_with_metadata(compact));
}

#[test]
fn text_that_is_not_one_json_value_is_refused() {
    for text in ["", " ", "{", "{}{}", "[1,]", "nul", "'x'", "\"a\nb\"", "NaN", "01", "\u{feff}1"] {
        assert!(Json::parse(text.to_owned()).is_err(), "{text:?}");
    }
    assert_eq!(Json::parse(" \n[1] ".to_owned()).unwrap().get(), "[1]");
}

#[test]
fn json_is_made_from_and_into_types() {
    assert_eq!(Json::string("a \"b\"\n").get(), r#""a \"b\"\n""#);
    assert_eq!(Json::from_serialize(&[1, 2]).unwrap().to::<Vec<u8>>().unwrap(), [1, 2]);
    assert_eq!(Json::string("borrowed").deserialize::<&str>().unwrap(), "borrowed");
    assert!(Json::parse("null".to_owned()).unwrap().is_null());
    assert_eq!(format!("{:?}", Json::string("x")), r#""x""#);
}

#[test]
fn a_key_that_comes_twice_is_refused_by_name() {
    let error = JsonObject::parse(r#"{"a":1,"b":2,"a":3}"#).unwrap_err().to_string();
    assert!(error.starts_with("duplicate key `a`"), "{error}");

    let in_a_message = r#"{"message":{"metadata":{"ext":1,"\u0065xt":2}}}"#;
    let error = serde_json::from_str::<SendMessageRequest>(in_a_message).unwrap_err().to_string();
    assert!(error.starts_with("duplicate key `ext`"), "{error}");
}

#[test]
fn an_object_keeps_its_order_through_changes() {
    let mut object = JsonObject::parse(r#"{"z":1,"a":2,"m\"":3}"#).unwrap();
    assert_eq!(object.insert("a".to_owned(), Json::string("new")), Some(Json::parse("2".to_owned()).unwrap()));
    object.extend([("b".to_owned(), Json::string("end"))]);
    object.remove("z");
    assert_eq!(object.to_json_string(), r#"{"a":"new","m\"":3,"b":"end"}"#);
    assert_eq!(serde_json::to_string(&object).unwrap(), object.to_json_string());
    assert_eq!(JsonObject::new().to_json_string(), "{}");
}

#[test]
fn what_is_merged_wins_a_key_and_the_places_of_keys_stay() {
    let object = |text: &str| JsonObject::parse(text).unwrap();
    for (first, second, merged) in [
        ("{}", r#"{"b":1,"a":2}"#, r#"{"b":1,"a":2}"#),
        (r#"{"b":1,"a":2}"#, "{}", r#"{"b":1,"a":2}"#),
        (r#"{"b":1,"a":2}"#, r#"{"c":3,"b":4}"#, r#"{"b":4,"a":2,"c":3}"#),
    ] {
        let second = object(second);
        let mut whole = object(first);
        whole.merge(second.clone());
        assert_eq!(whole.to_json_string(), merged);
        // What was merged is shared, and stays as it was when the whole changes.
        whole.insert("d".to_owned(), Json::string("new"));
        assert!(!second.contains_key("d"));
    }
}

#[test]
fn only_objects_are_metadata() {
    for json in [r#"{"text":"x","metadata":[]}"#, r#"{"text":"x","metadata":"{}"}"#] {
        let error = serde_json::from_str::<Part>(json).unwrap_err().to_string();
        assert!(error.contains("expected a JSON object"), "{error}");
    }
}
