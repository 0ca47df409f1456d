//! Agents of A2A 0.3 over HTTP+JSON, as the official servers of 0.3 answer.

use annex_client::{Agent, Binding, ClientConfig, ClientError};
use annex_protocol::{
    CancelTaskRequest, GetTaskRequest, ListTasksRequest, PartContent, SendMessageResponse, StreamResponse,
    SubscribeToTaskRequest, TaskState,
};
use futures::TryStreamExt;

use crate::support::{Foreign, by, chain, client, no_parameters, ok, text};

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";
const TASK: &str = r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_CANCELLED"}}"#;

/// The card of an agent that prefers HTTP+JSON and also speaks JSON-RPC.
fn card() -> String {
    let body = r#"{"name":"Older","protocolVersion":"0.3.0","url":"{url}/base/","preferredTransport":"HTTP+JSON",
        "additionalInterfaces":[{"url":"{url}/base/","transport":"HTTP+JSON"},{"url":"{url}/rpc","transport":"JSONRPC"}],
        "capabilities":{"streaming":true}}"#;
    ok(JSON, body)
}

/// An agent whose server gives these answers after its card.
async fn agent(answers: &[String]) -> (Agent, Foreign) {
    let card = card();
    let answers: Vec<&str> = [card.as_str()].into_iter().chain(answers.iter().map(String::as_str)).collect();
    let server = Foreign::start(&answers).await;
    let agent = client(ClientConfig::default()).agent(&server.url).await.expect("an agent");
    assert_eq!(agent.binding(), Binding::HttpJson);
    (agent, server)
}

fn failing(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: {JSON}\r\n\r\n{body}")
}

#[tokio::test]
async fn a_message_goes_to_the_path_of_0_3_and_its_answer_is_read() {
    let data = r#"{"data":{"data":{"n":1.0}},"metadata":{"mimeType":"application/a2ui+json"}}"#;
    let file = r#"{"file":{"fileWithBytes":"YUdrPQ==","mimeType":"text/plain","name":"hi.txt"}}"#;
    let message = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_AGENT","content":[{data},{file}]}}}}"#);
    let (agent, server) = agent(&[ok(JSON, &message)]).await;
    let mut parameters = no_parameters();
    parameters.activate("urn:e".into()).expect("a URI");
    let answer = agent.send_message(parameters, text("hello")).await.expect("an answer").value;
    let SendMessageResponse::Message(message) = answer else { panic!("no message") };
    assert_eq!(message.parts[0].media_type, "application/a2ui+json");
    assert!(matches!(&message.parts[0].content, PartContent::Data(data) if data.get() == r#"{"n":1.0}"#));
    assert_eq!(message.parts[1].content, PartContent::Raw("aGk=".to_owned()));
    let sent = server.requests().remove(1);
    assert!(sent.starts_with("post /base/v1/message:send "), "{sent}");
    assert!(sent.contains("a2a-version: 0.3") && sent.contains("x-a2a-extensions: urn:e"), "{sent}");
    assert!(sent.contains(r#""content":[{"text":"hello"}]"#) && sent.contains(r#""blocking":true"#), "{sent}");
}

#[tokio::test]
async fn an_empty_part_of_0_3_is_left_out_and_one_of_1_0_is_read() {
    let parts = r#"[{},{"text":"a"},{"file":{"name":"n"}},{"url":"https://u"},{"kind":"text","text":"b"}]"#;
    let message = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_AGENT","content":{parts}}}}}"#);
    let (agent, _server) = agent(&[ok(JSON, &message)]).await;
    let answer = agent.send_message(no_parameters(), text("hello")).await.expect("an answer").value;
    let SendMessageResponse::Message(message) = answer else { panic!("no message") };
    let contents: Vec<PartContent> = message.parts.iter().map(|part| part.content.clone()).collect();
    let words = |text: &str| PartContent::Text(text.to_owned());
    assert_eq!(contents, [words("a"), PartContent::Url("https://u".to_owned()), words("b")]);
}

#[tokio::test]
async fn a_task_is_read_canceled_and_followed_by_the_paths_of_0_3() {
    let update = r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#;
    let stream = format!("data: {{\"task\":{TASK}}}\n\ndata: {{\"progress\":1}}\n\ndata: {update}\n\n");
    let (agent, server) = agent(&[ok(JSON, TASK), ok(JSON, TASK), ok(EVENT_STREAM, &stream)]).await;
    let get = GetTaskRequest { id: "t/1".into(), history_length: Some(2), ..GetTaskRequest::default() };
    let task = agent.get_task(no_parameters(), get).await.expect("a task").value;
    assert_eq!(task.status.state, TaskState::Canceled);
    let cancel = CancelTaskRequest { id: "t".into(), ..CancelTaskRequest::default() };
    agent.cancel_task(no_parameters(), cancel).await.expect("a task");
    let subscribe = SubscribeToTaskRequest { id: "t".into(), ..SubscribeToTaskRequest::default() };
    let followed = agent.subscribe_to_task(no_parameters(), subscribe).await.expect("a stream").value;
    let events: Vec<StreamResponse> = followed.try_collect().await.expect("events");
    assert!(matches!(events.as_slice(), [StreamResponse::Task(_), StreamResponse::StatusUpdate(_)]), "{events:?}");
    let requests = server.requests();
    for (request, path) in requests.iter().skip(1).zip([
        "get /base/v1/tasks/t%2f1?historylength=2 ",
        "post /base/v1/tasks/t:cancel ",
        "get /base/v1/tasks/t:subscribe ",
    ]) {
        assert!(request.starts_with(path), "{path}: {request}");
    }
    let listed = agent.list_tasks(no_parameters(), ListTasksRequest::default()).await.expect_err("0.3 has no list");
    assert!(matches!(listed, ClientError::NotCarried { .. }), "{listed}");
}

#[tokio::test]
async fn an_error_of_0_3_is_known_by_its_status_and_a_foreign_page_is_none() {
    for (answer, expected) in [
        (failing("404 Not Found", r#"{"message":"gone"}"#), "error -32001: gone"),
        (failing("422 Unprocessable Entity", r#"{"message":"wrong"}"#), "error -32602: wrong"),
        (failing("500 Internal Server Error", r#"{"message":"unknown exception"}"#), "an error: unknown exception"),
        (failing("404 Not Found", r#"{"detail":"Not Found"}"#), "404 Not Found"),
        (ok(JSON, r#"{"progress":1}"#), "one of `task`, `message`"),
        (ok(JSON, r#"{"task":{"id":7}}"#), "something else than A2A"),
    ] {
        let (agent, _server) = agent(&[answer]).await;
        let error = agent.send_message(no_parameters(), text("hello")).await.expect_err("no answer");
        assert!(chain(&error).contains(expected), "{expected}: {}", chain(&error));
    }
}

#[tokio::test]
async fn an_answer_of_0_3_beyond_the_limit_is_not_read_to_its_end() {
    let large = "x".repeat(100_000);
    let card = card();
    let server = Foreign::start(&[&card, &ok(JSON, &large), &ok(EVENT_STREAM, &format!("data: {large}"))]).await;
    let config = ClientConfig { max_bytes: 50_000, ..by(Binding::HttpJson) };
    let agent = client(config).agent(&server.url).await.expect("an agent");
    let error = agent.send_message(no_parameters(), text("x")).await.expect_err("too large");
    assert!(matches!(error, ClientError::TooLarge { max_bytes: 50_000, .. }), "{error}");
    let mut answer = agent.send_streaming_message(no_parameters(), text("x")).await.expect("a stream");
    let error = answer.value.try_next().await.expect_err("too large");
    assert!(matches!(error, ClientError::TooLarge { .. }), "{error}");
}
