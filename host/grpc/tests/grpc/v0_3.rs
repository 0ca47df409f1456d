//! The service of A2A 0.3: each rpc, its errors, and requests that must not reach the operations.

use std::sync::Arc;

use annex_grpc::pb::v0_3::a2a_service_client::A2aServiceClient;
use annex_grpc::pb::v0_3::{
    AuthenticationInfo, CancelTaskRequest, CreateTaskPushNotificationConfigRequest, DataPart,
    DeleteTaskPushNotificationConfigRequest, FilePart, GetAgentCardRequest, GetTaskPushNotificationConfigRequest,
    GetTaskRequest, ListTaskPushNotificationConfigRequest, Message, Part, PushNotificationConfig,
    SendMessageConfiguration, SendMessageRequest, TaskPushNotificationConfig, TaskState, TaskSubscriptionRequest,
    file_part, part, send_message_response, stream_response,
};
use annex_grpc::{Limits, ServiceVersion, routes_of_both_versions, unknown_service};
use annex_protocol::A2aError;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

use crate::support::{MAX_MESSAGE_BYTES, Script, connected, object, string, value};
use crate::tasks::TASK_JSON;

async fn start(script: Script) -> (A2aServiceClient<Channel>, Arc<Script>) {
    let script = Arc::new(script);
    let limits = Limits { max_message_bytes: MAX_MESSAGE_BYTES };
    let router = routes_of_both_versions(script.clone(), limits).fallback(unknown_service);
    (A2aServiceClient::new(connected(router).await), script)
}

fn with(content: part::Part) -> Part {
    Part { part: Some(content), metadata: None }
}

fn text(text: &str) -> Part {
    with(part::Part::Text(text.to_owned()))
}

fn data(fields: Struct, metadata: Option<Struct>) -> Part {
    Part { part: Some(part::Part::Data(DataPart { data: Some(fields) })), metadata }
}

fn sending(content: Vec<Part>) -> SendMessageRequest {
    let message = Message { message_id: "m-1".into(), role: 1, content, ..Message::default() };
    SendMessageRequest { request: Some(message), ..SendMessageRequest::default() }
}

fn violations(status: &Status) -> Vec<String> {
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().starts_with("InvalidParamsError: "), "{status:?}");
    status.get_details_bad_request().unwrap().field_violations.into_iter().map(|violation| violation.field).collect()
}

#[tokio::test]
async fn a_message_of_0_3_reaches_the_operation_whole() {
    let (mut client, script) = start(Script::answering(r#"{"message":{"messageId":"a","role":"ROLE_AGENT"}}"#)).await;
    // The official clients send the base64 of a file as its bytes.
    let bytes = FilePart {
        file: Some(file_part::File::FileWithBytes(b"aGk=".to_vec())),
        mime_type: "text/plain".into(),
        name: "hi.txt".into(),
    };
    let uri = FilePart { file: Some(file_part::File::FileWithUri("https://u".into())), ..FilePart::default() };
    let a2ui = object([("mimeType", string("application/a2ui+json"))]);
    let list = value(Kind::ListValue(ListValue { values: vec![value(Kind::NumberValue(1.0))] }));
    let wrapped = object([("data_part_compat", value(Kind::BoolValue(true)))]);
    let mut request = sending(vec![
        text("Hi"),
        with(part::Part::File(bytes)),
        with(part::Part::File(uri)),
        data(object([("n", value(Kind::NumberValue(2.0)))]), Some(a2ui)),
        data(object([("value", list)]), Some(wrapped)),
    ]);
    request.configuration = Some(SendMessageConfiguration {
        accepted_output_modes: vec!["text/plain".into()],
        push_notification: Some(PushNotificationConfig { url: "https://hook".into(), ..Default::default() }),
        history_length: 3,
        blocking: true,
    });
    request.metadata = Some(object([("k", string("v"))]));
    let answer = client.send_message(request).await.unwrap().into_inner();
    assert!(matches!(answer.payload, Some(send_message_response::Payload::Msg(message)) if message.message_id == "a"));
    let parts = r#"[{"text":"Hi"},{"raw":"aGk=","filename":"hi.txt","mediaType":"text/plain"},{"url":"https://u"},{"data":{"n":2},"metadata":{"mimeType":"application/a2ui+json"},"mediaType":"application/a2ui+json"},{"data":[1]}]"#;
    let configuration = r#"{"acceptedOutputModes":["text/plain"],"taskPushNotificationConfig":{"url":"https://hook","annexReceiverIsV03":true},"historyLength":3}"#;
    let expected = format!(
        r#"{{"message":{{"messageId":"m-1","role":"ROLE_USER","parts":{parts}}},"configuration":{configuration},"metadata":{{"k":"v"}}}}"#
    );
    script.check("SendMessage", &expected);
}

#[tokio::test]
async fn a_client_that_does_not_ask_to_wait_does_not_wait() {
    let (mut client, script) = start(Script::answering(r#"{"message":{"messageId":"a","role":"ROLE_AGENT"}}"#)).await;
    client.send_message(sending(vec![text("x")])).await.unwrap();
    assert!(script.call().request.contains(r#""returnImmediately":true"#));
}

#[tokio::test]
async fn a_task_has_the_form_of_0_3() {
    let (mut client, script) = start(Script::answering(TASK_JSON)).await;
    let request = GetTaskRequest { name: "tasks/t-1".into(), history_length: 2 };
    let task = client.get_task(request).await.unwrap().into_inner();
    script.check("GetTask", r#"{"id":"t-1","historyLength":2}"#);
    let status = task.status.unwrap();
    assert_eq!((status.state(), status.update.unwrap().content), (TaskState::InputRequired, vec![text("Which one?")]));
    let [file, _, list] = <[Part; 3]>::try_from(task.artifacts[0].parts.clone()).unwrap();
    let Some(part::Part::File(file)) = file.part else { panic!("no file") };
    assert_eq!(file.file, Some(file_part::File::FileWithBytes(b"aGk=".to_vec())));
    assert_eq!((file.name.as_str(), file.mime_type.as_str()), ("hi.txt", "text/plain"));
    assert_eq!(list.metadata, Some(object([("data_part_compat", value(Kind::BoolValue(true)))])));

    let (mut client, script) = start(Script::answering(TASK_JSON)).await;
    client.cancel_task(CancelTaskRequest { name: "tasks/t-1".into() }).await.unwrap();
    script.check("CancelTask", r#"{"id":"t-1"}"#);
}

#[tokio::test]
async fn a_stream_of_0_3_says_which_event_is_final() {
    let event = |state: &str| {
        let text = format!(r#"{{"statusUpdate":{{"taskId":"t","contextId":"c","status":{{"state":"{state}"}}}}}}"#);
        Ok(serde_json::from_str(&text).unwrap())
    };
    let events = vec![event("TASK_STATE_WORKING"), event("TASK_STATE_CANCELED")];
    let (mut client, script) = start(Script::streaming(events).with_active(&["urn:a"])).await;
    let request = TaskSubscriptionRequest { name: "tasks/t".into() };
    let response = client.task_subscription(request).await.unwrap();
    assert_eq!(response.metadata().get("x-a2a-extensions").unwrap(), "urn:a");
    let mut stream = response.into_inner();
    let mut seen = Vec::new();
    while let Some(event) = stream.message().await.unwrap() {
        let Some(stream_response::Payload::StatusUpdate(update)) = event.payload else { panic!("another event") };
        seen.push((update.status.unwrap().state(), update.r#final));
    }
    assert_eq!(seen, [(TaskState::Working, false), (TaskState::Cancelled, true)]);
    assert_eq!(script.call().parameters.service, ServiceVersion::V0_3);
}

#[tokio::test]
async fn extensions_are_read_under_both_names() {
    let (mut client, script) = start(Script::answering(TASK_JSON)).await;
    let mut request = Request::new(GetTaskRequest { name: "tasks/t-1".into(), history_length: 0 });
    request.metadata_mut().insert("x-a2a-extensions", "urn:a, urn:b".parse().unwrap());
    request.metadata_mut().insert("a2a-extensions", "urn:b,urn:c".parse().unwrap());
    client.get_task(request).await.unwrap();
    let call = script.call();
    let extensions: Vec<&str> = call.parameters.extensions.iter().map(|uri| uri.as_str()).collect();
    assert_eq!(extensions, ["urn:a", "urn:b", "urn:c"]);
    assert_eq!(call.request, r#"{"id":"t-1"}"#, "no length is no limit");
}

const CONFIG_JSON: &str = r#"{"id":"p-1","taskId":"t-1","url":"https://hook","token":"s3cret","authentication":{"scheme":"Bearer","credentials":"k3y"}}"#;

fn config() -> PushNotificationConfig {
    PushNotificationConfig {
        id: "p-1".into(),
        url: "https://hook".into(),
        token: "s3cret".into(),
        authentication: Some(AuthenticationInfo { schemes: vec!["Bearer".into()], credentials: "k3y".into() }),
    }
}

fn named_config() -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        name: "tasks/t-1/pushNotificationConfigs/p-1".into(),
        push_notification_config: Some(config()),
    }
}

#[tokio::test]
async fn push_configs_of_0_3_have_names() {
    let name = "tasks/t-1/pushNotificationConfigs/p-1".to_owned();
    let (mut client, script) = start(Script::answering(CONFIG_JSON)).await;
    let request = CreateTaskPushNotificationConfigRequest {
        parent: "tasks/t-1".into(),
        config_id: "other".into(),
        config: Some(named_config()),
    };
    let created = client.create_task_push_notification_config(request).await.unwrap().into_inner();
    assert_eq!(created, named_config());
    let expected = CONFIG_JSON.replace(r#""k3y"}"#, r#""k3y"},"annexReceiverIsV03":true"#);
    script.check("CreateTaskPushNotificationConfig", &expected);

    let (mut client, script) = start(Script::answering(CONFIG_JSON)).await;
    let request = GetTaskPushNotificationConfigRequest { name: name.clone() };
    assert_eq!(client.get_task_push_notification_config(request).await.unwrap().into_inner(), named_config());
    script.check("GetTaskPushNotificationConfig", r#"{"taskId":"t-1","id":"p-1"}"#);

    let answer = format!(r#"{{"configs":[{CONFIG_JSON}],"nextPageToken":"n"}}"#);
    let (mut client, script) = start(Script::answering(&answer)).await;
    let request = ListTaskPushNotificationConfigRequest { parent: "tasks/t-1".into(), ..Default::default() };
    let listed = client.list_task_push_notification_config(request).await.unwrap().into_inner();
    assert_eq!((listed.configs, listed.next_page_token.as_str()), (vec![named_config()], "n"));
    assert!(script.call().request.contains(r#""taskId":"t-1","pageSize":2147483647"#));

    let (mut client, script) = start(Script::answering("null")).await;
    client.delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest { name }).await.unwrap();
    script.check("DeleteTaskPushNotificationConfig", r#"{"taskId":"t-1","id":"p-1"}"#);
    let printed = format!("{:?}", named_config());
    assert!(printed.contains("Bearer") && !printed.contains("s3cret") && !printed.contains("k3y"), "{printed}");
}

#[tokio::test]
async fn the_card_has_the_interfaces_of_0_3_only() {
    let card = r#"{"name":"n","description":"d","version":"1","supportedInterfaces":[{"url":"http://a/1","protocolBinding":"JSONRPC","protocolVersion":"1.0"},{"url":"http://a/2","protocolBinding":"JSONRPC","protocolVersion":"0.3"},{"url":"a:1","protocolBinding":"GRPC","protocolVersion":"0.3"}],"capabilities":{"streaming":true,"extendedAgentCard":true},"securitySchemes":{"d":{"oauth2SecurityScheme":{"flows":{"deviceCode":{"deviceAuthorizationUrl":"https://d","tokenUrl":"https://t","scopes":{}}}}},"k":{"apiKeySecurityScheme":{"location":"header","name":"x"}}},"securityRequirements":[{"schemes":{"k":{"list":[]}}}],"defaultInputModes":[],"defaultOutputModes":[],"skills":[]}"#;
    let (mut client, script) = start(Script::answering(card)).await;
    let card = client.get_agent_card(GetAgentCardRequest {}).await.unwrap().into_inner();
    script.check("GetExtendedAgentCard", "{}");
    assert_eq!((card.protocol_version.as_str(), card.url.as_str()), ("0.3.0", "http://a/2"));
    assert_eq!(card.preferred_transport, "JSONRPC");
    let [grpc] = card.additional_interfaces.as_slice() else { panic!("{card:?}") };
    assert_eq!((grpc.transport.as_str(), grpc.url.as_str()), ("GRPC", "a:1"));
    assert!(card.supports_authenticated_extended_card && card.security_schemes.len() == 2, "{card:?}");
    assert!(card.security[0].schemes.contains_key("k"));
}

#[tokio::test]
async fn errors_have_the_code_and_the_name_of_0_3_with_the_details_of_1_0() {
    for (error, code, beginning) in [
        (A2aError::TaskNotFound { task_id: "t".into() }, Code::NotFound, "TaskNotFoundError: task t"),
        (A2aError::PushNotificationNotSupported, Code::Unimplemented, "PushNotificationNotSupportedError: "),
        (A2aError::Overloaded { reason: "full".into() }, Code::Unavailable, "the server is overloaded"),
    ] {
        let reason = error.reason();
        let (mut client, _script) = start(Script::failing(error)).await;
        let request = GetTaskRequest { name: "tasks/t".into(), history_length: 0 };
        let status = client.get_task(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().starts_with(beginning), "{}", status.message());
        assert_eq!(status.get_details_error_info().unwrap().reason, reason);
    }
}

#[tokio::test]
async fn names_without_an_id_are_refused() {
    let (mut client, script) = start(Script::answering("null")).await;
    for name in ["", "t-1", "tasks/", "task/t-1"] {
        let name = name.to_owned();
        let status = client.get_task(GetTaskRequest { name: name.clone(), history_length: 0 }).await.unwrap_err();
        assert_eq!(violations(&status), ["name"]);
        let status = client.cancel_task(CancelTaskRequest { name: name.clone() }).await.unwrap_err();
        assert_eq!(violations(&status), ["name"]);
        let status = client.task_subscription(TaskSubscriptionRequest { name: name.clone() }).await.unwrap_err();
        assert_eq!(violations(&status), ["name"]);
        let parent = ListTaskPushNotificationConfigRequest { parent: name.clone(), ..Default::default() };
        assert_eq!(violations(&client.list_task_push_notification_config(parent).await.unwrap_err()), ["parent"]);
        let request = GetTaskPushNotificationConfigRequest { name };
        assert_eq!(violations(&client.get_task_push_notification_config(request).await.unwrap_err()), ["name"]);
    }
    let request = DeleteTaskPushNotificationConfigRequest { name: "tasks/t/pushNotificationConfigs/".into() };
    assert_eq!(violations(&client.delete_task_push_notification_config(request).await.unwrap_err()), ["name"]);
    let request = CreateTaskPushNotificationConfigRequest { parent: "tasks/t".into(), ..Default::default() };
    let status = client.create_task_push_notification_config(request).await.unwrap_err();
    assert_eq!(violations(&status), ["config.pushNotificationConfig.url"]);
    script.check_not_called();
}

async fn refused(request: SendMessageRequest) -> Status {
    let (mut client, script) = start(Script::answering("null")).await;
    let status = client.send_message(request).await.unwrap_err();
    script.check_not_called();
    status
}

#[tokio::test]
async fn a_wrong_message_is_refused_with_the_fields_of_0_3() {
    assert_eq!(violations(&refused(SendMessageRequest::default()).await), ["message"]);
    assert_eq!(violations(&refused(sending(vec![])).await), ["message.content"]);
    assert_eq!(violations(&refused(sending(vec![text("x"), Part::default()])).await), ["message.content[1]"]);
    let file = with(part::Part::File(FilePart::default()));
    assert_eq!(violations(&refused(sending(vec![file])).await), ["message.content[0].file"]);
    let not_a_number = object([("k", value(Kind::NumberValue(f64::NAN)))]);
    assert_eq!(violations(&refused(sending(vec![data(not_a_number, None)])).await), ["message.content[0].data.data.k"]);
    let mut request = sending(vec![text("x")]);
    request.request.as_mut().unwrap().role = 7;
    assert_eq!(violations(&refused(request).await), ["message.role"]);
    let mut request = sending(vec![text("x")]);
    request.configuration = Some(SendMessageConfiguration { history_length: -1, ..Default::default() });
    assert_eq!(violations(&refused(request).await), ["configuration.historyLength"]);
}

#[tokio::test]
async fn a_message_that_is_too_large_or_too_deep_is_refused() {
    let status = refused(sending(vec![text(&"x".repeat(MAX_MESSAGE_BYTES))])).await;
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    let empty = value(Kind::StructValue(Struct::default()));
    let deep = (0..40).fold(empty, |inner: Value, _| value(Kind::StructValue(object([("k", inner)]))));
    let status = refused(sending(vec![data(object([("k", deep)]), None)])).await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("nests deeper than 100 levels"), "{}", status.message());
}

#[tokio::test]
async fn health_and_the_service_of_1_0_are_served_beside_it() {
    let limits = Limits { max_message_bytes: MAX_MESSAGE_BYTES };
    let router = routes_of_both_versions(Arc::new(Script::answering(TASK_JSON)), limits).fallback(unknown_service);
    let channel = connected(router).await;
    for service in ["", "lf.a2a.v1.A2AService", "a2a.v1.A2AService"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        HealthClient::new(channel.clone()).check(request).await.unwrap();
    }
    let mut newer = annex_grpc::pb::a2a_service_client::A2aServiceClient::new(channel);
    let request = annex_grpc::pb::GetTaskRequest { id: "t-1".into(), ..Default::default() };
    newer.get_task(request).await.unwrap();
}
