//! The client's side of the binding. Each rpc must carry all values in both directions.

use std::sync::Arc;

use annex_grpc::pb;
use annex_grpc::{CallError, Client, Events};
use annex_protocol::{A2aError, Json, JsonObject, PartContent, Task, portable};
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Uri};
use prost_types::value::Kind;
use prost_types::{ListValue, Struct};
use serde_json::Value;
use tonic::transport::Channel;

use crate::cards::CARD_JSON;
use crate::support::{self, MAX_MESSAGE_BYTES, Script, channel};
use crate::tasks::TASK_JSON;

const MESSAGE: &str = r#"{"messageId":"m","contextId":"c","taskId":"t","role":"ROLE_USER","parts":[{"text":"x","metadata":{"k":[1.5,null]},"filename":"f","mediaType":"a/b"},{"raw":"aGk="},{"url":"u"},{"data":{"n":-7}}],"metadata":{"s":{"a":true}},"extensions":["urn:x"],"referenceTaskIds":["r"]}"#;
const CONFIG: &str = r#"{"tenant":"acme","id":"p","taskId":"t","url":"https://h","token":"s","authentication":{"scheme":"Bearer","credentials":"k"}}"#;

async fn client(script: Script) -> (Client<Channel>, Arc<Script>) {
    let script = Arc::new(script);
    let channel = channel(Arc::clone(&script)).await;
    (Client::new(channel, Uri::from_static("http://a.example"), MAX_MESSAGE_BYTES), script)
}

fn object(json: &str) -> JsonObject {
    JsonObject::parse(json).unwrap()
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

#[tokio::test]
async fn every_rpc_carries_its_request_and_its_answer() {
    let task = TASK_JSON.replace(r#""aGk""#, r#""aGk=""#);
    let send = format!(
        r#"{{"tenant":"acme","message":{MESSAGE},"configuration":{{"acceptedOutputModes":["a/b"],"taskPushNotificationConfig":{CONFIG},"historyLength":0,"returnImmediately":true}},"metadata":{{"n":1}}}}"#
    );
    let list = r#"{"tenant":"acme","contextId":"c","status":"TASK_STATE_AUTH_REQUIRED","pageSize":2,"pageToken":"p","historyLength":1,"statusTimestampAfter":"2026-11-20T11:00:00.123Z","includeArtifacts":false}"#;
    let page = format!(r#"{{"tasks":[{task}],"nextPageToken":"n","pageSize":2,"totalSize":3}}"#);
    let configs = format!(r#"{{"configs":[{CONFIG}],"nextPageToken":"n"}}"#);
    for (rpc, request, answer) in [
        ("SendMessage", send.as_str(), format!(r#"{{"task":{task}}}"#)),
        ("SendMessage", send.as_str(), format!(r#"{{"message":{MESSAGE}}}"#)),
        ("GetTask", r#"{"tenant":"acme","id":"t","historyLength":0}"#, task.clone()),
        ("ListTasks", list, page),
        ("CancelTask", r#"{"tenant":"acme","id":"t","metadata":{"why":"late"}}"#, task.clone()),
        ("CreateTaskPushNotificationConfig", CONFIG, CONFIG.to_owned()),
        ("GetTaskPushNotificationConfig", r#"{"tenant":"acme","taskId":"t","id":"p"}"#, CONFIG.to_owned()),
        ("ListTaskPushNotificationConfigs", r#"{"tenant":"acme","taskId":"t","pageSize":2,"pageToken":"p"}"#, configs),
        ("DeleteTaskPushNotificationConfig", r#"{"tenant":"acme","taskId":"t","id":"p"}"#, "null".to_owned()),
        ("GetExtendedAgentCard", r#"{"tenant":"acme"}"#, CARD_JSON.to_owned()),
    ] {
        let (client, script) = client(Script::answering(&answer).with_active(&["urn:x", "urn:y"])).await;
        let reply = client.call(rpc, &object(request), HeaderMap::new()).await.unwrap();
        assert_eq!(parsed(reply.value.get()), parsed(&answer), "{rpc}");
        assert_eq!(reply.active, ["urn:x".into(), "urn:y".into()], "{rpc}");
        script.check(rpc, request);
    }
}

#[tokio::test]
async fn headers_travel_as_metadata() {
    let (client, script) = client(Script::answering(TASK_JSON)).await;
    let mut headers = HeaderMap::new();
    headers.insert("a2a-version", HeaderValue::from_static("1.0"));
    headers.insert("a2a-extensions", HeaderValue::from_static("urn:a,urn:b"));
    headers.insert("x-api-key", HeaderValue::from_static("k"));
    client.call("GetTask", &object(r#"{"id":"t"}"#), headers).await.unwrap();
    let seen = script.call().parameters;
    assert_eq!((seen.version.as_deref(), seen.extensions.len()), (Some("1.0"), 2));
    assert_eq!(seen.headers["x-api-key"], "k");
}

async fn collected(mut events: Events) -> (Vec<String>, Option<CallError>) {
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(json) => seen.push(json.get().to_owned()),
            Err(error) => {
                assert!(events.next().await.is_none(), "nothing follows an error");
                return (seen, Some(error));
            }
        }
    }
    (seen, None)
}

#[tokio::test]
async fn every_kind_of_event_arrives_and_an_error_ends_the_stream() {
    let artifact = r#"{"artifactId":"a","parts":[{"text":"x"}]}"#;
    let events = [
        format!(r#"{{"message":{MESSAGE}}}"#),
        r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"},"metadata":{"k":1}}}"#
            .to_owned(),
        format!(
            r#"{{"artifactUpdate":{{"taskId":"t","contextId":"c","artifact":{artifact},"append":true,"lastChunk":true,"metadata":{{"k":1}}}}}}"#
        ),
    ];
    for rpc in ["SendStreamingMessage", "SubscribeToTask"] {
        let broken = A2aError::UnsupportedOperation { reason: "broken".to_owned() };
        let scripted = events.iter().map(|event| Ok(serde_json::from_str(event).unwrap())).chain([Err(broken)]);
        let (client, _) = client(Script::streaming(scripted.collect()).with_active(&["urn:x"])).await;
        let request = format!(r#"{{"id":"t","message":{MESSAGE}}}"#);
        let reply = client.open(rpc, &object(&request), HeaderMap::new()).await.unwrap();
        assert_eq!(reply.active, ["urn:x".into()]);
        let (seen, error) = collected(reply.value).await;
        assert_eq!(seen, events, "{rpc}");
        assert!(matches!(error, Some(CallError::Agent { status: "FAILED_PRECONDITION", .. })), "{rpc}: {error:?}");
    }
}

#[tokio::test]
async fn methods_of_extensions_keep_their_numbers() {
    let answer = r#"{"n":9007199254740993,"f":1.0}"#;
    let (client, script) = client(Script::answering(answer)).await;
    let params = object(r#"{"n":9007199254740993,"f":1.0}"#);
    let reply = client.call_method("tasks/search", &params, HeaderMap::new()).await.unwrap();
    assert_eq!(reply.value.get(), answer);
    assert_eq!(script.call().request, format!(r#"["tasks/search",{answer}]"#));
    let streamed = client.open_method("stream", &params, HeaderMap::new()).await.unwrap();
    let (seen, error) = collected(streamed.value).await;
    assert_eq!(seen, [answer]);
    assert!(matches!(error, Some(CallError::Agent { .. })), "{error:?}");
}

#[tokio::test]
async fn the_details_of_an_error_arrive_as_they_left() {
    let data = Json::parse(r#"{"limit":5}"#.to_owned()).unwrap();
    let own = A2aError::Extension { uri: "urn:x".into(), code: -32200, message: "no".to_owned(), data: Some(data) };
    for error in [own, A2aError::invalid_field("message.parts[0]", "is empty"), A2aError::PushNotificationNotSupported]
    {
        let (client, _) = client(Script::failing(error.clone())).await;
        let failed = client.call("GetTask", &object(r#"{"id":"t"}"#), HeaderMap::new()).await.unwrap_err();
        let CallError::Agent { status, message, details } = failed else { panic!("{failed:?}") };
        assert_eq!((status, message), (error.grpc_status().name(), error.to_string()));
        let values = |details: &[Json]| details.iter().map(|detail| parsed(detail.get())).collect::<Vec<_>>();
        assert_eq!(values(&details), values(&error.details()));
    }
}

#[tokio::test]
async fn what_cannot_be_sent_or_read_is_not_the_agents_error() {
    let long = format!(
        r#"{{"message":{{"messageId":"m","role":"ROLE_AGENT","parts":[{{"text":"{}"}}]}}}}"#,
        "x".repeat(MAX_MESSAGE_BYTES)
    );
    let (client, script) = client(Script::answering(&long)).await;
    let refused = [
        ("NoSuchRpc", "{}"),
        ("GetTask", r#"{"id":7}"#),
        ("CancelTask", r#"{"id":"t","metadata":{"n":9007199254740993}}"#),
    ];
    for (rpc, params) in refused {
        let error = client.call(rpc, &object(params), HeaderMap::new()).await.unwrap_err();
        assert!(matches!(error, CallError::Request(_)), "{rpc}: {error:?}");
    }
    script.check_not_called();
    let sent = object(&format!(r#"{{"message":{MESSAGE}}}"#));
    let error = client.call("SendMessage", &sent, HeaderMap::new()).await.unwrap_err();
    assert!(matches!(error, CallError::TooLarge), "{error:?}");
}

/// A task with the value in four places: as data of a part, and in the metadata of the part, the artifact and the task.
fn task_with(value: &prost_types::Value) -> pb::Task {
    let metadata = || Some(support::object([("k", value.clone())]));
    let content = Some(pb::part::Content::Data(value.clone()));
    let part = pb::Part { content, metadata: metadata(), ..pb::Part::default() };
    let artifact =
        pb::Artifact { artifact_id: "a".into(), parts: vec![part], metadata: metadata(), ..pb::Artifact::default() };
    pb::Task { id: "t".into(), artifacts: vec![artifact], metadata: metadata(), ..pb::Task::default() }
}

async fn asked(task: &pb::Task) -> Result<Task, CallError> {
    let client = Client::new(support::answering(task).await, Uri::from_static("http://a.example"), MAX_MESSAGE_BYTES);
    let reply = client.call("GetTask", &object(r#"{"id":"t"}"#), HeaderMap::new()).await?;
    Ok(reply.value.to().unwrap())
}

/// The four values of [`task_with`], from a task that was read.
fn values(task: &Task) -> [&Json; 4] {
    let artifact = &task.artifacts[0];
    let PartContent::Data(data) = &artifact.parts[0].content else { panic!("{task:?}") };
    let all = [&artifact.parts[0].metadata, &artifact.metadata, &task.metadata];
    let [part, whole, around] = all.map(|metadata| metadata.get("k").unwrap());
    [data, part, whole, around]
}

#[tokio::test]
async fn values_that_json_does_not_have_are_replaced_in_an_answer() {
    let number = |double: f64| support::value(Kind::NumberValue(double));
    let nothing = prost_types::Value { kind: None };
    let list = |values: Vec<prost_types::Value>| support::value(Kind::ListValue(ListValue { values }));
    let inside = Struct { fields: [("k".to_owned(), number(f64::INFINITY))].into() };
    for (sent, read) in [
        (number(f64::NAN), r#""NaN""#),
        (number(f64::INFINITY), r#""Infinity""#),
        (number(f64::NEG_INFINITY), r#""-Infinity""#),
        (nothing.clone(), "null"),
        (list(vec![number(1.0), number(f64::NAN), nothing]), r#"[1,"NaN",null]"#),
        (support::value(Kind::StructValue(inside)), r#"{"k":"Infinity"}"#),
    ] {
        let task = asked(&task_with(&sent)).await.unwrap();
        assert!(values(&task).iter().all(|value| value.get() == read), "{read}: {task:?}");
    }
}

#[tokio::test]
async fn parts_without_content_are_left_out_of_an_answer_whoever_said_them() {
    let parts = vec![pb::Part::default(), support::text_part("x")];
    let said = |role| pb::Message { message_id: "m".into(), role, parts: parts.clone(), ..pb::Message::default() };
    let task = pb::Task { id: "t".into(), history: vec![said(1), said(2)], ..pb::Task::default() };
    let task = asked(&task).await.unwrap();
    assert_eq!(task.history.iter().map(|message| message.parts.len()).collect::<Vec<_>>(), [1, 1]);
}

fn nested_lists(depth: usize) -> prost_types::Value {
    (0..depth).fold(support::string("x"), |inner, _| support::value(Kind::ListValue(ListValue { values: vec![inner] })))
}

#[tokio::test]
async fn what_nests_too_deep_in_an_answer_is_text() {
    for depth in [41, 46] {
        let task = asked(&task_with(&nested_lists(depth))).await.unwrap();
        for value in values(&task) {
            assert!(value.get().contains(r#"["["#), "{value:?}");
            assert_eq!(value.get().matches('[').count(), depth, "nothing is lost: {value:?}");
            assert_eq!(portable::check(value.get()), Ok(()));
        }
    }
}

#[tokio::test]
async fn an_answer_that_nests_deeper_than_readers_of_protobuf_go_is_told_as_such() {
    let task = task_with(&nested_lists(60));
    let check = |error: CallError| {
        let CallError::Answer(problem) = error else { panic!("{error:?}") };
        assert!(problem.contains("nests deeper than 100 levels"), "{problem}");
    };
    check(asked(&task).await.unwrap_err());
    let event = pb::StreamResponse { payload: Some(pb::stream_response::Payload::Task(task)) };
    let channel = support::answering(&event).await;
    let client = Client::new(channel, Uri::from_static("http://a.example"), MAX_MESSAGE_BYTES);
    let sent = object(&format!(r#"{{"message":{MESSAGE}}}"#));
    let reply = client.open("SendStreamingMessage", &sent, HeaderMap::new()).await.unwrap();
    let (seen, error) = collected(reply.value).await;
    assert_eq!(seen, Vec::<String>::new());
    check(error.unwrap());
}
