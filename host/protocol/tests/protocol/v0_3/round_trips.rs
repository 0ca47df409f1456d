//! Round trips: clients of 0.3 get back what they sent.

use annex_protocol::v0_3::{self, Message, request};
use annex_protocol::{
    Json, Part, PartContent, SendMessageRequest, StreamResponse, TaskState, TaskStatus, TaskStatusUpdateEvent,
};

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
fn the_media_type_of_data_is_in_its_metadata() {
    let written = |part: &Part| serde_json::to_string(&v0_3::Part(part)).unwrap();
    let mut part = Part::from(PartContent::Data(json("{}")));
    part.media_type = "application/a2ui+json".to_owned();
    let expected = r#"{"kind":"data","data":{},"metadata":{"mimeType":"application/a2ui+json"}}"#;
    assert_eq!(written(&part), expected);
    assert!(part.metadata.is_empty(), "clients of 1.0 get the part without the mark");
    // A mark that a client of 0.3 has set stays where extensions of 0.3 look for it.
    let read = request::send_message(&message(expected)).unwrap().message.parts.remove(0);
    assert_eq!((read.media_type.as_str(), read.metadata.len()), ("application/a2ui+json", 1));
    assert_eq!(written(&read), expected);
    // The field of 1.0 counts more than a mark, and a list has both marks.
    let mut other = Part { media_type: "a/b".to_owned(), ..read };
    other.content = PartContent::Data(json("[]"));
    let expected = r#"{"kind":"data","data":{"value":[]},"metadata":{"mimeType":"a/b","data_part_compat":true}}"#;
    assert_eq!(written(&other), expected);
    // A text has no such mark, and a mark that is no text says nothing.
    part.content = PartContent::Text("x".to_owned());
    assert_eq!(written(&part), r#"{"kind":"text","text":"x"}"#);
    let odd = message(r#"{"kind":"data","data":{},"metadata":{"mimeType":7}}"#);
    assert_eq!(request::send_message(&odd).unwrap().message.parts[0].media_type, "");
    let text = message(r#"{"kind":"text","text":"x","metadata":{"mimeType":"a/b"}}"#);
    assert_eq!(request::send_message(&text).unwrap().message.parts[0].media_type, "");
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

#[test]
fn an_answer_of_0_3_is_read_as_the_event_that_it_was_written_from() {
    let status = r#"{"state":"TASK_STATE_INPUT_REQUIRED","message":{"messageId":"m","contextId":"c","taskId":"t","role":"ROLE_AGENT","parts":[{"text":"Which?"}],"extensions":["urn:e"]},"timestamp":"2026-11-20T12:00:00.000Z"}"#;
    let artifact = r#"{"artifactId":"a","name":"n","description":"d","parts":[{"data":{"n":1.0}},{"raw":"aGk=","filename":"f","mediaType":"text/plain"}],"metadata":{"k":[1.0]},"extensions":["urn:e"]}"#;
    for event in [
        format!(
            r#"{{"task":{{"id":"t","contextId":"c","status":{status},"artifacts":[{artifact}],"history":[{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"x"}}]}}],"metadata":{{"k":1}}}}}}"#
        ),
        r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"url":"https://u"}],"metadata":{"k":null}}}"#
            .to_owned(),
        format!(r#"{{"statusUpdate":{{"taskId":"t","contextId":"c","status":{status},"metadata":{{"k":1.0}}}}}}"#),
        format!(
            r#"{{"artifactUpdate":{{"taskId":"t","contextId":"c","artifact":{artifact},"append":true,"lastChunk":true}}}}"#
        ),
    ] {
        let event: StreamResponse = serde_json::from_str(&event).unwrap();
        let written = Json::from_serialize(&v0_3::Event::from(&event)).unwrap();
        assert_eq!(v0_3::answer::event(&written).unwrap(), event, "{written:?}");
    }
    for unknown in ["{}", r#"{"kind":"other"}"#, r#"{"kind":"task","status":{"state":"odd"}}"#, "[]"] {
        assert!(v0_3::answer::event(&json(unknown)).is_err(), "{unknown}");
    }
}

#[test]
fn parameters_that_a_client_writes_are_read_as_the_request() {
    let text = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"acceptedOutputModes":["text/plain"],"historyLength":3,"returnImmediately":true},"metadata":{"k":1.0}}"#;
    let request: SendMessageRequest = serde_json::from_str(text).unwrap();
    let written = Json::from_serialize(&v0_3::call::MessageSendParams::from(&request)).unwrap();
    assert_eq!(request::send_message(&written).unwrap(), request);
}

#[test]
fn a_card_of_0_3_is_read_with_all_its_interfaces_and_without_its_security() {
    let card = v0_3::read_card(
        r#"{"name":"n","url":"http://a/","preferredTransport":"HTTP+JSON","protocolVersion":"0.3.0",
            "additionalInterfaces":[{"transport":"HTTP+JSON","url":"http://a/"},{"transport":"JSONRPC","url":"http://a/rpc"}],
            "capabilities":{"streaming":true,"extensions":[{"uri":"urn:e"}]},
            "securitySchemes":{"k":{"type":"apiKey","in":"header","name":"x"}},"security":[{"k":[]}]}"#,
    )
    .unwrap();
    let interfaces: Vec<_> =
        card.supported_interfaces.iter().map(|one| format!("{} {}", one.protocol_binding, one.url)).collect();
    assert_eq!(interfaces, ["HTTP+JSON http://a/", "JSONRPC http://a/rpc"]);
    assert_eq!((card.capabilities.streaming, card.capabilities.extensions.len()), (Some(true), 1));
    assert!(card.security_schemes.is_empty());
}
