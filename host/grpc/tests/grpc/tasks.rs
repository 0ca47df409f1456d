//! The operations on messages and tasks. The tests compare every value.

use annex_grpc::pb::{
    Artifact, AuthenticationInfo, CancelTaskRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse, Message,
    Part, SendMessageConfiguration, SendMessageRequest, Task, TaskPushNotificationConfig, TaskStatus, part,
    send_message_response,
};
use prost_types::Timestamp;
use prost_types::value::Kind;

use crate::support::{Script, object, sending, start, string, text_part, value};

pub(crate) const TASK_JSON: &str = r#"{"id":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"messageId":"m-2","contextId":"c-1","taskId":"t-1","role":"ROLE_AGENT","parts":[{"text":"Which one?"}]},"timestamp":"2026-11-20T11:00:00.123Z"},"artifacts":[{"artifactId":"a-1","name":"list","description":"the list","parts":[{"raw":"aGk","filename":"hi.txt","mediaType":"text/plain"},{"url":"https://example.com/x"},{"data":[1,null]}],"metadata":{"k":"v"},"extensions":["urn:x"]}],"history":[{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"Sort"}],"referenceTaskIds":["t-0"]}],"metadata":{"done":false}}"#;

pub(crate) fn task() -> Task {
    let asked = Message {
        message_id: "m-2".into(),
        context_id: "c-1".into(),
        task_id: "t-1".into(),
        role: 2,
        parts: vec![text_part("Which one?")],
        ..Message::default()
    };
    let status = TaskStatus {
        state: 6,
        message: Some(asked),
        timestamp: Some(Timestamp { seconds: 1_795_172_400, nanos: 123_000_000 }),
    };
    let sent = Message {
        message_id: "m-1".into(),
        role: 1,
        parts: vec![text_part("Sort")],
        reference_task_ids: vec!["t-0".into()],
        ..Message::default()
    };
    Task {
        id: "t-1".into(),
        context_id: "c-1".into(),
        status: Some(status),
        artifacts: vec![artifact()],
        history: vec![sent],
        metadata: Some(object([("done", value(Kind::BoolValue(false)))])),
    }
}

fn artifact() -> Artifact {
    let list = prost_types::ListValue { values: vec![value(Kind::NumberValue(1.0)), value(Kind::NullValue(0))] };
    let raw = Part {
        content: Some(part::Content::Raw(b"hi".to_vec())),
        filename: "hi.txt".into(),
        media_type: "text/plain".into(),
        ..Part::default()
    };
    let url = Part { content: Some(part::Content::Url("https://example.com/x".into())), ..Part::default() };
    let data = Part { content: Some(part::Content::Data(value(Kind::ListValue(list)))), ..Part::default() };
    Artifact {
        artifact_id: "a-1".into(),
        name: "list".into(),
        description: "the list".into(),
        parts: vec![raw, url, data],
        metadata: Some(object([("k", string("v"))])),
        extensions: vec!["urn:x".into()],
    }
}

fn full_message() -> Message {
    let raw = part::Content::Raw(vec![0xfb, 0xff]);
    let file = Part { content: Some(raw), filename: "b.bin".into(), media_type: "a/b".into(), ..Part::default() };
    let data = part::Content::Data(value(Kind::StructValue(object([("n", value(Kind::NumberValue(42.0)))]))));
    let data = Part { content: Some(data), metadata: Some(object([("p", string("q"))])), ..Part::default() };
    let url = Part { content: Some(part::Content::Url("https://example.com".into())), ..Part::default() };
    Message {
        message_id: "m-1".into(),
        context_id: "c-1".into(),
        task_id: "t-1".into(),
        role: 1,
        parts: vec![text_part("hello"), file, data, url],
        metadata: Some(object([("k", string("v"))])),
        extensions: vec!["urn:x".into(), "urn:y".into()],
        reference_task_ids: vec!["t-0".into()],
    }
}

#[tokio::test]
async fn send_message_carries_every_field_and_answers_with_a_task() {
    let (mut client, script) = start(Script::answering(&format!(r#"{{"task":{TASK_JSON}}}"#))).await;
    let config = TaskPushNotificationConfig {
        url: "https://example.com/hook".into(),
        token: "s3cret".into(),
        authentication: Some(AuthenticationInfo { scheme: "Bearer".into(), credentials: "k3y".into() }),
        ..TaskPushNotificationConfig::default()
    };
    let configuration = SendMessageConfiguration {
        accepted_output_modes: vec!["text/plain".into()],
        task_push_notification_config: Some(config),
        history_length: Some(0),
        return_immediately: true,
    };
    let request = SendMessageRequest {
        tenant: "acme".into(),
        message: Some(full_message()),
        configuration: Some(configuration),
        metadata: Some(object([("r", string("s"))])),
    };
    let response = client.send_message(request).await.unwrap().into_inner();
    assert_eq!(response.payload, Some(send_message_response::Payload::Task(task())));
    let message = r#"{"messageId":"m-1","contextId":"c-1","taskId":"t-1","role":"ROLE_USER","parts":[{"text":"hello"},{"raw":"+/8=","filename":"b.bin","mediaType":"a/b"},{"data":{"n":42},"metadata":{"p":"q"}},{"url":"https://example.com"}],"metadata":{"k":"v"},"extensions":["urn:x","urn:y"],"referenceTaskIds":["t-0"]}"#;
    let configuration = r#"{"acceptedOutputModes":["text/plain"],"taskPushNotificationConfig":{"url":"https://example.com/hook","token":"s3cret","authentication":{"scheme":"Bearer","credentials":"k3y"}},"historyLength":0,"returnImmediately":true}"#;
    let expected =
        format!(r#"{{"tenant":"acme","message":{message},"configuration":{configuration},"metadata":{{"r":"s"}}}}"#);
    script.check("SendMessage", &expected);
}

#[tokio::test]
async fn send_message_answers_with_a_message_and_reads_empty_strings_as_absent() {
    let answer = r#"{"message":{"messageId":"m-2","contextId":"c-1","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}"#;
    let (mut client, script) = start(Script::answering(answer)).await;
    let response = client.send_message(sending(text_part(""))).await.unwrap().into_inner();
    let expected = Message {
        message_id: "m-2".into(),
        context_id: "c-1".into(),
        role: 2,
        parts: vec![text_part("hi")],
        ..Message::default()
    };
    assert_eq!(response.payload, Some(send_message_response::Payload::Message(expected)));
    script.check("SendMessage", r#"{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":""}]}}"#);
}

#[tokio::test]
async fn get_task_distinguishes_no_history_from_no_limit() {
    for (history_length, json) in [(None, ""), (Some(0), r#","historyLength":0"#)] {
        let (mut client, script) = start(Script::answering(TASK_JSON)).await;
        let request = GetTaskRequest { tenant: "acme".into(), id: "t-1".into(), history_length };
        assert_eq!(client.get_task(request).await.unwrap().into_inner(), task());
        script.check("GetTask", &format!(r#"{{"tenant":"acme","id":"t-1"{json}}}"#));
    }
}

#[tokio::test]
async fn list_tasks_carries_every_filter_and_the_page() {
    let answer = format!(r#"{{"tasks":[{TASK_JSON}],"nextPageToken":"p-2","pageSize":1,"totalSize":2}}"#);
    let (mut client, script) = start(Script::answering(&answer)).await;
    let request = ListTasksRequest {
        tenant: "acme".into(),
        context_id: "c-1".into(),
        status: 2,
        page_size: Some(1),
        page_token: "p-1".into(),
        history_length: Some(3),
        status_timestamp_after: Some(Timestamp { seconds: -1, nanos: 999_999_999 }),
        include_artifacts: Some(false),
    };
    let response = client.list_tasks(request).await.unwrap().into_inner();
    let expected =
        ListTasksResponse { tasks: vec![task()], next_page_token: "p-2".into(), page_size: 1, total_size: 2 };
    assert_eq!(response, expected);
    script.check(
        "ListTasks",
        r#"{"tenant":"acme","contextId":"c-1","status":"TASK_STATE_WORKING","pageSize":1,"pageToken":"p-1","historyLength":3,"statusTimestampAfter":"1969-12-31T23:59:59.999Z","includeArtifacts":false}"#,
    );
}

#[tokio::test]
async fn an_empty_list_request_asks_for_everything() {
    let (mut client, script) = start(Script::answering(r#"{"tasks":[],"pageSize":50}"#)).await;
    let response = client.list_tasks(ListTasksRequest::default()).await.unwrap().into_inner();
    assert_eq!(response, ListTasksResponse { page_size: 50, ..ListTasksResponse::default() });
    script.check("ListTasks", "{}");
}

#[tokio::test]
async fn cancel_task_carries_the_metadata() {
    let (mut client, script) = start(Script::answering(TASK_JSON)).await;
    let metadata = Some(object([("why", string("late"))]));
    let request = CancelTaskRequest { tenant: "acme".into(), id: "t-1".into(), metadata };
    assert_eq!(client.cancel_task(request).await.unwrap().into_inner(), task());
    script.check("CancelTask", r#"{"tenant":"acme","id":"t-1","metadata":{"why":"late"}}"#);
}
