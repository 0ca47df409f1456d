//! Required fields, ranges and base64.

use annex_protocol::{
    A2aError, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetTaskPushNotificationConfigRequest,
    GetTaskRequest, ListTaskPushNotificationConfigsRequest, ListTasksRequest, SendMessageRequest,
    SubscribeToTaskRequest, TaskPushNotificationConfig,
};
use serde::de::DeserializeOwned;

fn check<T: DeserializeOwned>(validate: impl Fn(&T) -> Result<(), A2aError>, json: &str, expected: &[&str]) {
    let request: T = serde_json::from_str(json).unwrap();
    let fields = match validate(&request) {
        Ok(()) => Vec::new(),
        Err(A2aError::InvalidParams { violations }) => {
            violations.into_iter().map(|violation| violation.field).collect()
        }
        Err(error) => panic!("{error:?}"),
    };
    assert_eq!(fields, expected, "{json}");
}

fn check_send(json: &str, expected: &[&str]) {
    check(SendMessageRequest::validate, json, expected);
}

fn check_part(part: &str, expected: &[&str]) {
    let json = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"x"}},{part}]}}}}"#);
    check_send(&json, expected);
}

#[test]
fn a_message_needs_an_id_the_role_of_the_user_and_a_part() {
    check_send(r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}"#, &[]);
    check_send("{}", &["message"]);
    check_send(r#"{"message":null}"#, &["message"]);
    check_send(r#"{"message":{"contextId":"c"}}"#, &["message.messageId", "message.role", "message.parts"]);
    check_send(r#"{"message":{"messageId":"","role":"ROLE_USER","parts":[{"text":"x"}]}}"#, &["message.messageId"]);
    check_send(r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}"#, &["message.role"]);
    check_send(r#"{"message":{"messageId":"m","role":1,"parts":[]}}"#, &["message.parts"]);
}

#[test]
fn raw_parts_are_base64_in_either_alphabet_with_or_without_padding() {
    for raw in ["", "aGk=", "aGk", "aGVs", "+/+/", "-_-_", "aA==", "aA"] {
        check_part(&format!(r#"{{"raw":"{raw}"}}"#), &[]);
    }
    for raw in ["a", "aG k", "aGk==", "aA=", "=", "aGVs====", "ä", "aGk=aGk="] {
        check_part(&format!(r#"{{"raw":"{raw}"}}"#), &["message.parts[1].raw"]);
    }
}

#[test]
fn the_number_of_violations_is_bounded() {
    let parts = vec![r#"{"raw":"?"}"#; 1000].join(",");
    let json = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{parts}]}}}}"#);
    let request: SendMessageRequest = serde_json::from_str(&json).unwrap();
    let Err(A2aError::InvalidParams { violations }) = request.validate() else { panic!("must be refused") };
    assert_eq!(violations.len(), 20);
}

#[test]
fn the_configuration_is_checked_with_the_message() {
    let configured = |configuration: &str, expected: &[&str]| {
        let message = r#"{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}"#;
        check_send(&format!(r#"{{"message":{message},"configuration":{configuration}}}"#), expected);
    };
    configured(r#"{"historyLength":0}"#, &[]);
    configured(r#"{"historyLength":-1}"#, &["configuration.historyLength"]);
    configured(r#"{"taskPushNotificationConfig":{"url":"https://u"}}"#, &[]);
    configured(
        r#"{"taskPushNotificationConfig":{"authentication":{}}}"#,
        &[
            "configuration.taskPushNotificationConfig.url",
            "configuration.taskPushNotificationConfig.authentication.scheme",
        ],
    );
}

#[test]
fn requests_about_tasks_need_an_id() {
    check(GetTaskRequest::validate, r#"{"id":"t"}"#, &[]);
    check(GetTaskRequest::validate, r#"{"historyLength":-1}"#, &["id", "historyLength"]);
    check(CancelTaskRequest::validate, r#"{"id":"t"}"#, &[]);
    check(CancelTaskRequest::validate, "{}", &["id"]);
    check(SubscribeToTaskRequest::validate, r#"{"id":"t"}"#, &[]);
    check(SubscribeToTaskRequest::validate, "{}", &["id"]);
}

#[test]
fn lists_have_a_page_size_of_1_to_100() {
    for json in ["{}", r#"{"pageSize":1}"#, r#"{"pageSize":100,"historyLength":0}"#] {
        check(ListTasksRequest::validate, json, &[]);
    }
    check(ListTasksRequest::validate, r#"{"pageSize":0}"#, &["pageSize"]);
    check(ListTasksRequest::validate, r#"{"pageSize":101,"historyLength":-1}"#, &["pageSize", "historyLength"]);
}

#[test]
fn requests_about_push_configs_name_the_task_and_the_config() {
    check(TaskPushNotificationConfig::validate, r#"{"taskId":"t","url":"https://u"}"#, &[]);
    check(TaskPushNotificationConfig::validate, "{}", &["taskId", "url"]);
    check(GetTaskPushNotificationConfigRequest::validate, r#"{"taskId":"t","id":"p"}"#, &[]);
    check(GetTaskPushNotificationConfigRequest::validate, "{}", &["taskId", "id"]);
    check(DeleteTaskPushNotificationConfigRequest::validate, r#"{"taskId":"t","id":"p"}"#, &[]);
    check(DeleteTaskPushNotificationConfigRequest::validate, "{}", &["taskId", "id"]);
    check(ListTaskPushNotificationConfigsRequest::validate, r#"{"taskId":"t"}"#, &[]);
    check(ListTaskPushNotificationConfigsRequest::validate, r#"{"pageSize":-1}"#, &["taskId", "pageSize"]);
}
