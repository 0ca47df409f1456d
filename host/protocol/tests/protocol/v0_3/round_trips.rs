//! What 0.3 clients send comes back to them as they sent it.

use annex_protocol::v0_3::{self, Message, request};
use annex_protocol::{Part, PartContent, TaskState, TaskStatus, TaskStatusUpdateEvent};

use super::{json, message};

#[test]
fn every_kind_of_part_comes_back_byte_for_byte() {
    for part in [
        r#"{"kind":"text","text":""}"#,
        r#"{"kind":"text","text":"a\nb \"c\"","metadata":{"z":1.0,"a":{"k": [ ]}}}"#,
        r#"{"kind":"file","file":{"bytes":"aGk="}}"#,
        r#"{"kind":"file","file":{"bytes":"","mimeType":"text/plain","name":"empty.txt"}}"#,
        r#"{"kind":"file","file":{"uri":"https://u","mimeType":"image/png","name":"n"},"metadata":{"k":null}}"#,
        r#"{"kind":"data","data":{}}"#,
        r#"{"kind":"data","data":{"id":9007199254740993,"ratio":1.50,"z":1,"a":null}}"#,
        r#"{"kind":"data","data":{"value":[1.0,null]},"metadata":{"k":1,"data_part_compat":true}}"#,
        r#"{"kind":"data","data":{"value":null},"metadata":{"data_part_compat":true}}"#,
        r#"{"kind":"data","data":{"other":1},"metadata":{"data_part_compat":true}}"#,
        r#"{"kind":"data","data":{"value":1},"metadata":{"data_part_compat":false}}"#,
    ] {
        let request = request::send_message(&message(part)).unwrap();
        assert_eq!(serde_json::to_string(&v0_3::Part(&request.message.parts[0])).unwrap(), part);
    }
}

#[test]
fn a_message_comes_back_whole() {
    let text = r#"{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}],"contextId":"c","taskId":"t","referenceTaskIds":["r"],"metadata":{"k":1.0},"extensions":["urn:e"]}"#;
    let request = request::send_message(&json(&format!(r#"{{"message":{text}}}"#))).unwrap();
    assert_eq!(serde_json::to_string(&Message::from(&request.message)).unwrap(), text);
}

#[test]
fn data_that_is_no_object_is_wrapped_and_unwrapped() {
    for value in ["[1.0]", "7", "\"x\"", "null", "true"] {
        let part = Part::from(PartContent::Data(json(value)));
        let wrapped = serde_json::to_string(&v0_3::Part(&part)).unwrap();
        let expected =
            format!(r#"{{"kind":"data","data":{{"value":{value}}},"metadata":{{"data_part_compat":true}}}}"#);
        assert_eq!(wrapped, expected);
        assert_eq!(request::send_message(&message(&wrapped)).unwrap().message.parts, [part]);
    }
}

#[test]
fn every_state_has_its_name_and_the_last_event_of_a_stream_is_final() {
    let names = TaskState::ALL.iter().map(|state| {
        let status = TaskStatus { state: *state, ..TaskStatus::default() };
        let event = TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() };
        let text = serde_json::to_string(&v0_3::TaskStatusUpdateEvent::from(&event)).unwrap();
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        (event["status"]["state"].as_str().unwrap().to_owned(), event["final"].as_bool().unwrap())
    });
    let expected = [
        ("unknown", false),
        ("submitted", false),
        ("working", false),
        ("completed", true),
        ("failed", true),
        ("canceled", true),
        ("input-required", true),
        ("rejected", true),
        ("auth-required", true),
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected.map(|(name, last)| (name.to_owned(), last)));
}
