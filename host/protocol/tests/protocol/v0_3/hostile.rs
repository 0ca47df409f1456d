//! Wrong parameters, and their names in the error.

use annex_protocol::v0_3::{request, rest};
use annex_protocol::{Json, http_json, jsonrpc};

use super::{json, message, violations};

fn check_part(part: &str, expected: &str) {
    let found = violations(request::send_message(&message(part)));
    assert_eq!(found, [expected], "{part}");
}

#[test]
fn a_part_is_exactly_one_of_its_kinds() {
    const PART: &str = "message.parts[0]";
    let unknown = format!("{PART}: unknown kind, expected one of `text`, `file`, `data`");
    check_part(r#"{"kind":"video","text":"x"}"#, &unknown);
    check_part(r#"{"kind":"Text","text":"x"}"#, &unknown);
    check_part(r#"{"kind":"file","text":"x"}"#, &format!("{PART}: kind is `file` but the content is in `text`"));
    check_part(r#"{"kind":"data","text":"x"}"#, &format!("{PART}: kind is `data` but the content is in `text`"));
    let both = format!("{PART}.file: more than one of `text`, `file`, `data` is set");
    check_part(r#"{"kind":"text","text":"x","file":{"uri":"u"}}"#, both.replace(".file", "").as_str());
    for part in [r#"{"kind":"text"}"#, "{}", r#"{"kind":"data","data":null}"#] {
        check_part(part, &format!("{PART}: one of `text`, `file`, `data` is required"));
    }
}

#[test]
fn a_value_of_the_wrong_type_is_named_by_its_path() {
    check_part(r#"{"kind":1,"text":"x"}"#, "message.parts[0].kind: invalid type: integer `1`, expected a string");
    check_part(r#"{"kind":"text","text":7}"#, "message.parts[0].text: invalid type: integer `7`, expected a string");
    check_part("7", "message.parts[0]: invalid type: integer `7`, expected a JSON object (Part)");
    check_part("[]", "message.parts[0]: invalid type: sequence, expected a JSON object (Part)");
    check_part(
        r#"{"kind":"file","file":"x"}"#,
        "message.parts[0].file: invalid type: string \"x\", expected a JSON object (file)",
    );
    for data in ["[1]", "7", "\"x\"", "true"] {
        let part = format!(r#"{{"kind":"data","data":{data}}}"#);
        check_part(&part, "message.parts[0].data: data must be a JSON object");
    }
    let params = json(r#"{"message":{"role":"user"},"configuration":{"blocking":"yes"}}"#);
    let expected = "configuration.blocking: invalid type: string \"yes\", expected a boolean";
    assert_eq!(violations(request::send_message(&params)), [expected]);
    let params = json(r#"{"id":{"$ne":null}}"#);
    assert_eq!(violations(request::get_task(&params)), ["id: invalid type: map, expected a string"]);
}

#[test]
fn a_file_has_either_bytes_or_a_uri() {
    let required = "message.parts[0].file: one of `bytes`, `uri` is required";
    for file in ["{}", r#"{"name":"n"}"#, r#"{"bytes":null}"#] {
        check_part(&format!(r#"{{"kind":"file","file":{file}}}"#), required);
    }
    check_part(
        r#"{"kind":"file","file":{"bytes":"aGk=","uri":"https://u"}}"#,
        "message.parts[0].file: more than one of `bytes`, `uri` is set",
    );
    check_part(r#"{"kind":"file","file":{"bytes":"?"}}"#, "message.parts[0].file.bytes: is not base64");
}

#[test]
fn fields_and_keys_that_come_twice_are_refused() {
    for (part, field) in [
        (r#"{"kind":"text","kind":"file","text":"x"}"#, "kind"),
        (r#"{"text":"x","text":"y"}"#, "text"),
        (r#"{"text":"x","metadata":{"k":1,"k":2}}"#, "metadata.k"),
        (r#"{"data":{"a":[{"k":1,"k":2}]}}"#, "data.a[0].k"),
    ] {
        let params = format!(r#"{{"message":{{"messageId":"m","role":"user","parts":[{part}]}}}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"message/send","params":{params}}}"#);
        let refused = jsonrpc::decode(body.as_bytes()).map_err(|rejection| rejection.error);
        let expected = [format!("message.parts[0].{field}: the key stands twice in its object")];
        assert_eq!(violations(refused), expected, "{part}");
        assert_eq!(violations(http_json::body(params.as_bytes())), expected, "{part}");
    }
}

#[test]
fn messages_have_a_kind_a_role_and_an_id() {
    let check = |message: &str, expected: &[&str]| {
        let params = json(&format!(r#"{{"message":{message}}}"#));
        assert_eq!(violations(request::send_message(&params)), expected, "{message}");
    };
    check("{}", &["message: is required, with messageId, role user and at least one part"]);
    check(r#"{"kind":"task"}"#, &["message.kind: must be `message`"]);
    check(r#"{"kind":2}"#, &["message.kind: invalid type: integer `2`, expected a string"]);
    let unknown = "message.role: unknown role, expected one of `user`, `agent`";
    check(r#"{"role":"ROLE_USER"}"#, &[unknown]);
    check(r#"{"role":"system"}"#, &[unknown]);
    check(r#"{"role":1}"#, &["message.role: invalid type: integer `1`, expected a string"]);
    check(
        r#"{"role":"agent"}"#,
        &["message.messageId: is required", "message.role: must be user", "message.parts: must have at least one part"],
    );
    check(r#"{"parts":{}}"#, &["message.parts: invalid type: map, expected a sequence"]);
}

#[test]
fn an_answer_to_an_extension_may_have_no_parts_and_no_other_message() {
    let sent = |message: &str| request::send_message(&json(&format!(r#"{{"message":{message}}}"#)));
    let answer =
        r#"{"kind":"message","messageId":"m","role":"user","taskId":"t","parts":[],"metadata":{"urn:a":{"k":1}}}"#;
    let request = sent(answer).expect("a request");
    assert_eq!((request.message.text().as_str(), request.message.parts.len()), ("", 1));
    for wrong in [
        answer.replace(r#""taskId":"t","#, ""),
        answer.replace(r#""urn:a":{"k":1}"#, ""),
        answer.replace("urn:a", "note"),
        answer.replace("urn:a", ":a"),
        answer.replace("urn:a", "a note: b"),
        answer.replace(r#"{"k":1}"#, "1"),
    ] {
        assert_eq!(violations(sent(&wrong)), ["message.parts: must have at least one part"], "{wrong}");
    }
    let content =
        r#"{"messageId":"m","role":"ROLE_USER","taskId":"t","content":[],"metadata":{"https://a.example/v1":{}}}"#;
    let request = rest::send_message(&json(&format!(r#"{{"message":{content}}}"#))).expect("a request");
    assert_eq!(request.message.parts.len(), 1);
}

#[test]
fn what_is_missing_has_its_0_3_name() {
    let set = |params: &str| violations(request::create_push_config(&json(params)));
    assert_eq!(set("{}"), ["taskId: is required", "pushNotificationConfig.url: is required"]);
    let config = r#"{"url":"https://u","authentication":{"credentials":"s3cret"}}"#;
    let without_scheme = set(&format!(r#"{{"taskId":"t","pushNotificationConfig":{config}}}"#));
    assert_eq!(without_scheme, ["pushNotificationConfig.authentication.schemes: is required"]);

    let inline = format!(r#"{{"historyLength":-1,"pushNotificationConfig":{}}}"#, config.replace("https://u", ""));
    let parts = r#"{"messageId":"m","role":"user","parts":[{"text":"x"}]}"#;
    let params = json(&format!(r#"{{"message":{parts},"configuration":{inline}}}"#));
    assert_eq!(
        violations(request::send_message(&params)),
        [
            "configuration.historyLength: must not be negative",
            "configuration.pushNotificationConfig.url: is required",
            "configuration.pushNotificationConfig.authentication.schemes: is required",
        ]
    );

    let empty = json("{}");
    assert_eq!(violations(request::get_task(&empty)), ["id: is required"]);
    assert_eq!(violations(request::cancel_task(&empty)), ["id: is required"]);
    assert_eq!(violations(request::subscribe_to_task(&empty)), ["id: is required"]);
    assert_eq!(violations(request::get_push_config(&empty)), ["id: is required"]);
    assert_eq!(violations(request::list_push_configs(&empty)), ["id: is required"]);
    assert_eq!(
        violations(request::delete_push_config(&empty)),
        ["id: is required", "pushNotificationConfigId: is required"]
    );
}

#[test]
fn values_nest_as_deep_as_in_1_0_and_no_deeper() {
    let nested = |depth: usize| format!(r#"{{"d":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    let params = |depth| {
        let part = format!(r#"{{"kind":"data","data":{}}}"#, nested(depth));
        format!(r#"{{"message":{{"messageId":"m","role":"user","parts":[{part}]}}}}"#)
    };
    // Around the brackets: the params, the message, the list of parts, the part and the data.
    let deepest = Json::MAX_DEPTH - 5;
    let request = request::send_message(&json(&params(deepest))).unwrap();
    assert!(serde_json::to_string(&request).unwrap().contains(&nested(deepest)));
    assert!(Json::parse(params(deepest + 1)).is_err());
    assert!(Json::parse(params(100_000)).is_err());
}

#[test]
fn the_number_of_violations_is_bounded() {
    let parts = vec![r#"{"kind":"file","file":{"bytes":"?"}}"#; 1000].join(",");
    assert_eq!(violations(request::send_message(&message(&parts))).len(), 20);
}
