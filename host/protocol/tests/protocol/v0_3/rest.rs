//! Requests of the official Python client of 0.3 over HTTP+JSON, and requests that must be refused there.

use annex_protocol::v0_3::rest;
use annex_protocol::{Json, Part, PartContent, SendMessageRequest, StreamResponse, TaskPushNotificationConfig};

use super::{json, violations};

macro_rules! recorded {
    ($name:literal) => {
        json(include_str!(concat!("fixtures/requests/rest/", $name, ".json")).trim_end())
    };
}

fn message(part: &str) -> annex_protocol::Json {
    json(&format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","content":[{part}]}}}}"#))
}

#[test]
fn a_message_with_everything_arrives_whole() {
    let sent = rest::send_message(&recorded!("message-send-full")).unwrap();
    let message = r#"{"messageId":"m-1","contextId":"c-1","taskId":"t-1","role":"ROLE_USER","parts":[{"text":"Grüße","metadata":{"lang":"de"}},{"raw":"aGk=","filename":"hi.txt","mediaType":"text/plain"},{"url":"https://files.example/a.png","metadata":{"alt":"a"},"mediaType":"image/png"},{"data":{"ratio":1.0,"count":42.0,"nested":{"list":[1.0,null,"x"]}}}],"metadata":{"urn:example:ext/v1":{"k":1.0}},"extensions":["urn:example:ext/v1"]}"#;
    assert_eq!(serde_json::to_string(&sent.message).unwrap(), message);
    let configuration = &sent.configuration;
    assert_eq!((configuration.history_length, configuration.return_immediately), (Some(5), false));
    assert_eq!(configuration.accepted_output_modes, ["text/plain", "application/json"]);
    let config = configuration.task_push_notification_config.as_ref().unwrap();
    assert_eq!(
        (config.id.as_deref(), config.authentication.as_ref().unwrap().scheme.as_str()),
        (Some("p-1"), "Bearer")
    );
    assert_eq!(sent.metadata.to_json_string(), r#"{"trace":"abc"}"#);
}

#[test]
fn only_blocking_true_is_awaited() {
    for body in [recorded!("message-send"), recorded!("message-send-nonblocking"), recorded!("message-stream")] {
        let sent = rest::send_message(&body).unwrap();
        assert_eq!(sent.message.text(), "Who am I?");
        assert!(sent.configuration.return_immediately);
        assert_eq!(sent.configuration.history_length, None);
    }
}

#[test]
fn a_push_config_is_the_body_or_a_field_of_it() {
    let expected = r#"{"id":"p-1","taskId":"t-9","url":"https://receiver.example/hook","token":"t0ken","authentication":{"scheme":"Bearer","credentials":"s3cret"}}"#;
    let expected = TaskPushNotificationConfig { receiver_is_v0_3: true, ..serde_json::from_str(expected).unwrap() };
    let read = |body| rest::create_push_config("t-9".into(), &body);
    assert_eq!(read(recorded!("push-set")).unwrap(), expected);
    let config = r#"{"url":"https://receiver.example/hook","token":"t0ken","authentication":{"schemes":["Bearer"],"credentials":"s3cret"}}"#;
    let body = json(&format!(r#"{{"configId":"p-1","pushNotificationConfig":{config}}}"#));
    assert_eq!(read(body).unwrap(), expected);
    assert_eq!(violations(read(json("{}"))), ["config.pushNotificationConfig.url: is required"]);
    let body = r#"{"pushNotificationConfig":{"authentication":{"credentials":"s"}}}"#;
    assert_eq!(
        violations(rest::create_push_config("".into(), &json(body))),
        [
            "taskId: is required",
            "pushNotificationConfig.url: is required",
            "pushNotificationConfig.authentication.schemes: is required"
        ]
    );
}

#[test]
fn every_kind_of_part_comes_back_byte_for_byte() {
    for part in [
        r#"{"text":""}"#,
        r#"{"text":"x","metadata":{"z":1.0,"a":1}}"#,
        r#"{"file":{"fileWithBytes":"YUdrPQ==","mimeType":"text/plain","name":"hi.txt"}}"#,
        r#"{"file":{"fileWithUri":"https://u"}}"#,
        r#"{"data":{"data":{"ratio":1.50,"a":null}}}"#,
        r#"{"data":{"data":{"value":[1.0]}},"metadata":{"data_part_compat":true}}"#,
    ] {
        let request = rest::send_message(&message(part)).unwrap();
        assert_eq!(serde_json::to_string(&rest::Part(&request.message.parts[0])).unwrap(), part);
    }
}

#[test]
fn an_answer_is_read_as_the_event_that_it_was_written_from() {
    let status = r#"{"state":"TASK_STATE_CANCELED","message":{"messageId":"m","contextId":"c","taskId":"t","role":"ROLE_AGENT","parts":[{"text":"Which?"}],"extensions":["urn:e"]},"timestamp":"2026-11-20T12:00:00.000Z"}"#;
    let artifact = r#"{"artifactId":"a","name":"n","description":"d","parts":[{"data":[1.0]},{"raw":"aGk=","filename":"f","mediaType":"text/plain"}],"metadata":{"k":[1.0]},"extensions":["urn:e"]}"#;
    for event in [
        format!(
            r#"{{"task":{{"id":"t","contextId":"c","status":{status},"artifacts":[{artifact}],"metadata":{{"k":1}}}}}}"#
        ),
        r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"url":"https://u"}],"metadata":{"k":null}}}"#
            .to_owned(),
        format!(r#"{{"statusUpdate":{{"taskId":"t","contextId":"c","status":{status},"metadata":{{"k":1.0}}}}}}"#),
        format!(
            r#"{{"artifactUpdate":{{"taskId":"t","contextId":"c","artifact":{artifact},"append":true,"lastChunk":true}}}}"#
        ),
    ] {
        let event: StreamResponse = serde_json::from_str(&event).unwrap();
        let written = Json::from_serialize(&rest::Event::from(&event)).unwrap();
        assert_eq!(rest::event(&written).unwrap(), Some(event), "{written:?}");
    }
    for unknown in ["{}", r#"{"progress":{}}"#] {
        assert_eq!(rest::event(&json(unknown)).unwrap(), None, "{unknown}");
    }
    for wrong in ["[]", r#"{"task":7}"#, r#"{"task":{"status":{"state":"working"}}}"#] {
        assert!(rest::event(&json(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn a_body_that_a_client_writes_is_read_as_the_request() {
    let text = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"acceptedOutputModes":["text/plain"],"historyLength":3,"returnImmediately":true},"metadata":{"k":1.0}}"#;
    let request: SendMessageRequest = serde_json::from_str(text).unwrap();
    let written = Json::from_serialize(&rest::SendMessageRequest::from(&request)).unwrap();
    assert_eq!(rest::send_message(&written).unwrap(), request);
}

#[test]
fn bytes_may_be_encoded_once_or_twice() {
    let read = |text: &str| {
        let part = format!(r#"{{"file":{{"fileWithBytes":"{text}"}}}}"#);
        rest::send_message(&message(&part)).unwrap().message.parts.remove(0)
    };
    let raw = |text: &str| Part::from(PartContent::Raw(text.to_owned()));
    // `aGk=` is "hi"; `YUdrPQ==` is "aGk=".
    for (sent, expected) in
        [("YUdrPQ==", "aGk="), ("YUdrPQ", "aGk="), ("aGk=", "aGk="), ("/w==", "/w=="), ("_w==", "_w=="), ("", "")]
    {
        assert_eq!(read(sent), raw(expected), "{sent}");
    }
}

#[test]
fn what_is_wrong_is_named_as_the_client_wrote_it() {
    let check =
        |part: &str, expected: &str| assert_eq!(violations(rest::send_message(&message(part))), [expected], "{part}");
    check("{}", "message.content[0]: one of `text`, `file`, `data` is required");
    check(
        r#"{"text":"x","file":{"fileWithUri":"u"}}"#,
        "message.content[0]: more than one of `text`, `file`, `data` is set",
    );
    check(
        r#"{"file":{"fileWithUri":"u","fileWithBytes":"aGk="}}"#,
        "message.content[0].file: more than one of `fileWithBytes`, `fileWithUri` is set",
    );
    check(r#"{"file":{"fileWithBytes":"?"}}"#, "message.content[0].file.fileWithBytes: is not base64");
    check(r#"{"file":{"fileWithBytes":"ä"}}"#, "message.content[0].file.fileWithBytes: is not base64");
    check(r#"{"data":{"data":[1]}}"#, "message.content[0].data.data: data must be a JSON object");
    check(r#"{"data":[1]}"#, "message.content[0].data: invalid type: sequence, expected a JSON object (DataPart)");
    let body = json(r#"{"message":{"role":"user"}}"#);
    assert!(violations(rest::send_message(&body))[0].starts_with("message.role: unknown Role `user`"));
    let body = json(
        r#"{"message":{"messageId":"m","role":"ROLE_AGENT"},"configuration":{"pushNotification":{"authentication":{"credentials":"s"}}}}"#,
    );
    assert_eq!(
        violations(rest::send_message(&body)),
        [
            "message.role: must be ROLE_USER",
            "message.content: must have at least one part",
            "configuration.pushNotification.url: is required",
            "configuration.pushNotification.authentication.schemes: is required",
        ]
    );
}
