//! Streams: the order of their events, and errors in the middle.

use annex_grpc::pb::stream_response::Payload;
use annex_grpc::pb::{
    Artifact, Message, StreamResponse, SubscribeToTaskRequest, Task, TaskArtifactUpdateEvent, TaskStatus,
    TaskStatusUpdateEvent,
};
use annex_protocol as a2a;
use annex_protocol::A2aError;
use tonic::{Code, Streaming};
use tonic_types::StatusExt;

use crate::support::{Script, object, sending, start, string, text_part};
use crate::tasks::{TASK_JSON, task};

fn event(json: &str) -> Result<a2a::StreamResponse, A2aError> {
    Ok(serde_json::from_str(json).unwrap())
}

fn status_update() -> Payload {
    Payload::StatusUpdate(TaskStatusUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        status: Some(TaskStatus { state: 3, ..TaskStatus::default() }),
        metadata: Some(object([("k", string("v"))])),
    })
}

fn artifact_update() -> Payload {
    let artifact = Artifact { artifact_id: "a-1".into(), parts: vec![text_part("x")], ..Artifact::default() };
    Payload::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        artifact: Some(artifact),
        append: true,
        last_chunk: true,
        metadata: Some(object([("k", string("v"))])),
    })
}

const STATUS_JSON: &str = r#"{"statusUpdate":{"taskId":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_COMPLETED"},"metadata":{"k":"v"}}}"#;
const ARTIFACT_JSON: &str = r#"{"artifactUpdate":{"taskId":"t-1","contextId":"c-1","artifact":{"artifactId":"a-1","parts":[{"text":"x"}]},"append":true,"lastChunk":true,"metadata":{"k":"v"}}}"#;

async fn next(stream: &mut Streaming<StreamResponse>) -> Option<Payload> {
    stream.message().await.unwrap().map(|response| response.payload.unwrap())
}

#[tokio::test]
async fn send_streaming_message_keeps_the_order_of_the_events() {
    let first = format!(r#"{{"task":{TASK_JSON}}}"#);
    let events = vec![event(&first), event(ARTIFACT_JSON), event(STATUS_JSON)];
    let (mut client, script) = start(Script::streaming(events)).await;
    let mut stream = client.send_streaming_message(sending(text_part("go"))).await.unwrap().into_inner();
    assert_eq!(next(&mut stream).await, Some(Payload::Task(task())));
    assert_eq!(next(&mut stream).await, Some(artifact_update()));
    assert_eq!(next(&mut stream).await, Some(status_update()));
    assert_eq!(next(&mut stream).await, None);
    let request = r#"{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"go"}]}}"#;
    script.check("SendStreamingMessage", request);
}

#[tokio::test]
async fn a_stream_can_be_one_message() {
    let events = vec![event(r#"{"message":{"messageId":"m-2","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}"#)];
    let (mut client, _script) = start(Script::streaming(events)).await;
    let mut stream = client.send_streaming_message(sending(text_part("go"))).await.unwrap().into_inner();
    let expected = Message { message_id: "m-2".into(), role: 2, parts: vec![text_part("hi")], ..Message::default() };
    assert_eq!(next(&mut stream).await, Some(Payload::Message(expected)));
    assert_eq!(next(&mut stream).await, None);
}

#[tokio::test]
async fn an_error_after_the_first_event_ends_the_stream_with_its_status() {
    let first = event(r#"{"task":{"id":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_WORKING"}}}"#);
    let error = Err(A2aError::Overloaded { reason: "too many streams".into() });
    let (mut client, script) = start(Script::streaming(vec![first, error, event(STATUS_JSON)])).await;
    let request = SubscribeToTaskRequest { tenant: "acme".into(), id: "t-1".into() };
    let mut stream = client.subscribe_to_task(request).await.unwrap().into_inner();
    let working = Some(TaskStatus { state: 2, ..TaskStatus::default() });
    let expected = Task { id: "t-1".into(), context_id: "c-1".into(), status: working, ..Task::default() };
    assert_eq!(next(&mut stream).await, Some(Payload::Task(expected)));
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.get_details_error_info().unwrap().reason, "OVERLOADED");
    assert_eq!(stream.message().await.unwrap(), None);
    script.check("SubscribeToTask", r#"{"tenant":"acme","id":"t-1"}"#);
}

#[tokio::test]
async fn an_event_with_a_number_that_no_double_is_equal_to_ends_the_stream() {
    let exact = STATUS_JSON.replace(r#""v""#, "9007199254740993");
    let (mut client, _script) = start(Script::streaming(vec![event(ARTIFACT_JSON), event(&exact)])).await;
    let mut stream = client.send_streaming_message(sending(text_part("go"))).await.unwrap().into_inner();
    assert_eq!(next(&mut stream).await, Some(artifact_update()));
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("statusUpdate.metadata.k: 9007199254740993 is"), "{}", status.message());
    assert_eq!(stream.message().await.unwrap(), None);
}

#[tokio::test]
async fn an_error_before_the_first_event_is_the_answer() {
    let error = A2aError::TaskNotFound { task_id: "t-9".into() };
    let (mut client, _script) = start(Script::failing(error)).await;
    let request = SubscribeToTaskRequest { id: "t-9".into(), ..SubscribeToTaskRequest::default() };
    assert_eq!(client.subscribe_to_task(request).await.unwrap_err().code(), Code::NotFound);
}
