//! The forms of JSON that the ProtoJSON mapping accepts, checked on every type and every field.

use annex_protocol::{GetTaskRequest, JsonObject, Message, Part, SendMessageRequest, Task};

use crate::samples::{Sample, messages, one_ofs};

fn fields(sample: &Sample) -> Vec<(String, String)> {
    let object = JsonObject::parse(sample.json).unwrap();
    object.into_iter().map(|(key, value)| (key, value.get().to_owned())).collect()
}

fn object(fields: &[(String, String)]) -> String {
    let entries: Vec<_> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("{{{}}}", entries.join(","))
}

fn snake_case(camel_case: &str) -> String {
    let mut snake = String::new();
    for character in camel_case.chars() {
        if character.is_uppercase() {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake
}

#[test]
fn every_type_is_written_as_it_was_read() {
    for sample in messages().into_iter().chain(one_ofs()) {
        assert_eq!((sample.recode)(sample.json).unwrap(), sample.json, "{}", sample.type_name);
    }
}

#[test]
fn every_field_is_known_by_its_snake_case_name() {
    for sample in messages().into_iter().chain(one_ofs()) {
        let mut renamed = fields(&sample);
        renamed.iter_mut().for_each(|(name, _)| *name = snake_case(name));
        assert_eq!((sample.recode)(&object(&renamed)).unwrap(), sample.json, "{}", sample.type_name);
    }
}

#[test]
fn null_is_the_same_as_absent_in_every_field() {
    for sample in messages() {
        let fields = fields(&sample);
        for index in 0..fields.len() {
            let mut with_null = fields.clone();
            let mut without = fields.clone();
            with_null[index].1 = "null".to_owned();
            let (name, _) = without.remove(index);
            let absent = (sample.recode)(&object(&without)).unwrap();
            assert_eq!((sample.recode)(&object(&with_null)).unwrap(), absent, "{}.{name}", sample.type_name);
        }
    }
}

#[test]
fn a_field_that_comes_twice_is_refused_by_name() {
    for sample in messages() {
        for (name, value) in fields(&sample) {
            for second_name in [name.clone(), snake_case(&name)] {
                let open_object = sample.json.strip_suffix('}').unwrap();
                let twice = format!("{open_object},\"{second_name}\":{value}}}");
                let error = (sample.recode)(&twice).unwrap_err().to_string();
                assert!(error.starts_with(&format!("duplicate field `{name}`")), "{twice}: {error}");
            }
        }
    }
}

#[test]
fn unknown_fields_are_ignored_however_deep_they_nest() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for sample in messages().into_iter().chain(one_ofs()) {
        let open_object = sample.json.strip_suffix('}').unwrap();
        let comma = if open_object == "{" { "" } else { "," };
        let extended = format!("{open_object}{comma}\"unknownField\":{deep}}}");
        assert_eq!((sample.recode)(&extended).unwrap(), sample.json, "{}", sample.type_name);
    }
}

#[test]
fn an_array_is_no_message() {
    for sample in messages().into_iter().chain(one_ofs()) {
        let error = (sample.recode)("[]").unwrap_err().to_string();
        let expected = format!("invalid type: sequence, expected a JSON object ({})", sample.type_name);
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn exactly_one_alternative_must_be_set() {
    for sample in one_ofs() {
        let name = &fields(&sample)[0].0;
        let error = (sample.recode)("{}").unwrap_err().to_string();
        assert!(error.starts_with("one of `") && error.contains("is required"), "{error}");

        let twice = sample.json.strip_suffix('}').unwrap().to_owned() + "," + &sample.json[1..];
        let error = (sample.recode)(&twice).unwrap_err().to_string();
        assert!(error.starts_with("more than one of `") && error.contains(name.as_str()), "{error}");
    }
}

#[test]
fn null_beside_the_content_of_a_part_is_absent_and_alone_it_is_data() {
    let recode = |json: &str| serde_json::from_str::<Part>(json).map(|part| serde_json::to_string(&part).unwrap());
    for json in [r#"{"text":"x","data":null}"#, r#"{"data":null,"text":"x"}"#, r#"{"raw":null,"text":"x","url":null}"#]
    {
        assert_eq!(recode(json).unwrap(), r#"{"text":"x"}"#);
    }
    assert_eq!(recode(r#"{"data":null}"#).unwrap(), r#"{"data":null}"#);
    assert!(recode(r#"{"text":null}"#).is_err());
}

#[test]
fn empty_strings_are_absent_where_a_field_is_optional() {
    let json = r#"{"messageId":"m","contextId":"","taskId":"","role":"ROLE_USER","parts":[]}"#;
    let message: Message = serde_json::from_str(json).unwrap();
    assert_eq!((message.context_id, message.task_id), (None, None));
}

#[test]
fn integers_may_be_quoted_or_written_as_fractions() {
    let history_length = |json: &str| {
        let request = serde_json::from_str::<GetTaskRequest>(&format!(r#"{{"historyLength":{json}}}"#));
        request.map(|request| request.history_length).map_err(|error| error.to_string())
    };
    for (json, expected) in
        [("5", 5), ("\"5\"", 5), ("\"-5\"", -5), ("5.0", 5), ("1e2", 100), ("-2147483648", i32::MIN)]
    {
        assert_eq!(history_length(json), Ok(Some(expected)), "{json}");
    }
    for json in ["0.5", "2147483648", "\"\"", "\"many\"", "true", "[]"] {
        let error = history_length(json).unwrap_err();
        assert!(error.contains("expected a 32-bit integer"), "{json}: {error}");
    }
}

#[test]
fn what_is_absent_has_its_default() {
    assert_eq!(serde_json::from_str::<SendMessageRequest>("{}").unwrap(), SendMessageRequest::default());
    assert_eq!(serde_json::from_str::<Task>("{}").unwrap(), Task::default());
}

#[test]
fn keys_may_be_escaped() {
    let request: GetTaskRequest = serde_json::from_str(r#"{"\u0069d":"t"}"#).unwrap();
    assert_eq!(request.id.as_str(), "t");
}
