//! The same cases over JSON-RPC, HTTP+JSON and gRPC: the same results, the same errors, and hooks that saw the same.

use std::collections::BTreeMap;

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::{COMMAND_KEY, TEST_EXTENSION, TestServer};
use prost_types::value::Kind;
use prost_types::{Struct, Value as ProtoValue};
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::{agent, test_extension};

#[derive(Clone, Copy, Debug)]
enum Binding {
    JsonRpc,
    HttpJson,
    Grpc,
}

const ALL: [Binding; 3] = [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc];

/// The outcome as a client sees it, by whichever binding it came.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// The task's state and the artifact's text, or the error's reason and message.
    answer: Result<(String, String), (String, String)>,
    /// The echo of the extensions.
    active: Option<String>,
}

struct Case {
    text: &'static str,
    extensions: &'static str,
    command: Option<&'static str>,
    version: &'static str,
}

const CASES: [Case; 8] = [
    Case { text: "prompt", extensions: "", command: None, version: "1.0" },
    Case { text: "prompt", extensions: TEST_EXTENSION, command: None, version: "1.0" },
    Case { text: "prompt", extensions: "urn:x, https://annex.example/test/v1", command: Some("seen"), version: "1.0" },
    Case { text: "prompt", extensions: TEST_EXTENSION, command: Some("violation"), version: "1.0" },
    Case { text: "prompt", extensions: TEST_EXTENSION, command: Some("reject"), version: "1.0" },
    Case { text: "prompt", extensions: "", command: None, version: "0.9" },
    Case { text: "prompt", extensions: "", command: None, version: "" },
    Case { text: "", extensions: "", command: None, version: "1.0" },
];

async fn server(required: bool) -> TestServer {
    agent("test={test?}", &test_extension(&format!("required = {required}"))).await
}

async fn ask(server: &TestServer, binding: Binding, case: &Case) -> Outcome {
    match binding {
        Binding::JsonRpc | Binding::HttpJson => ask_http(server, binding, case).await,
        Binding::Grpc => ask_grpc(server, case).await,
    }
}

async fn ask_http(server: &TestServer, binding: Binding, case: &Case) -> Outcome {
    let mut message = json!({"messageId": uuid(), "role": "ROLE_USER", "parts": []});
    if !case.text.is_empty() {
        message["parts"] = json!([{"text": case.text}]);
    }
    if let Some(command) = case.command {
        message["metadata"] = json!({COMMAND_KEY: command});
    }
    let params = json!({"message": message});
    let (path, body) = match binding {
        Binding::HttpJson => ("/a2a/rest/message:send", params),
        _ => ("/a2a/jsonrpc", json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params})),
    };
    let mut request = server.client().post(format!("{}{path}", server.url())).json(&body);
    for (name, value) in [("a2a-extensions", case.extensions), ("a2a-version", case.version)] {
        if !value.is_empty() {
            request = request.header(name, value);
        }
    }
    let response = request.send().await.expect("an answer");
    let active = response.headers().get("a2a-extensions").map(|value| value.to_str().expect("ASCII").to_owned());
    let body: Value = response.json().await.expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let error = &body["error"];
    let answer = if error.is_object() {
        let details = if error["data"].is_array() { &error["data"] } else { &error["details"] };
        Err((text(&details[0]["reason"]), text(&error["message"])))
    } else {
        let task = if body["result"].is_object() { &body["result"]["task"] } else { &body["task"] };
        Ok((text(&task["status"]["state"]), text(&task["artifacts"][0]["parts"][0]["text"])))
    };
    Outcome { answer, active }
}

async fn client(server: &TestServer) -> A2aServiceClient<Channel> {
    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    A2aServiceClient::new(channel)
}

fn grpc_request<T>(message: T, case: &Case) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    for (name, value) in [("a2a-extensions", case.extensions), ("a2a-version", case.version)] {
        if !value.is_empty() {
            request.metadata_mut().insert(name, value.parse().expect("ASCII"));
        }
    }
    request
}

fn grpc_message(case: &Case) -> pb::SendMessageRequest {
    let content = (!case.text.is_empty()).then(|| pb::part::Content::Text(case.text.to_owned()));
    let parts = content.into_iter().map(|content| pb::Part { content: Some(content), ..pb::Part::default() });
    let metadata = case.command.map(|command| Struct {
        fields: BTreeMap::from([(
            COMMAND_KEY.to_owned(),
            ProtoValue { kind: Some(Kind::StringValue(command.to_owned())) },
        )]),
    });
    let message = pb::Message {
        message_id: uuid(),
        role: pb::Role::User.into(),
        parts: parts.collect(),
        metadata,
        ..pb::Message::default()
    };
    pb::SendMessageRequest { message: Some(message), ..pb::SendMessageRequest::default() }
}

async fn ask_grpc(server: &TestServer, case: &Case) -> Outcome {
    let request = grpc_request(grpc_message(case), case);
    match client(server).await.send_message(request).await {
        Ok(response) => {
            let active =
                response.metadata().get("a2a-extensions").map(|value| value.to_str().expect("ASCII").to_owned());
            let Some(pb::send_message_response::Payload::Task(task)) = response.into_inner().payload else {
                panic!("not a task")
            };
            let state = task.status.expect("a status").state().as_str_name().to_owned();
            let text = task.artifacts.first().and_then(|artifact| artifact.parts.first()).and_then(|part| match &part
                .content
            {
                Some(pb::part::Content::Text(text)) => Some(text.clone()),
                _ => None,
            });
            Outcome { answer: Ok((state, text.unwrap_or_default())), active }
        }
        Err(status) => Outcome { answer: Err((reason(&status), status.message().to_owned())), active: None },
    }
}

fn reason(status: &tonic::Status) -> String {
    use tonic_types::StatusExt;
    status.get_details_error_info().expect("an ErrorInfo").reason
}

fn uuid() -> String {
    uuid::Uuid::new_v4().to_string()
}

#[tokio::test]
async fn every_case_ends_the_same_on_each_binding() {
    let server = server(false).await;
    for case in &CASES {
        let expected = ask(&server, Binding::JsonRpc, case).await;
        for binding in ALL {
            assert_eq!(ask(&server, binding, case).await, expected, "{binding:?}");
        }
    }
}

#[tokio::test]
async fn hooks_see_the_request_alike() {
    let server = server(false).await;
    for binding in ALL {
        let Ok((_, text)) = ask(&server, binding, &CASES[2]).await.answer else { panic!("refused") };
        let seen = "test=SendMessage asks for urn:x https://annex.example/test/v1 with \
                    Location::Message test/command=\"seen\"";
        assert_eq!(text, seen, "{binding:?}");
    }
}

#[tokio::test]
async fn a_required_extension_is_enforced_on_each_binding() {
    let server = server(true).await;
    for binding in ALL {
        let outcome = ask(&server, binding, &CASES[0]).await;
        let Err((reason, message)) = outcome.answer else { panic!("{binding:?} let it in") };
        assert_eq!(reason, "EXTENSION_SUPPORT_REQUIRED");
        assert!(message.contains(TEST_EXTENSION), "{message}");
    }
    let streamed = client(&server).await.send_streaming_message(grpc_request(grpc_message(&CASES[0]), &CASES[0])).await;
    assert_eq!(streamed.expect_err("refused").code(), tonic::Code::FailedPrecondition);
}

#[tokio::test]
async fn grpc_streams_reads_lists_and_follows_tasks() {
    let server = server(false).await;
    let mut client = client(&server).await;
    let case = &CASES[1];
    let response = client.send_streaming_message(grpc_request(grpc_message(case), case)).await.expect("a stream");
    assert_eq!(response.metadata().get("a2a-extensions").expect("the echo"), TEST_EXTENSION);
    let mut stream = response.into_inner();
    let mut kinds = Vec::new();
    let mut task = None;
    while let Some(event) = stream.message().await.expect("an event") {
        use pb::stream_response::Payload;
        kinds.push(match event.payload.expect("a payload") {
            Payload::Task(first) => {
                task = Some(first);
                "task"
            }
            Payload::StatusUpdate(_) => "status",
            Payload::ArtifactUpdate(_) => "artifact",
            Payload::Message(_) => "message",
        });
    }
    assert_eq!(kinds, ["task", "status", "artifact", "status"]);
    let task = task.expect("the task came first");
    let get = pb::GetTaskRequest { id: task.id.clone(), ..pb::GetTaskRequest::default() };
    let read = client.get_task(grpc_request(get, case)).await.expect("a task").into_inner();
    assert_eq!(read.status.expect("a status").state(), pb::TaskState::Completed);
    let list = pb::ListTasksRequest { context_id: task.context_id.clone(), ..pb::ListTasksRequest::default() };
    let listed = client.list_tasks(grpc_request(list, case)).await.expect("a page").into_inner();
    assert_eq!((listed.total_size, listed.tasks.len()), (1, 1));
    let follow = pb::SubscribeToTaskRequest { id: task.id.clone(), ..pb::SubscribeToTaskRequest::default() };
    let status = client.subscribe_to_task(grpc_request(follow, case)).await.expect_err("it is finished");
    assert_eq!((status.code(), reason(&status).as_str()), (tonic::Code::FailedPrecondition, "UNSUPPORTED_OPERATION"));
}
