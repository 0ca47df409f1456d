//! Clients of A2A 0.3 over gRPC, and the same cases over the other bindings of 0.3.

use std::collections::BTreeMap;

use annex_grpc::pb::extension::CallRequest;
use annex_grpc::pb::extension::extension_service_client::ExtensionServiceClient;
use annex_grpc::pb::v0_3 as pb;
use annex_grpc::pb::v0_3::a2a_service_client::A2aServiceClient;
use annex_test_support::{COMMAND_KEY, STATE_INJECTION, STATE_KEY, TEST_EXTENSION, TestConfig, TestServer};
use prost_types::value::Kind;
use prost_types::{Struct, Value as ProtoValue};
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use super::{events, post};
use crate::{QUESTION, agent, specialist, test_extension};

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
    /// The task's state and the artifact's text, or the error's reason.
    answer: Result<(String, String), String>,
    /// The echo of the extensions.
    active: Option<String>,
}

#[derive(Clone, Copy)]
struct Case {
    text: &'static str,
    extensions: &'static str,
    command: Option<&'static str>,
    version: &'static str,
}

const CASES: [Case; 8] = [
    Case { text: "prompt", extensions: "", command: None, version: "" },
    Case { text: "prompt", extensions: "", command: None, version: "0.3" },
    Case { text: "prompt", extensions: TEST_EXTENSION, command: None, version: "0.3" },
    Case { text: "prompt", extensions: "urn:x, https://annex.example/test/v1", command: Some("seen"), version: "" },
    Case { text: "prompt", extensions: TEST_EXTENSION, command: Some("violation"), version: "" },
    Case { text: "prompt", extensions: TEST_EXTENSION, command: Some("reject"), version: "" },
    Case { text: "prompt", extensions: "", command: None, version: "0.9" },
    Case { text: "", extensions: "", command: None, version: "" },
];

fn uuid() -> String {
    uuid::Uuid::new_v4().to_string()
}

async fn ask(server: &TestServer, binding: Binding, case: Case) -> Outcome {
    match binding {
        Binding::JsonRpc | Binding::HttpJson => ask_http(server, binding, case).await,
        Binding::Grpc => ask_grpc(server, case).await,
    }
}

async fn ask_http(server: &TestServer, binding: Binding, case: Case) -> Outcome {
    let metadata = case.command.map_or_else(|| json!({}), |command| json!({COMMAND_KEY: command}));
    let mut message = json!({"messageId": uuid(), "metadata": metadata});
    let (path, body) = match binding {
        Binding::HttpJson => {
            message["role"] = "ROLE_USER".into();
            message["content"] = if case.text.is_empty() { json!([]) } else { json!([{"text": case.text}]) };
            ("/a2a/rest/v1/message:send", json!({"message": message, "configuration": {"blocking": true}}))
        }
        Binding::JsonRpc | Binding::Grpc => {
            message["role"] = "user".into();
            let part = json!({"kind": "text", "text": case.text});
            message["parts"] = if case.text.is_empty() { json!([]) } else { json!([part]) };
            let params = json!({"message": message});
            ("/a2a/jsonrpc", json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}))
        }
    };
    let headers = [("x-a2a-extensions", case.extensions), ("a2a-version", case.version)];
    let headers: Vec<(&str, &str)> = headers.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let response = post(server, path, &headers, &body).await;
    let active = response.headers().get("x-a2a-extensions").map(|value| value.to_str().expect("ASCII").to_owned());
    let body: Value = response.json().await.expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let error = &body["error"];
    let answer = if error.is_object() {
        let details = if error["data"].is_object() { &error["data"]["details"] } else { &error["details"] };
        Err(text(&details[0]["reason"]))
    } else {
        let task = if body["result"].is_object() { &body["result"] } else { &body["task"] };
        let state = text(&task["status"]["state"]).replace("TASK_STATE_", "").to_lowercase();
        Ok((state, text(&task["artifacts"][0]["parts"][0]["text"])))
    };
    Outcome { answer, active }
}

async fn client(server: &TestServer) -> A2aServiceClient<Channel> {
    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    A2aServiceClient::new(channel)
}

fn string(text: &str) -> ProtoValue {
    ProtoValue { kind: Some(Kind::StringValue(text.to_owned())) }
}

fn request<T>(message: T, fields: &[(&'static str, &str)]) -> Request<T> {
    let mut request = Request::new(message);
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        request.metadata_mut().insert(*name, value.parse().expect("ASCII"));
    }
    request
}

fn text_part(text: &str) -> pb::Part {
    pb::Part { part: Some(pb::part::Part::Text(text.to_owned())), metadata: None }
}

/// A message whose sender waits for the answer.
fn sending(content: Vec<pb::Part>, metadata: Option<Struct>) -> pb::SendMessageRequest {
    let role = pb::Role::User.into();
    let message = pb::Message { message_id: uuid(), role, content, metadata, ..Default::default() };
    let configuration = pb::SendMessageConfiguration { blocking: true, ..Default::default() };
    pb::SendMessageRequest { request: Some(message), configuration: Some(configuration), metadata: None }
}

fn of_case(case: Case) -> Request<pb::SendMessageRequest> {
    let content = if case.text.is_empty() { Vec::new() } else { vec![text_part(case.text)] };
    let metadata =
        case.command.map(|command| Struct { fields: BTreeMap::from([(COMMAND_KEY.to_owned(), string(command))]) });
    let fields = [("x-a2a-extensions", case.extensions), ("a2a-version", case.version)];
    request(sending(content, metadata), &fields)
}

fn task_of(answer: pb::SendMessageResponse) -> pb::Task {
    match answer.payload.expect("a payload") {
        pb::send_message_response::Payload::Task(task) => task,
        pb::send_message_response::Payload::Msg(message) => panic!("no task: {message:?}"),
    }
}

fn text_of(part: &pb::Part) -> String {
    match &part.part {
        Some(pb::part::Part::Text(text)) => text.clone(),
        other => panic!("no text: {other:?}"),
    }
}

async fn ask_grpc(server: &TestServer, case: Case) -> Outcome {
    match client(server).await.send_message(of_case(case)).await {
        Ok(response) => {
            let active = response.metadata().get("x-a2a-extensions");
            let active = active.map(|value| value.to_str().expect("ASCII").to_owned());
            let task = task_of(response.into_inner());
            let state = task.status.expect("a status").state().as_str_name().replace("TASK_STATE_", "").to_lowercase();
            let text = task.artifacts.first().and_then(|artifact| artifact.parts.first()).map(text_of);
            Outcome { answer: Ok((state, text.unwrap_or_default())), active }
        }
        Err(status) => Outcome { answer: Err(reason(&status)), active: None },
    }
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().expect("an ErrorInfo").reason
}

#[tokio::test]
async fn every_case_of_0_3_ends_the_same_on_each_binding() {
    let server = agent("test={test?}", &test_extension("required = false")).await;
    for case in CASES {
        let expected = ask(&server, Binding::JsonRpc, case).await;
        for binding in ALL {
            assert_eq!(ask(&server, binding, case).await, expected, "{binding:?} {:?} {}", case.command, case.version);
        }
    }
}

#[tokio::test]
async fn the_old_grpc_service_streams_reads_and_cancels_tasks() {
    let server = agent("Say something.", "").await;
    let mut client = client(&server).await;
    let streamed = client.send_streaming_message(sending(vec![text_part("prompt")], None)).await.expect("a stream");
    let mut stream = streamed.into_inner();
    let mut kinds = Vec::new();
    let mut first = None;
    while let Some(event) = stream.message().await.expect("an event") {
        use pb::stream_response::Payload;
        kinds.push(match event.payload.expect("a payload") {
            Payload::Task(task) => {
                first = Some(task);
                ("task", false)
            }
            Payload::StatusUpdate(update) => ("status", update.r#final),
            Payload::ArtifactUpdate(_) => ("artifact", false),
            Payload::Msg(_) => ("message", false),
        });
    }
    assert_eq!(kinds, [("task", false), ("status", false), ("artifact", false), ("status", true)]);
    let name = format!("tasks/{}", first.expect("the task came first").id);
    let get = pb::GetTaskRequest { name: name.clone(), history_length: 1 };
    let read = client.get_task(get).await.expect("a task").into_inner();
    assert_eq!(read.status.expect("a status").state(), pb::TaskState::Completed);
    assert_eq!((read.history.len(), text_of(&read.artifacts[0].parts[0]).as_str()), (1, "Say something."));
    let again = client.cancel_task(pb::CancelTaskRequest { name }).await.expect_err("it has ended");
    assert_eq!((again.code(), reason(&again).as_str()), (Code::Unimplemented, "TASK_NOT_CANCELABLE"));
    assert!(again.message().starts_with("TaskNotCancelableError: "), "{}", again.message());
    let unknown = pb::GetTaskRequest { name: "tasks/nobody".to_owned(), history_length: 0 };
    assert_eq!(client.get_task(unknown).await.expect_err("nobody").code(), Code::NotFound);
}

#[tokio::test]
async fn a_task_that_runs_is_followed_and_canceled_by_the_old_grpc_service() {
    let server = agent("Say something.", "").await;
    let mut client = client(&server).await;
    let mut first = client.send_streaming_message(sending(vec![text_part("slow")], None)).await.expect("a stream");
    let Some(pb::stream_response::Payload::Task(task)) =
        first.get_mut().message().await.expect("an event").and_then(|event| event.payload)
    else {
        panic!("no task")
    };
    let name = format!("tasks/{}", task.id);
    let followed = client.task_subscription(pb::TaskSubscriptionRequest { name: name.clone() }).await;
    let mut followed = followed.expect("a stream").into_inner();
    followed.message().await.expect("an event").expect("the task");
    let canceled = client.cancel_task(pb::CancelTaskRequest { name }).await.expect("a task").into_inner();
    assert_eq!(canceled.status.expect("a status").state(), pb::TaskState::Cancelled);
    let mut last = None;
    while let Some(event) = followed.message().await.expect("an event") {
        last = event.payload;
    }
    let Some(pb::stream_response::Payload::StatusUpdate(update)) = last else { panic!("{last:?}") };
    assert!(update.r#final && update.status.expect("a status").state() == pb::TaskState::Cancelled);
}

#[tokio::test]
async fn a_required_extension_is_enforced_and_activated_by_the_old_name_over_grpc() {
    let server = specialist("").await;
    let mut client = client(&server).await;
    for status in [
        client.send_message(sending(vec![text_part(QUESTION)], None)).await.expect_err("refused"),
        client.send_streaming_message(sending(vec![text_part(QUESTION)], None)).await.expect_err("refused"),
    ] {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert_eq!(reason(&status), "EXTENSION_SUPPORT_REQUIRED");
        assert!(status.message().contains("x-a2a-extensions"), "{}", status.message());
    }
    let user = ["name", "role", "email"].map(|key| {
        let text = if key == "email" { "ada@example.com" } else { "Ada" };
        (key.to_owned(), string(text))
    });
    let object = |fields: BTreeMap<String, ProtoValue>| ProtoValue { kind: Some(Kind::StructValue(Struct { fields })) };
    let state = object(BTreeMap::from([("user_info".to_owned(), object(BTreeMap::from(user)))]));
    let metadata = Struct { fields: BTreeMap::from([(STATE_KEY.to_owned(), state)]) };
    for header in ["x-a2a-extensions", "a2a-extensions"] {
        let sent = sending(vec![text_part(QUESTION)], Some(metadata.clone()));
        let answer = client.send_message(request(sent, &[(header, STATE_INJECTION)])).await.expect("an answer");
        assert_eq!(answer.metadata().get("x-a2a-extensions").expect("the echo"), STATE_INJECTION);
        let task = task_of(answer.into_inner());
        assert!(text_of(&task.artifacts[0].parts[0]).contains("ada@example.com"), "{task:?}");
        assert!(task.artifacts[0].metadata.as_ref().expect("metadata").fields.contains_key(STATE_KEY));
    }
}

#[tokio::test]
async fn the_media_type_of_data_is_in_its_metadata_on_each_binding_of_0_3() {
    let rule = r#"
        [[agent.rule]]
        text = "form"
        steps = [
          { artifact = { id = "a", parts = [{ data = '{"k":1}', media_type = "application/a2ui+json" }], last_chunk = true } },
          { status = { state = "completed" } },
        ]
    "#;
    let server = TestConfig::script(rule).start().await.expect("a server");
    let message =
        json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "form"}]});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}});
    let sent: Value = post(&server, "/a2a/jsonrpc", &[], &body).await.json().await.expect("JSON");
    let expected = json!({"mimeType": "application/a2ui+json"});
    assert_eq!(sent["result"]["artifacts"][0]["parts"][0]["metadata"], expected, "{sent}");
    let message = json!({"messageId": "n", "role": "ROLE_USER", "content": [{"text": "form"}]});
    let body = json!({"message": message});
    let sent = post(&server, "/a2a/rest/v1/message:stream", &[], &body).await.text().await.expect("events");
    let part = events(&sent).into_iter().find_map(|event| event.get("artifactUpdate").cloned()).expect("an artifact");
    assert_eq!(part["artifact"]["parts"][0]["metadata"], expected, "{sent}");
    let answer = client(&server).await.send_message(sending(vec![text_part("form")], None)).await.expect("an answer");
    let task = task_of(answer.into_inner());
    let metadata = task.artifacts[0].parts[0].metadata.as_ref().expect("metadata");
    assert_eq!(metadata.fields.get("mimeType"), Some(&string("application/a2ui+json")));
}

#[tokio::test]
async fn push_configs_are_made_read_and_deleted_by_the_old_grpc_service() {
    let server = agent("Say something.", "[push]\nallow = [\"127.0.0.0/8\"]").await;
    let (url, mut received) = crate::push::receiver().await;
    let mut client = client(&server).await;
    let mut sent = sending(vec![text_part("prompt")], None);
    let inside = pb::PushNotificationConfig { url: url.clone(), token: "t0ken".to_owned(), ..Default::default() };
    sent.configuration = Some(pb::SendMessageConfiguration {
        blocking: true,
        push_notification: Some(inside.clone()),
        ..Default::default()
    });
    let task = task_of(client.send_message(sent).await.expect("an answer").into_inner());
    let (headers, notified) = received.recv().await.expect("a notification");
    assert_eq!(headers["x-a2a-notification-token"], "t0ken");
    assert_eq!(notified["kind"], "task", "{notified}");

    let parent = format!("tasks/{}", task.id);
    let list = pb::ListTaskPushNotificationConfigRequest { parent: parent.clone(), ..Default::default() };
    let listed = client.list_task_push_notification_config(list.clone()).await.expect("a list").into_inner();
    let [only] = listed.configs.as_slice() else { panic!("{listed:?}") };
    assert_eq!(only.push_notification_config.as_ref().map(|config| config.url.as_str()), Some(url.as_str()));
    // Without an id the first config is meant.
    for name in [only.name.clone(), format!("{parent}/pushNotificationConfigs/")] {
        let get = pb::GetTaskPushNotificationConfigRequest { name };
        let read = client.get_task_push_notification_config(get).await.expect("a config").into_inner();
        assert_eq!(read.name, only.name);
    }
    let config = pb::TaskPushNotificationConfig { name: String::new(), push_notification_config: Some(inside) };
    let create = pb::CreateTaskPushNotificationConfigRequest {
        parent: parent.clone(),
        config_id: "second".to_owned(),
        config: Some(config),
    };
    let made = client.create_task_push_notification_config(create).await.expect("a config").into_inner();
    assert_eq!(made.name, format!("{parent}/pushNotificationConfigs/second"));
    let delete = pb::DeleteTaskPushNotificationConfigRequest { name: made.name };
    client.delete_task_push_notification_config(delete).await.expect("it is gone");
    let listed = client.list_task_push_notification_config(list).await.expect("a list").into_inner();
    assert_eq!(listed.configs.len(), 1);
}

#[tokio::test]
async fn the_card_of_0_3_names_grpc_and_is_served_over_it() {
    let server = agent("Say something.", "").await;
    let card: Value = server.get("/.well-known/agent-card.json").await.expect("a card").json().await.expect("JSON");
    let address = server.url().trim_start_matches("http://");
    let additional = card["additionalInterfaces"].as_array().expect("interfaces");
    assert_eq!(additional.last(), Some(&json!({"transport": "GRPC", "url": address})), "{card}");
    // A client of 0.3 asks for the extended card even if there is none.
    let public = client(&server).await.get_agent_card(pb::GetAgentCardRequest {}).await.expect("a card").into_inner();
    assert_eq!((public.preferred_transport.as_str(), public.protocol_version.as_str()), ("JSONRPC", "0.3.0"));
    assert!(public.additional_interfaces.iter().any(|one| one.transport == "GRPC" && one.url == address));

    let more = "[card.extended]\ndescription = 'All of it'";
    let server = crate::auth::guarded_with(more).await;
    let mut client = client(&server).await;
    let asked = request(pb::GetAgentCardRequest {}, &[("x-api-key", crate::auth::ADA)]);
    assert_eq!(client.get_agent_card(asked).await.expect("a card").into_inner().description, "All of it");
    let nobody = client.get_agent_card(pb::GetAgentCardRequest {}).await.expect_err("refused");
    assert_eq!(nobody.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn grpc_is_never_the_main_address_of_0_3_beside_another_binding() {
    let server = agent("Say something.", "").await;
    let only = TestConfig::template("Say something.").set("card.bindings", vec!["GRPC", "JSONRPC"]);
    let first = only.start().await.expect("a server");
    for server in [server, first] {
        let card: Value = server.get("/.well-known/agent-card.json").await.expect("a card").json().await.expect("JSON");
        assert_eq!(card["preferredTransport"], "JSONRPC", "{card}");
    }
}

#[tokio::test]
async fn a_method_of_an_extension_is_called_over_grpc_without_a_version_where_0_3_is_served() {
    let extension = test_extension("parameters = { methods = [\"test/echo\"] }");
    for (served, older) in [(true, ""), (false, "[server]\na2a_0_3 = false\n")] {
        let server = agent("Say something.", &format!("{older}{extension}")).await;
        let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
        let call = CallRequest { method: "test/echo".to_owned(), params_json: r#"{"k":1}"#.to_owned() };
        let called = request(call, &[("x-a2a-extensions", TEST_EXTENSION)]);
        match ExtensionServiceClient::new(channel).call(called).await {
            Ok(answer) => {
                assert!(served);
                let expected = r#"{"operation":"test/echo","params":{"k":1}}"#;
                assert_eq!(answer.into_inner().result_json, expected);
            }
            Err(status) => assert!(!served && reason(&status) == "VERSION_NOT_SUPPORTED", "{status:?}"),
        }
    }
}

#[tokio::test]
async fn the_old_grpc_service_is_off_where_0_3_is() {
    let server = agent("Say something.", "[server]\na2a_0_3 = false").await;
    let status = client(&server).await.send_message(sending(vec![text_part("prompt")], None)).await;
    assert_eq!(status.expect_err("no such service").code(), Code::Unimplemented);
}
