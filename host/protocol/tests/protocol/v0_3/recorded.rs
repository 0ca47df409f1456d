//! Requests of the official Python client of 0.3 over JSON-RPC.

use annex_protocol::jsonrpc::{self, Request};
use annex_protocol::v0_3::{Method, request};
use annex_protocol::{PartContent, Role, SendMessageRequest, TaskPushNotificationConfig};

use super::json;

macro_rules! recorded {
    ($name:literal) => {
        jsonrpc::decode(include_bytes!(concat!("fixtures/requests/jsonrpc/", $name, ".json"))).unwrap()
    };
}

/// The request of a recorded body, whose method must be `method`.
fn check<T>(
    body: &Request,
    method: Method,
    read: fn(&annex_protocol::Json) -> Result<T, annex_protocol::A2aError>,
) -> T {
    assert_eq!(Method::from_name(&body.method), Some(method));
    read(&body.params_json().unwrap()).unwrap()
}

#[test]
fn a_plain_message_is_awaited() {
    let sent = check(&recorded!("message-send"), Method::SendMessage, request::send_message);
    let expected = r#"{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"Who am I?"}]}}"#;
    assert_eq!(serde_json::to_string(&sent).unwrap(), expected);
    assert!(!sent.configuration.return_immediately);
}

#[test]
fn a_message_with_everything_arrives_whole() {
    let sent = check(&recorded!("message-send-full"), Method::SendMessage, request::send_message);
    let message = r#"{"messageId":"m-1","contextId":"c-1","taskId":"t-1","role":"ROLE_USER","parts":[{"text":"Grüße","metadata":{"lang":"de"}},{"raw":"aGk=","filename":"hi.txt","mediaType":"text/plain"},{"url":"https://files.example/a.png","metadata":{"alt":"a"},"mediaType":"image/png"},{"data":{"count":42,"ratio":1.0,"nested":{"list":[1,null,"x"]}}}],"metadata":{"urn:example:ext/v1":{"k":1}},"extensions":["urn:example:ext/v1"],"referenceTaskIds":["t-0"]}"#;
    let config = r#"{"id":"p-1","url":"https://receiver.example/hook","token":"t0ken","authentication":{"scheme":"Bearer","credentials":"s3cret"},"annexReceiverIsV03":true}"#;
    let expected = format!(
        r#"{{"message":{message},"configuration":{{"acceptedOutputModes":["text/plain","application/json"],"taskPushNotificationConfig":{config},"historyLength":5}},"metadata":{{"trace":"abc"}}}}"#
    );
    assert_eq!(serde_json::to_string(&sent).unwrap(), expected);
    assert!(!format!("{sent:?}").contains("s3cret"));
}

#[test]
fn blocking_false_answers_at_once_and_no_history_length_means_no_limit() {
    let sent = check(&recorded!("message-send-nonblocking"), Method::SendMessage, request::send_message);
    assert!(sent.configuration.return_immediately);
    assert_eq!(sent.configuration.history_length, None);
}

#[test]
fn a_streamed_message_is_read_like_a_sent_one() {
    let sent = check(&recorded!("message-stream"), Method::SendStreamingMessage, request::send_message);
    assert_eq!(sent.message.context_id, Some("c-1".into()));
    assert_eq!((sent.message.role, sent.message.text()), (Role::User, "Who am I?".to_owned()));
}

#[test]
fn requests_about_tasks_name_the_task() {
    let get = check(&recorded!("tasks-get"), Method::GetTask, request::get_task);
    assert_eq!((get.id.as_str(), get.history_length), ("t-1", Some(3)));
    let cancel = check(&recorded!("tasks-cancel"), Method::CancelTask, request::cancel_task);
    assert_eq!((cancel.id.as_str(), cancel.metadata.to_json_string().as_str()), ("t-1", r#"{"reason":"enough"}"#));
    let subscribe = check(&recorded!("tasks-resubscribe"), Method::SubscribeToTask, request::subscribe_to_task);
    assert_eq!(subscribe.id.as_str(), "t-1");
}

#[test]
fn requests_about_push_configs_name_the_task_and_the_config() {
    let set = check(&recorded!("push-set"), Method::CreateTaskPushNotificationConfig, request::create_push_config);
    let expected = r#"{"id":"p-1","taskId":"t-1","url":"https://receiver.example/hook","token":"t0ken","authentication":{"scheme":"Bearer","credentials":"s3cret"}}"#;
    let expected = TaskPushNotificationConfig { receiver_is_v0_3: true, ..serde_json::from_str(expected).unwrap() };
    assert_eq!(set, expected);

    let get = check(&recorded!("push-get"), Method::GetTaskPushNotificationConfig, request::get_push_config);
    assert_eq!((get.task_id.as_str(), get.id.as_str()), ("t-1", "p-1"));

    let params = json(r#"{"id":"t-1","pushNotificationConfigId":"p-1"}"#);
    let delete = request::delete_push_config(&params).unwrap();
    assert_eq!((delete.task_id.as_str(), delete.id.as_str()), ("t-1", "p-1"));
    let list = request::list_push_configs(&json(r#"{"id":"t-1"}"#)).unwrap();
    assert_eq!((list.task_id.as_str(), list.page_size), ("t-1", i32::MAX));
}

#[test]
fn a_push_config_may_be_asked_for_without_its_id() {
    let get = request::get_push_config(&json(r#"{"id":"t-1"}"#)).unwrap();
    assert_eq!((get.task_id.as_str(), get.id.as_str()), ("t-1", ""));
}

#[test]
fn the_extended_card_is_asked_for_without_parameters() {
    let body = recorded!("card");
    assert_eq!(Method::from_name(&body.method), Some(Method::GetExtendedAgentCard));
    assert_eq!(body.params, "{}");
}

#[test]
fn no_name_is_a_method_of_both_versions() {
    for method in Method::ALL {
        assert_eq!(Method::from_name(method.name()), Some(*method));
        assert_eq!(Method::from_name(method.of_1_0().name()), None);
    }
    for name in ["", "message/Send", "tasks/list", "message/send "] {
        assert_eq!(Method::from_name(name), None, "{name}");
    }
}

#[test]
fn the_first_of_several_schemes_is_used_and_no_scheme_is_no_authentication() {
    let authentication = |authentication: &str| {
        let config = format!(r#"{{"url":"https://u","authentication":{authentication}}}"#);
        let params = json(&format!(r#"{{"taskId":"t","pushNotificationConfig":{config}}}"#));
        request::create_push_config(&params).unwrap().authentication
    };
    assert_eq!(authentication(r#"{"schemes":["Basic","Bearer"]}"#).unwrap().scheme, "Basic");
    assert_eq!(authentication(r#"{"schemes":[]}"#), None);
}

#[test]
fn kind_and_every_optional_field_may_be_missing_or_null() {
    let texts = [
        r#"{"message":{"messageId":"m","role":"user","parts":[{"text":"x"}]}}"#,
        r#"{"message":{"kind":null,"messageId":"m","role":"user","parts":[{"kind":null,"text":"x","metadata":null,"file":null}],"contextId":null,"taskId":null,"metadata":null,"extensions":null,"referenceTaskIds":null},"configuration":null,"metadata":null}"#,
        r#"{"message":{"message_id":"m","role":"user","parts":[{"text":"x","unknown":[[]]}],"context_id":""},"configuration":{"blocking":null}}"#,
    ];
    let requests: Vec<SendMessageRequest> =
        texts.iter().map(|text| request::send_message(&json(text)).unwrap()).collect();
    assert!(requests.windows(2).all(|pair| pair[0] == pair[1]));
    assert!(matches!(&requests[0].message.parts[0].content, PartContent::Text(text) if text == "x"));
}
